"""The functions to choose from, each with largest curvature 1 and its minimum at the origin.

So all of them fit one picture, and steps and bounds are multiples of the same number.
"""

from collections.abc import Callable
from dataclasses import dataclass

import contourpy
import numpy as np

from coco_denoiser.paper.problems import Quadratic
from coco_denoiser.paper.problems.base import Problem
from coco_denoiser.typing import Array

_ROTATION = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
_REACH = 140.0  # contours are drawn that far: a run that diverges is stopped at 100
_BOWL, _FREQUENCY, _BUMP = np.array([0.3, 0.6]), 0.7, 0.4


@dataclass(frozen=True)
class Bumps:
    """A separable bowl with a cosine added to each coordinate, and noise of any strength."""

    noise_std: float
    L: float = 1.0
    mu: float = -0.1
    dimension: int = 2

    @property
    def minimizer(self) -> Array:
        """The origin."""
        return np.zeros(self.dimension)

    def value(self, x: Array) -> Array:
        """Return f(x)."""
        bumps = _BUMP / _FREQUENCY**2 * (1.0 - np.cos(_FREQUENCY * x))
        return np.asarray((_BOWL * x**2 / 2 + bumps).sum(axis=-1))

    def gradient(self, x: Array) -> Array:
        """Return the gradient at x."""
        return np.asarray(_BOWL * x + _BUMP / _FREQUENCY * np.sin(_FREQUENCY * x))

    def oracle(self, x: Array, rng: np.random.Generator) -> Array:
        """Return the gradient at x with fresh noise."""
        return self.gradient(x) + rng.normal(scale=self.noise_std, size=x.shape)


def _quadratic(smallest: float) -> Callable[[float], Problem]:
    hessian = _ROTATION @ np.diag([smallest, 1.0]) @ _ROTATION.T
    return lambda noise: Quadratic(hessian, noise_std=noise)


@dataclass(frozen=True)
class Objective:
    """A function to choose: its name for the reader, the problem for a noise, and a remark."""

    label: str
    problem: Callable[[float], Problem]
    remark: str = ""


OBJECTIVES = {
    "quadratic": Objective("Quadratic", _quadratic(0.2)),
    "valley": Objective("Flat valley", _quadratic(0.01)),
    "bumps": Objective(
        "Not convex",
        Bumps,
        "This function is not convex: its curvatures go down to −0.1, so mu must be −0.1 or less.",
    ),
    "many": Objective(
        "Quadratic, 50 dimensions",
        lambda noise: Quadratic(np.linspace(0.2, 1.0, 50), noise_std=noise),
        "The picture shows the first two of 50 coordinates; curves and numbers are about all 50.",
    ),
}


def contours(name: str) -> tuple[list[Array], list[Array]]:
    """Return lines of equal value in the plane of the first two coordinates, as xs and ys."""
    problem = OBJECTIVES[name].problem(0.0)
    # Finer near the origin, where the steps are.
    side = np.sinh(np.linspace(-6.0, 6.0, 121)) / np.sinh(6.0) * _REACH
    grid = np.zeros((121, 121, problem.dimension))
    grid[..., 0], grid[..., 1] = np.meshgrid(side, side)
    generator = contourpy.contour_generator(side, side, problem.value(grid))
    levels = 0.4 * 1.9 ** np.arange(16)
    lines = [np.asarray(line) for level in levels for line in generator.lines(level)]
    return [line[:, 0] for line in lines], [line[:, 1] for line in lines]
