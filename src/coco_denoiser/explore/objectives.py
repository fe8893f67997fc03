"""The functions one can choose, each with largest curvature 1 and its minimum at the origin.

So all of them fit one picture, and steps and bounds are multiples of the same number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import contourpy
import numpy as np

from coco_denoiser.problems import Quadratic
from coco_denoiser.problems.base import Problem
from coco_denoiser.typing import Array

Field = Callable[[Array], Array]
_TURN = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
_REACH = 140.0  # contours are drawn that far: a run that diverges is stopped at 100


@dataclass(frozen=True)
class Smooth:
    """A function of the plane, given by its value and gradient, and noise of any strength."""

    value: Field
    gradient: Field
    mu: float
    noise_std: float
    L: float = 1.0
    dimension: int = 2

    @property
    def minimizer(self) -> Array:
        """The origin."""
        return np.zeros(self.dimension)

    def oracle(self, x: Array, rng: np.random.Generator) -> Array:
        """Return the gradient at x with fresh noise."""
        return self.gradient(x) + rng.normal(scale=self.noise_std, size=x.shape)


def _quadratic(smallest: float) -> Callable[[float], Problem]:
    hessian = _TURN @ np.diag([smallest, 1.0]) @ _TURN.T
    return lambda noise: Quadratic(hessian, noise_std=noise)


def _many_dimensions(noise: float) -> Problem:
    return Quadratic(np.linspace(0.2, 1.0, 50), noise_std=noise)


# Pairs of examples a, -a with the same label keep the minimum at the origin; the scale makes the
# largest curvature, that of the origin, 1.
_EXAMPLES = np.array([[1.0, 0.2], [0.8, -0.2], [0.9, 0.5], [-0.2, 0.5]])
_WIDTH = 3.0
_HEIGHT = 4 * _WIDTH**2 / float(np.linalg.eigvalsh(_EXAMPLES.T @ _EXAMPLES)[-1])


def _logistic(noise: float) -> Problem:
    def value(x: Array) -> Array:
        margins = x @ _EXAMPLES.T / _WIDTH
        above = np.logaddexp(0.0, margins) - margins / 2 - np.log(2)
        return np.asarray(_HEIGHT * above.sum(axis=-1))

    def gradient(x: Array) -> Array:
        slopes = np.tanh(x @ _EXAMPLES.T / (2 * _WIDTH)) / 2
        return np.asarray(_HEIGHT / _WIDTH * slopes @ _EXAMPLES)

    return Smooth(value, gradient, mu=0.0, noise_std=noise)


_BOWL, _WAVE, _BUMP = np.array([0.3, 0.6]), 0.7, 0.4


def _bumps(noise: float) -> Problem:
    def value(x: Array) -> Array:
        bumps = _BUMP / _WAVE**2 * (1.0 - np.cos(_WAVE * x))
        return np.asarray((_BOWL * x**2 / 2 + bumps).sum(axis=-1))

    def gradient(x: Array) -> Array:
        return np.asarray(_BOWL * x + _BUMP / _WAVE * np.sin(_WAVE * x))

    return Smooth(value, gradient, mu=float(_BOWL[0] - _BUMP), noise_std=noise)


@dataclass(frozen=True)
class Objective:
    """A function to choose: its name for the reader, the problem for a noise, and a remark."""

    label: str
    problem: Callable[[float], Problem]
    remark: str = ""


OBJECTIVES = {
    "quadratic": Objective("Quadratic", _quadratic(0.2)),
    "valley": Objective("Flat valley", _quadratic(0.01)),
    "logistic": Objective("Logistic loss", _logistic),
    "bumps": Objective(
        "Not convex",
        _bumps,
        "This function is not convex: its curvatures go down to −0.1. Bounds that hold need mu at "
        "−0.1 or below.",
    ),
    "many": Objective(
        "Quadratic, 50 dimensions",
        _many_dimensions,
        "The picture shows the first two of 50 coordinates; curves and numbers are about all 50.",
    ),
}


@cache
def contours(name: str) -> tuple[list[Array], list[Array]]:
    """Return lines of equal value in the plane of the first two coordinates, as xs and ys."""
    problem = OBJECTIVES[name].problem(0.0)
    # Finer near the origin, where the steps are.
    side = np.sinh(np.linspace(-6.0, 6.0, 121)) / np.sinh(6.0) * _REACH
    grid = np.zeros((121, 121, problem.dimension))
    grid[..., 0], grid[..., 1] = np.meshgrid(side, side)
    found = contourpy.contour_generator(side, side, problem.value(grid))
    levels = 0.4 * 1.9 ** np.arange(16)
    lines = [np.asarray(line) for level in levels for line in found.lines(level)]
    return [line[:, 0] for line in lines], [line[:, 1] for line in lines]
