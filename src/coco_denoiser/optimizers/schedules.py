"""Step sizes as functions of the step's number k = 1, 2, ..."""

import math
from collections.abc import Callable
from typing import TypeAlias

Schedule: TypeAlias = Callable[[int], float]
r"""Returns $\gamma_k$ for the number $k = 1, 2, \dots$ of a step."""


def fixed(size: float) -> Schedule:
    r"""Return the schedule $\gamma_k$ = size."""
    value = positive("size", size)
    return lambda _: value


def decreasing(C: float) -> Schedule:
    r"""Return the schedule $\gamma_k = C / k$, under which SGD's noise averages out."""
    value = positive("C", C)
    return lambda k: value / k


def as_schedule(step_size: float | Schedule) -> Schedule:
    """Return a schedule as it is, and a number as the fixed schedule."""
    return step_size if callable(step_size) else fixed(positive("step_size", step_size))


def positive(name: str, value: float) -> float:
    """Return the value as a float, or say that it must be positive and finite."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive and finite, got {value}.")
    return float(value)


def fraction(name: str, value: float) -> float:
    """Return the value as a float, or say that it must be at least 0 and below 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}.")
    return float(value)
