"""Implicit gradient transport: ask elsewhere, so that old gradients count as if asked here.

An average of past gradients lags behind, as each belongs to an old point. On a quadratic the
gradient is linear, so that one can choose where to ask next such that the average *is* the
gradient at the current point, plus the average of the noise (Arnold et al., 2019).
"""

import math

import numpy as np

from coco_denoiser.optimizers.base import DenoiserLike, Optimizer
from coco_denoiser.optimizers.schedules import StepSize
from coco_denoiser.typing import Array


class IGT(Optimizer):
    r"""Average all gradients, transported to the current point.

    $$\begin{align*}
    w_k &= x_k + \frac{q_k}{1 - q_k} (x_k - x_{k-1}) && \text{where the gradient is asked for} \\
    v_k &= q_k v_{k-1} + (1 - q_k)\, g(w_k) \\
    x_{k+1} &= x_k - \gamma v_k
    \end{align*}$$

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

    def __init__(
        self, step_size: StepSize, *, tail: float = 1.0, denoiser: DenoiserLike | None = None
    ) -> None:
        if not 0 < tail <= 1:
            raise ValueError(f"tail must be above 0 and at most 1, got {tail}.")
        self._tail = float(tail)
        super().__init__(step_size, denoiser=denoiser)

    def forget(self) -> None:
        """Drop the average and the way ahead."""
        self._v: Array | None = None
        self._lead: Array | None = None

    def answer(self, x: Array) -> Array:
        """Return $x_k$ for the point $w_k$ where the next gradient is due."""
        return x.copy() if self._lead is None else x - self._lead

    def increment(self, g: Array, step_size: float) -> Array:
        """Return $w_k - w_{k+1}$."""
        if self._v is None or self._lead is None:
            self._v, self._lead = np.zeros_like(g), np.zeros_like(g)
        keep = self._keep(self.steps)
        self._v *= keep
        self._v += (1 - keep) * g
        move = step_size * self._v
        keep = self._keep(self.steps + 1)
        ahead = -(keep / (1 - keep)) * move
        change: Array = self._lead + move - ahead
        self._lead = ahead
        return change

    def _keep(self, k: int) -> float:
        """Return q_k, the root of q^2 / (c (k - 1)) + (1 - q)^2 = 1 / (c k)."""
        c = self._tail
        if c * (k - 1) < 1:
            return 0.0
        return (c * (k - 1) - math.sqrt((1 - c) * (k - 1) / k)) / (1 + c * (k - 1))
