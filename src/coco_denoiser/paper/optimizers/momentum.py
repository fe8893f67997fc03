"""Methods that remember past gradients, beside the newest.

All of them smooth the noise. A fading mean pays with lag: an old gradient belongs to an old point,
and neither `HeavyBall` nor `GradientEMA` corrects for the distance travelled since.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from coco_denoiser._validation import positive
from coco_denoiser.paper.optimizers.base import Optimizer, check_fraction
from coco_denoiser.typing import Array


@dataclass(eq=False, kw_only=True)
class WithMomentum(Optimizer):
    """A method with a factor beta, at least 0 and below 1, that says how long it remembers."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        check_fraction("beta", self.beta)
        super().__post_init__()


class HeavyBall(WithMomentum):
    r"""Add up the gradients with fading weights (Polyak, 1964).

    $$m \leftarrow \beta m + g, \qquad x \leftarrow x - \gamma m$$

    The weights sum to $1 / (1 - \beta)$, so that steps are longer than SGD's by that factor.
    """

    def forget(self) -> None:
        """Drop the past gradients."""
        self._m: Any = 0.0  # an array from the first step on

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return the next point."""
        self._m = self.beta * self._m + g
        return np.asarray(x - step_size * self._m)


class GradientEMA(HeavyBall):
    r"""Follow the exponential moving average of the gradients, with weights that sum to 1.

    $$m \leftarrow \beta m + (1 - \beta)\, g, \qquad
    x \leftarrow x - \gamma\, m / (1 - \beta^k)$$
    """

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return the next point."""
        step_size /= 1 - math.pow(self.beta, self.steps)
        return super().move(x, (1 - self.beta) * g, step_size)


@dataclass(eq=False, kw_only=True)
class Adam(Optimizer):
    r"""Divide a fading mean of gradients by the root of a fading mean of squares.

    $$\begin{align*}
    m &\leftarrow \beta_1 m + (1 - \beta_1)\, g, &
    v &\leftarrow \beta_2 v + (1 - \beta_2)\, g^2, \\
    x &\leftarrow x - \gamma\, \frac{m / (1 - \beta_1^k)}{\sqrt{v / (1 - \beta_2^k)} + \varepsilon}
    \end{align*}$$

    All products are elementwise and k counts steps from 1 (Kingma and Ba, 2015). The place of
    eps is PyTorch's. It addresses step sizes and not noise, so it is worth combining with a
    denoiser.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_fraction("beta1", self.beta1)
        check_fraction("beta2", self.beta2)
        positive("eps", self.eps)
        super().__post_init__()

    def forget(self) -> None:
        """Drop both moments."""
        self._m: Any = 0.0  # arrays from the first step on
        self._v: Any = 0.0

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return the next point."""
        self._m = self.beta1 * self._m + (1 - self.beta1) * g
        self._v = self.beta2 * self._v + (1 - self.beta2) * (g * g)
        scale = np.sqrt(self._v / (1 - math.pow(self.beta2, self.steps))) + self.eps
        self.last_step = np.asarray(step_size / scale)  # without the mean of the gradients
        step_size /= 1 - math.pow(self.beta1, self.steps)
        return np.asarray(x - step_size * self._m / scale)


class ScheduleFree(WithMomentum):
    r"""Ask between the fast iterate z and its average x (Defazio et al., 2024).

    $$\begin{align*}
    y_k &= (1 - \beta)\, z_k + \beta x_k && \text{where the gradient is asked for} \\
    z_{k+1} &= z_k - \gamma\, g(y_k) \\
    x_{k+1} &= (1 - 1/k)\, x_k + z_{k+1} / k
    \end{align*}$$

    That is averaging without its slow start, and without knowing the horizon in advance. The
    points that `step` takes and returns, and that a denoiser sees, are the $y_k$; `answer`
    gives the $x_k$. beta=0 is SGD with the average of all iterates but the first, and beta near
    1 asks at the average itself.
    """

    def forget(self) -> None:
        """Start with z = x = y."""
        self._apart: Any = 0.0  # z - x, an array from the first step on

    def answer(self, x: Array) -> Array:
        """Return $x_k$ for the point $y_k$ where the next gradient is due."""
        return np.asarray(x - (1 - self.beta) * self._apart)

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return $y_{k+1}$ for $y_k$."""
        moved = self._apart - step_size * g
        apart = (1 - 1 / self.steps) * moved
        change: Array = (1 - self.beta) * (self._apart - apart) - moved / self.steps
        self._apart = apart
        return x - change


@dataclass(eq=False, kw_only=True)
class IGT(Optimizer):
    r"""Average all gradients, transported to the current point.

    $$\begin{align*}
    w_k &= x_k + \frac{q_k}{1 - q_k} (x_k - x_{k-1}) && \text{where the gradient is asked for} \\
    v_k &= q_k v_{k-1} + (1 - q_k)\, g(w_k) \\
    x_{k+1} &= x_k - \gamma v_k
    \end{align*}$$

    An average of past gradients lags behind, as each belongs to an old point. On a quadratic the
    gradient is linear, so that one can choose where to ask next such that the average *is* the
    gradient at the current point, plus the average of the noise: implicit gradient transport
    (Arnold et al., 2019).

    The points that `step` takes and returns are the $w_k$; `answer` gives the $x_k$. With tail=1,
    $q_k = (k - 1) / k$ and $v_k$ is the plain mean of $k$ gradients. With tail = $c < 1$ it is an
    average of about the last $c k$ of them ("anytime tail averaging"): $q_k$ is such that from
    $k = 1 / c$ on its noise has $1 / (c k)$ of the variance of one gradient, exactly so if $1 / c$
    is an integer.

    Args:
        step_size: $\gamma$, a number or a schedule.
        tail: $c$, the fraction of the gradients that the average keeps, above 0 and at most 1.
        denoiser: called as denoiser(w, g).
    """

    tail: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.tail <= 1:
            raise ValueError(f"tail must be above 0 and at most 1, got {self.tail}.")
        super().__post_init__()

    def forget(self) -> None:
        """Drop the average and the way ahead."""
        self._v: Any = 0.0  # arrays from the first step on
        self._lead: Any = 0.0

    def answer(self, x: Array) -> Array:
        """Return $x_k$ for the point $w_k$ where the next gradient is due."""
        return np.asarray(x - self._lead)

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return $w_{k+1}$ for $w_k$."""
        keep = self._keep(self.steps)
        self._v = keep * self._v + (1 - keep) * g
        move = step_size * self._v
        keep = self._keep(self.steps + 1)
        ahead = -(keep / (1 - keep)) * move
        change: Array = self._lead + move - ahead
        self._lead = ahead
        return x - change

    def _keep(self, k: int) -> float:
        """Return q_k, the root of q^2 / (c (k - 1)) + (1 - q)^2 = 1 / (c k)."""
        c = self.tail
        if c * (k - 1) < 1:
            return 0.0
        return (c * (k - 1) - math.sqrt((1 - c) * (k - 1) / k)) / (1 + c * (k - 1))
