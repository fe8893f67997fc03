"""Methods that carry the last estimate over by asking one sample at two points.

The difference g(x_k; xi_k) - g(x_{k-1}; xi_k) has little noise where the noise of a sample
changes slowly with x, and none if noise is added to the gradient. Two things are asked for in
return: two oracle calls per step, and an oracle that answers twice with the same noise. Here
that is the generator, set back to where it was.
"""

import numpy as np

from coco_denoiser.optimizers.adam import Adam
from coco_denoiser.optimizers.base import DenoiserLike, Optimizer
from coco_denoiser.optimizers.momentum import WithMomentum
from coco_denoiser.optimizers.schedules import StepSize
from coco_denoiser.problems.base import Oracle
from coco_denoiser.typing import Array


class _TwoPoints(Optimizer):
    """A method that remembers the last point in order to ask there once more."""

    def forget(self) -> None:
        """Drop the last point."""
        super().forget()
        self._last: Array | None = None

    def _pair(self, problem: Oracle, x: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return a sample's gradients at x and at the last x; the first step has one x only."""
        last, self._last = self._last, x.copy()
        before = rng.bit_generator.state
        g = super().estimate(problem, x, rng)
        if last is None:
            return g, g
        rng.bit_generator.state = before
        return g, super().estimate(problem, last, rng)


class STORM(_TwoPoints, WithMomentum):
    r"""Carry the estimate over to the new point (Cutkosky and Orabona, 2019).

    $$d_k = g(x_k; \xi_k) + \beta\, (d_{k-1} - g(x_{k-1}; \xi_k)), \qquad
    x_{k+1} = x_k - \gamma d_k$$

    $\beta$ is their $1 - a$, a constant here; their schedules for $a$ and $\gamma$ are not part of
    it. beta=0 is SGD. With a denoiser, it is the carried estimate that is denoised.
    """

    def forget(self) -> None:
        """Drop the last point and the estimate there."""
        super().forget()
        self._d: Array | None = None

    def estimate(self, problem: Oracle, x: Array, rng: np.random.Generator) -> Array:
        """Return $d_k$."""
        g, old = self._pair(problem, x, rng)
        self._d = g if self._d is None else g + self._beta * (self._d - old)
        return self._d.copy()


class MARS(_TwoPoints, Adam):
    r"""Adam on a gradient with a scaled correction, clipped to length 1 (Yuan et al., 2024).

    $$c_k = g(x_k; \xi_k) + \text{scale}\, \frac{\beta_1}{1 - \beta_1}
    (g(x_k; \xi_k) - g(x_{k-1}; \xi_k))$$

    This is their MARS-AdamW without weight decay, and the exact one: their cheaper variant
    takes the last step's gradient for the last term. A batch of runs is clipped run by run.
    """

    def __init__(
        self,
        step_size: StepSize,
        *,
        beta1: float = 0.95,
        beta2: float = 0.99,
        eps: float = 1e-8,
        scale: float = 0.025,
        denoiser: DenoiserLike | None = None,
    ) -> None:
        if not 0 <= scale <= 1:
            raise ValueError(f"scale must lie in [0, 1], got {scale}.")
        self._scale = float(scale)
        super().__init__(step_size, beta1=beta1, beta2=beta2, eps=eps, denoiser=denoiser)

    def estimate(self, problem: Oracle, x: Array, rng: np.random.Generator) -> Array:
        """Return $c_k$, before it is clipped."""
        g, old = self._pair(problem, x, rng)
        return g + self._scale * self._beta1 / (1 - self._beta1) * (g - old)

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        length = np.linalg.norm(g, axis=-1, keepdims=True)
        return super().increment(g / np.maximum(length, 1.0), step_size)
