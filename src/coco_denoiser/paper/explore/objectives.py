"""The functions to choose from, each with largest curvature 1 and its minimum at the origin.

So all of them fit one picture, and steps and bounds are multiples of the same number.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coco_denoiser.paper.problems import Quadratic
from coco_denoiser.paper.problems.base import Problem
from coco_denoiser.typing import Array

_ROTATION = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
_FREQUENCY, _BUMP = 0.7, 0.4


class Bumps(Quadratic):
    """A bowl with a cosine added to each coordinate."""

    def __init__(self, noise_std: float) -> None:
        super().__init__([0.3, 0.6], noise_std=noise_std)
        self.L, self.mu = 0.6 + _BUMP, 0.3 - _BUMP

    def value(self, x: Array) -> Array:
        """Return f at one point, or at each of a batch."""
        bumps = 1.0 - np.cos(_FREQUENCY * x)
        return np.asarray(super().value(x) + _BUMP / _FREQUENCY**2 * bumps.sum(axis=-1))

    def gradient(self, x: Array) -> Array:
        """Return the gradient at one point, or at each of a batch."""
        return np.asarray(super().gradient(x) + _BUMP / _FREQUENCY * np.sin(_FREQUENCY * x))


def _quadratic(smallest: float) -> Callable[[float], Problem]:
    hessian = _ROTATION @ np.diag([smallest, 1.0]) @ _ROTATION.T
    return lambda noise: Quadratic(hessian, noise_std=noise)


class Objective(NamedTuple):
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
