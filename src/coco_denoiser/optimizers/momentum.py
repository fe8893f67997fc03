"""Methods that follow a fading memory of gradients instead of the newest alone.

Both smooth the noise, and both pay with lag: an old gradient belongs to an old point, and
neither method corrects for the distance travelled since.
"""

import math

import numpy as np

from coco_denoiser.optimizers.base import DenoiserLike, Optimizer
from coco_denoiser.optimizers.schedules import StepSize, fraction
from coco_denoiser.typing import Array


class WithMomentum(Optimizer):
    """A method with a factor beta, at least 0 and below 1, that says how long it remembers."""

    def __init__(
        self, step_size: StepSize, *, beta: float = 0.9, denoiser: DenoiserLike | None = None
    ) -> None:
        self._beta = fraction("beta", beta)
        super().__init__(step_size, denoiser=denoiser)


class _Fading(WithMomentum):
    """One vector of past gradients with fading weights."""

    def forget(self) -> None:
        """Drop the past gradients."""
        self._m: Array | None = None

    def _take_in(self, g: Array, share: float) -> Array:
        """Update m = beta m + share g and return it."""
        if self._m is None:
            self._m = np.zeros_like(g)
        self._m *= self._beta
        self._m += share * g
        return self._m


class HeavyBall(_Fading):
    r"""Add up the gradients with fading weights (Polyak, 1964).

    $$m \leftarrow \beta m + g, \qquad x \leftarrow x - \gamma m$$

    The weights sum to $1 / (1 - \beta)$, so that steps are longer than SGD's by that factor.
    """

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        return step_size * self._take_in(g, 1.0)


class GradientEMA(_Fading):
    r"""Follow the exponential moving average of the gradients, with weights that sum to 1.

    $$m \leftarrow \beta m + (1 - \beta)\, g, \qquad
    x \leftarrow x - \gamma\, m / (1 - \beta^k)$$
    """

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        mean = self._take_in(g, 1 - self._beta)
        return step_size / (1 - math.pow(self._beta, self.steps)) * mean
