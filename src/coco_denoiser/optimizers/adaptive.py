"""Methods that scale each coordinate by the size of its past gradients.

They address step sizes and not noise, so each is worth combining with a denoiser. The
definitions, and the places of eps, are those of PyTorch's optimizers of the same names.
All products are elementwise; k counts steps from 1.
"""

import math

import numpy as np

from coco_denoiser._validation import positive
from coco_denoiser.optimizers.base import DenoiserLike, Optimizer
from coco_denoiser.optimizers.schedules import StepSize, fraction
from coco_denoiser.typing import Array


class AdaGrad(Optimizer):
    r"""Divide by the root of the sum of squares (Duchi et al., 2011).

    $$s \leftarrow s + g^2, \qquad x \leftarrow x - \gamma\, g / (\sqrt{s} + \varepsilon)$$
    """

    def __init__(
        self, step_size: StepSize, *, eps: float = 1e-10, denoiser: DenoiserLike | None = None
    ) -> None:
        self._eps = positive("eps", eps)
        super().__init__(step_size, denoiser=denoiser)

    def forget(self) -> None:
        """Drop the sum of squares."""
        self._sum: Array | None = None

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        if self._sum is None:
            self._sum = np.zeros_like(g)
        self._sum += g * g
        return step_size * g / (np.sqrt(self._sum) + self._eps)


class RMSprop(Optimizer):
    r"""Divide by the root of a fading mean of squares (Hinton, 2012).

    $$v \leftarrow \alpha v + (1 - \alpha)\, g^2, \qquad
    x \leftarrow x - \gamma\, g / (\sqrt{v} + \varepsilon)$$
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        denoiser: DenoiserLike | None = None,
    ) -> None:
        self._alpha = fraction("alpha", alpha)
        self._eps = positive("eps", eps)
        super().__init__(step_size, denoiser=denoiser)

    def forget(self) -> None:
        """Drop the mean of squares."""
        self._v: Array | None = None

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        if self._v is None:
            self._v = np.zeros_like(g)
        _fade(self._v, g * g, self._alpha)
        return step_size * g / (np.sqrt(self._v) + self._eps)


class Adadelta(Optimizer):
    r"""Scale by the ratio of past steps to past gradients, so that units agree (Zeiler, 2012).

    $$\begin{align*}
    v &\leftarrow \rho v + (1 - \rho)\, g^2, &
    \delta &= \sqrt{u + \varepsilon}\, g / \sqrt{v + \varepsilon}, \\
    u &\leftarrow \rho u + (1 - \rho)\, \delta^2, &
    x &\leftarrow x - \gamma \delta
    \end{align*}$$
    """

    def __init__(
        self,
        step_size: StepSize = 1.0,
        *,
        rho: float = 0.9,
        eps: float = 1e-6,
        denoiser: DenoiserLike | None = None,
    ) -> None:
        self._rho = fraction("rho", rho)
        self._eps = positive("eps", eps)
        super().__init__(step_size, denoiser=denoiser)

    def forget(self) -> None:
        """Drop the means of squared gradients and squared steps."""
        self._v: Array | None = None
        self._u: Array | None = None

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        if self._v is None or self._u is None:
            self._v, self._u = np.zeros_like(g), np.zeros_like(g)
        _fade(self._v, g * g, self._rho)
        delta = np.sqrt((self._u + self._eps) / (self._v + self._eps)) * g
        _fade(self._u, delta * delta, self._rho)
        return step_size * delta


class _Moments(Optimizer):
    """What Adam and its variants share: two fading factors, eps, and a fading mean of g."""

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

    def _moments(self, g: Array) -> tuple[Array, Array]:
        """Return the first moment with g taken in, and the second as the last step left it."""
        if self._m is None or self._v is None:
            self._m, self._v = np.zeros_like(g), np.zeros_like(g)
        _fade(self._m, g, self._beta1)
        return self._m, self._v


class Adam(_Moments):
    r"""Divide a fading mean of gradients by the root of a fading mean of squares.

    $$\begin{align*}
    m &\leftarrow \beta_1 m + (1 - \beta_1)\, g, &
    v &\leftarrow \beta_2 v + (1 - \beta_2)\, g^2, \\
    x &\leftarrow x - \gamma\, \frac{m / (1 - \beta_1^k)}{\sqrt{v / (1 - \beta_2^k)} + \varepsilon}
    \end{align*}$$

    Kingma and Ba (2015).
    """

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        m, v = self._moments(g)
        _fade(v, g * g, self._beta2)
        scale: Array = np.sqrt(v / (1 - math.pow(self._beta2, self.steps)))
        scale += self._eps
        return step_size / (1 - math.pow(self._beta1, self.steps)) * m / scale


class AdaMax(_Moments):
    r"""Adam with the largest faded gradient in place of the root mean square.

    $$u \leftarrow \max(\beta_2 u, |g| + \varepsilon), \qquad
    x \leftarrow x - \gamma\, \frac{m}{(1 - \beta_1^k)\, u}$$

    Kingma and Ba (2015).
    """

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        m, u = self._moments(g)
        np.maximum(self._beta2 * u, np.abs(g) + self._eps, out=u)
        return step_size / (1 - math.pow(self._beta1, self.steps)) * m / u


class Nadam(_Moments):
    r"""Adam with Nesterov's momentum, whose factor warms up from beta1 / 2 (Dozat, 2016).

    $$\begin{align*}
    \mu_k &= \beta_1 (1 - 0.96^{\text{decay}\, k} / 2), & P_k &= \mu_1 \cdots \mu_k, \\
    x &\leftarrow x - \gamma\, \frac{(1 - \mu_k)\, g / (1 - P_k) + \mu_{k+1}\, m / (1 - P_{k+1})}
    {\sqrt{v / (1 - \beta_2^k)} + \varepsilon}
    \end{align*}$$
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        decay: float = 4e-3,
        denoiser: DenoiserLike | None = None,
    ) -> None:
        self._decay = positive("decay", decay)
        super().__init__(step_size, beta1=beta1, beta2=beta2, eps=eps, denoiser=denoiser)

    def forget(self) -> None:
        """Drop both moments and the product of the momentum factors."""
        super().forget()
        self._product = 1.0

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        m, v = self._moments(g)
        _fade(v, g * g, self._beta2)
        now, following = self._momentum(self.steps), self._momentum(self.steps + 1)
        self._product *= now
        scale: Array = np.sqrt(v / (1 - math.pow(self._beta2, self.steps)))
        scale += self._eps
        of_gradient = step_size * (1 - now) / (1 - self._product)
        of_moment = step_size * following / (1 - self._product * following)
        return (of_gradient * g + of_moment * m) / scale

    def _momentum(self, k: int) -> float:
        return self._beta1 * (1 - 0.5 * math.pow(0.96, k * self._decay))


def _fade(mean: Array, new: Array, keep: float) -> None:
    """Update mean = keep * mean + (1 - keep) * new in place."""
    mean *= keep
    mean += (1 - keep) * new
