"""Averaging without its slow start, and without knowing the horizon in advance."""

import numpy as np

from coco_denoiser.optimizers.momentum import WithMomentum
from coco_denoiser.typing import Array


class ScheduleFree(WithMomentum):
    r"""Ask between the fast iterate z and its average x (Defazio et al., 2024).

    $$\begin{align*}
    y_k &= (1 - \beta)\, z_k + \beta x_k && \text{where the gradient is asked for} \\
    z_{k+1} &= z_k - \gamma\, g(y_k) \\
    x_{k+1} &= (1 - 1/k)\, x_k + z_{k+1} / k
    \end{align*}$$

    The points that `step` takes and returns, and that a denoiser sees, are the $y_k$; `answer`
    gives the $x_k$. beta=0 is SGD with the average of all iterates but the first, and beta near
    1 asks at the average itself.
    """

    def forget(self) -> None:
        """Start with z = x = y."""
        self._apart: Array | None = None  # z - x

    def answer(self, x: Array) -> Array:
        """Return $x_k$ for the point $y_k$ where the next gradient is due."""
        return x.copy() if self._apart is None else x - (1 - self._beta) * self._apart

    def increment(self, g: Array, step_size: float) -> Array:
        """Return $y_k - y_{k+1}$."""
        if self._apart is None:
            self._apart = np.zeros_like(g)
        moved = self._apart - step_size * g
        apart = (1 - 1 / self.steps) * moved
        change: Array = (1 - self._beta) * (self._apart - apart) - moved / self.steps
        self._apart = apart
        return change
