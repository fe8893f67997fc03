"""The frame of every optimizer: oracle, denoiser, update, as in the paper's Figure 1(b)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from coco_denoiser._validation import positive
from coco_denoiser.paper.problems.base import Oracle
from coco_denoiser.typing import Array

Schedule: TypeAlias = Callable[[int], float]
r"""Returns $\gamma_k$ for the number $k = 1, 2, \dots$ of a step."""


StepSize: TypeAlias = float | Schedule
r"""$\gamma$, a number or a schedule."""

DenoiserLike: TypeAlias = Callable[[Array, Array], Array]
"""Returns the denoised gradient for a point and a noisy gradient there, as `Denoiser` does."""


def decreasing(C: float) -> Schedule:
    r"""Return the schedule $\gamma_k = C / k$, under which SGD's noise averages out.

    Examples:
        >>> from coco_denoiser.paper.optimizers import decreasing
        >>> [decreasing(2.0)(k) for k in (1, 2, 4)]
        [2.0, 1.0, 0.5]
    """
    positive("C", C)
    return lambda k: C / k


def check_fraction(name: str, value: float) -> None:
    """Say that the value must be at least 0 and below 1, if it is not."""
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}.")


@dataclass(eq=False)
class Optimizer:
    r"""Minimise f from noisy gradients, one oracle call per step.

    A step is two stages, and a method defines the second:

    1. the denoiser, if there is one: $\theta_k$ = `denoiser`$(x_k, g_k)$, from the noisy gradient
       $g_k$ at $x_k$;
    2. $x_{k+1}$ = `move`$(x_k, \theta_k, \gamma_k)$.

    `advance` asks the oracle first. STRSAGA denoises the gradient of a term there, and corrects it
    by what it remembers, as the paper does.

    Args:
        step_size: $\gamma$, a number or a schedule $k \mapsto \gamma_k$ with $k = 1, 2, \dots$
        denoiser: called as denoiser(x, g) once per step. If it has a `reset` method, that is
            called when the optimizer is reset.

    Attributes:
        steps: the number of steps taken.
        last_step: the size $\gamma_k$ of the last one, as a proximal step needs it; for Adam by
            coordinate.
    """

    step_size: StepSize
    denoiser: DenoiserLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.denoiser is not None and not callable(self.denoiser):
            raise TypeError(f"denoiser must be callable as denoiser(x, g), got {self.denoiser!r}.")
        if not callable(self.step_size):
            self.step_size = positive("step_size", self.step_size)
        self.steps = 0
        self.last_step: float | Array = 0.0
        self.forget()

    def forget(self) -> None:
        """Set the method's own state to that of a new optimizer. Methods with state override it."""

    def reset(self) -> None:
        """Start over: the counter, the method's state, and the denoiser's window."""
        self.steps = 0
        self.forget()
        clear = getattr(self.denoiser, "reset", None)
        if clear is not None:
            clear()

    def advance(self, problem: Oracle, x: Array, rng: np.random.Generator) -> Array:
        """Take one step on a problem and return the next point."""
        return self.step(x, problem.oracle(x, rng))

    def step(self, x: Array, g: Array) -> Array:
        """Denoise g, take one step from x and return the next point; x and g stay as they are."""
        if x.shape != g.shape:
            raise ValueError(f"g must have the shape of x, got {g.shape} and {x.shape}.")
        g = self.denoised(x, g)
        self.steps += 1
        self.last_step = size = self._size()
        return self.move(x, g, size)

    def denoised(self, x: Array, g: Array) -> Array:
        """Return what the denoiser, if there is one, makes of the gradient g at x."""
        return g if self.denoiser is None else self.denoiser(x, g)

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return the next point."""
        return x - step_size * g

    def _size(self) -> float:
        return self.step_size(self.steps) if callable(self.step_size) else self.step_size

    def answer(self, x: Array) -> Array:
        """Return the solution so far, if the next gradient is due at x: by default x itself."""
        return x


class SGD(Optimizer):
    r"""Stochastic gradient descent (Robbins and Monro, 1951): $x_{k+1} = x_k - \gamma_k g_k$."""
