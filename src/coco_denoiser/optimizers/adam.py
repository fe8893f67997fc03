"""Adam: each coordinate divided by the size of its past gradients.

It addresses step sizes and not noise, so it is worth combining with a denoiser.
"""

import math

import numpy as np

from coco_denoiser._validation import positive
from coco_denoiser.optimizers.base import DenoiserLike, Optimizer
from coco_denoiser.optimizers.schedules import StepSize, fraction
from coco_denoiser.typing import Array


class Adam(Optimizer):
    r"""Divide a fading mean of gradients by the root of a fading mean of squares.

    $$\begin{align*}
    m &\leftarrow \beta_1 m + (1 - \beta_1)\, g, &
    v &\leftarrow \beta_2 v + (1 - \beta_2)\, g^2, \\
    x &\leftarrow x - \gamma\, \frac{m / (1 - \beta_1^k)}{\sqrt{v / (1 - \beta_2^k)} + \varepsilon}
    \end{align*}$$

    All products are elementwise and k counts steps from 1 (Kingma and Ba, 2015). The place of
    eps is PyTorch's.
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        denoiser: DenoiserLike | None = None,
    ) -> None:
        self._beta1 = fraction("beta1", beta1)
        self._beta2 = fraction("beta2", beta2)
        self._eps = positive("eps", eps)
        super().__init__(step_size, denoiser=denoiser)

    def forget(self) -> None:
        """Drop both moments."""
        self._m: Array | None = None
        self._v: Array | None = None

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        if self._m is None or self._v is None:
            self._m, self._v = np.zeros_like(g), np.zeros_like(g)
        self._m *= self._beta1
        self._m += (1 - self._beta1) * g
        self._v *= self._beta2
        self._v += (1 - self._beta2) * (g * g)
        scale: Array = np.sqrt(self._v / (1 - math.pow(self._beta2, self.steps)))
        scale += self._eps
        self._last_step = step_size / scale
        return step_size / (1 - math.pow(self._beta1, self.steps)) * self._m / scale

    @property
    def last_step(self) -> Array:
        """The last step's size in every coordinate, without the mean of the gradients."""
        return self._last_step
