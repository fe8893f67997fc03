"""Step sizes as functions of the step's number k = 1, 2, ..."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from coco_denoiser._validation import positive

Schedule: TypeAlias = Callable[[int], float]
r"""Returns $\gamma_k$ for the number $k = 1, 2, \dots$ of a step."""


StepSize: TypeAlias = float | Schedule
r"""$\gamma$, a number or a schedule."""


def decreasing(C: float) -> Schedule:
    r"""Return the schedule $\gamma_k = C / k$, under which SGD's noise averages out.

    Examples:
        >>> from coco_denoiser.paper.optimizers import decreasing
        >>> [decreasing(2.0)(k) for k in (1, 2, 4)]
        [2.0, 1.0, 0.5]
    """
    return _Decreasing(positive("C", C))


@dataclass(frozen=True, slots=True)
class _Decreasing:
    C: float

    def __call__(self, k: int) -> float:
        return self.C / k

    def __repr__(self) -> str:
        return f"decreasing({self.C!r})"


def as_schedule(step_size: StepSize) -> Schedule:
    """Return a schedule as it is, and a number as the schedule that always returns it."""
    if callable(step_size):
        return step_size
    size = positive("step_size", step_size)
    return lambda _: size


def fraction(name: str, value: float) -> float:
    """Return the value as a float, or say that it must be at least 0 and below 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}.")
    return float(value)
