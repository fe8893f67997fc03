"""What an optimizer may ask of a problem.

Every problem is minimise f(x) over x in R^d, where f has curvature between mu and L, and every
problem has an oracle: a random vector whose mean is the gradient of f. A finite sum also gives
the gradient of each of its terms, which variance-reduced methods need.
"""

from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from coco_denoiser.typing import Array

Indices: TypeAlias = NDArray[np.integer[Any]]


class Oracle(Protocol):
    """What answers every point with a random vector whose mean is the gradient there."""

    @property
    def dimension(self) -> int:
        """The number d of variables."""

    def oracle(self, x: Array, rng: np.random.Generator) -> Array:
        """Return one unbiased noisy gradient per point, each drawn independently."""


class Problem(Oracle, Protocol):
    """A smooth objective f with a stochastic first-order oracle."""

    @property
    def L(self) -> float:  # noqa: N802 - the paper's letter
        """The largest curvature of f, that is the Lipschitz constant of its gradient."""

    @property
    def mu(self) -> float:
        """The smallest curvature of f over all of space."""

    @property
    def minimizer(self) -> Array:
        """The point (d,) where f is least."""

    def value(self, x: Array) -> Array:
        """Return f at one point (d,), or at each of a batch (..., d)."""

    def gradient(self, x: Array) -> Array:
        """Return the gradient at one point (d,), or at each of a batch (..., d)."""


class FiniteSum(Problem, Protocol):
    r"""A problem $f = \frac1n \sum_i f_i$ whose terms can be asked for one by one."""

    @property
    def size(self) -> int:
        """The number n of terms."""

    def example_gradient(self, x: Array, index: int | Indices) -> Array:
        """Return the gradient of term `index` at x."""


def is_finite_sum(problem: Oracle) -> TypeGuard[FiniteSum]:
    """Return whether a problem gives the gradients of its terms.

    By name: `isinstance` would read every property, and so compute the minimizer.
    """
    return hasattr(problem, "size") and hasattr(problem, "example_gradient")


def draw_index(size: int, rng: np.random.Generator) -> int:
    """Draw one index uniformly from 0..size-1.

    This takes a third of the time of `rng.integers`, which matters at every step. A double below 1
    times size always rounds below size, and the departure from uniform is under size / 2**53.
    """
    return int(rng.random() * size)


def as_points(x: Array, dimension: int) -> Array:
    """Return x as a float array (..., dimension), or say what is wrong with it."""
    points = np.asarray(x)
    if points.dtype.kind != "f":
        points = points.astype(np.float64)
    if points.shape[-1:] != (dimension,):
        raise ValueError(
            f"x must have shape ({dimension},) or (..., {dimension}), got {points.shape}."
        )
    return points
