"""The frame of every optimizer: oracle, denoiser, update, as in the paper's Figure 1(b)."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
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


class Optimizer:
    r"""Minimise f from noisy gradients, one estimate per step.

    A step is three stages, and a method defines the first or the last of them:

    1. `estimate`: ask for a noisy gradient $g_k$ at $x_k$ (one oracle call, unless a finite-sum
       method corrects it with what it remembers);
    2. the denoiser, if there is one: $\theta_k$ = `denoiser`$(x_k, g_k)$;
    3. `increment`: $x_{k+1} = x_k -$ `increment`$(\theta_k, \gamma_k)$.

    The denoiser treats its input as a noisy gradient of $f$ at $x_k$, whatever the first stage did.
    STRSAGA denoises within the first stage, as the paper does.

    Args:
        step_size: $\gamma$, a number or a schedule $k \mapsto \gamma_k$ with $k = 1, 2, \dots$
        denoiser: called as denoiser(x, g) once per step. If it has a `reset` method, that is
            called when the optimizer is reset.

    Attributes:
        steps: the number of steps taken.
        evaluations: the number of gradients of single terms (or oracle answers) asked for.
    """

    def __init__(self, step_size: StepSize, *, denoiser: DenoiserLike | None = None) -> None:
        if denoiser is not None and not callable(denoiser):
            raise TypeError(f"denoiser must be callable as denoiser(x, g), got {denoiser!r}.")
        self._step_size = step_size
        self._schedule = as_schedule(step_size)
        self._denoiser = denoiser
        self.steps = 0
        self.evaluations = 0
        self.forget()

    def __repr__(self) -> str:
        """Show the settings; each is kept under its name as an argument."""
        names = [name for name in inspect.signature(type(self)).parameters if name != "step_size"]
        settings = {name: getattr(self, f"_{name}") for name in names}
        shown = [f"{name}={value!r}" for name, value in settings.items() if value is not None]
        return f"{type(self).__name__}({', '.join([repr(self._step_size), *shown])})"

    def forget(self) -> None:
        """Set the method's own state to that of a new optimizer. Methods with state override it."""

    def reset(self) -> None:
        """Start over: counters, the method's state, and the denoiser's window."""
        self.steps = 0
        self.evaluations = 0
        self.forget()
        clear = getattr(self._denoiser, "reset", None)
        if callable(clear):
            clear()

    def advance(self, problem: Oracle, x: Array, rng: np.random.Generator) -> Array:
        """Take one step on a problem and return the next point."""
        return self.step(x, self.estimate(problem, x, rng))

    def estimate(self, problem: Oracle, x: Array, rng: np.random.Generator) -> Array:
        """Return a noisy gradient of f at x: by default one answer of the oracle."""
        self.evaluations += 1
        return problem.oracle(x, rng)

    def step(self, x: Array, g: Array) -> Array:
        """Denoise g, take one step from x and return the next point; x and g stay as they are."""
        if x.shape != g.shape:
            raise ValueError(f"g must have the shape of x, got {g.shape} and {x.shape}.")
        g = self.denoised(x, g)
        self.steps += 1
        return x - self.increment(g, self._schedule(self.steps))

    def denoised(self, x: Array, g: Array) -> Array:
        """Return what the denoiser, if there is one, makes of the estimate g at x."""
        return g if self._denoiser is None else self._denoiser(x, g)

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        return step_size * g

    @property
    def last_step(self) -> float | Array:
        r"""The last step's size $\gamma_k$, as a proximal step needs it; for Adam by coordinate."""
        return self._schedule(self.steps)

    def answer(self, x: Array) -> Array:
        """Return the solution so far, if the next gradient is due at x: by default x itself."""
        return x


class SGD(Optimizer):
    r"""Stochastic gradient descent (Robbins and Monro, 1951): $x_{k+1} = x_k - \gamma_k g_k$."""
