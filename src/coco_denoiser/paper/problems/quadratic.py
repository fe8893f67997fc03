"""Quadratics with additive Gaussian noise: the problem on which COCO's assumptions hold exactly."""

from typing import Self

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.paper.problems.base import as_points
from coco_denoiser.typing import Array, ArrayLike


class Quadratic:
    r"""Minimise a convex quadratic from gradients with Gaussian noise.

    $$\operatorname{argmin}_x\ \tfrac12 (x - x^*)^\top H (x - x^*), \qquad
    \text{oracle}(x) = H (x - x^*) + N(0, \sigma^2 I)$$

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser.paper.problems import Quadratic
        >>> problem = Quadratic([1.0, 0.5], noise_std=0.1)
        >>> problem.L, problem.mu, problem.gradient(np.array([2.0, 2.0]))
        (1.0, 0.5, array([2., 1.]))

    Args:
        hessian: the eigenvalues (d,) of a diagonal $H$, or $H$ itself (d, d), symmetric and
            positive semidefinite.
        minimizer: $x^*$ (d,); the origin when left out.
        noise_std: $\sigma$, the standard deviation of the oracle's noise in every coordinate.
    """

    def __init__(
        self, hessian: ArrayLike, *, minimizer: ArrayLike | None = None, noise_std: float = 0.0
    ) -> None:
        H = check.finite_array("hessian", hessian).copy()
        if H.ndim not in (1, 2) or H.size == 0 or H.shape[0] != H.shape[-1]:
            raise ValueError(
                f"hessian must be the eigenvalues (d,) or a matrix (d, d), got shape {H.shape}."
            )
        if H.ndim == 2 and not np.allclose(H, H.T, rtol=1e-12, atol=1e-12 * np.abs(H).max()):
            raise ValueError("hessian must be symmetric; pass (H + H.T) / 2.")
        eigenvalues = H if H.ndim == 1 else np.linalg.eigvalsh(H)
        largest, smallest = float(eigenvalues.max()), float(eigenvalues.min())
        # A singular matrix may come out of eigvalsh a rounding error below zero.
        rounding = 0.0 if H.ndim == 1 else 1e-12 * abs(largest)
        if largest <= 0 or smallest < -rounding:
            raise ValueError(
                "hessian must be positive semidefinite and not zero, "
                f"got eigenvalues from {smallest} to {largest}."
            )
        given = np.zeros(len(H)) if minimizer is None else minimizer
        centre = check.finite_array("minimizer", given).copy()
        if centre.shape != (len(H),):
            raise ValueError(f"minimizer must be a vector ({len(H)},), got {minimizer!r}.")
        self.hessian = H
        self.dimension = len(H)
        self.L = largest
        self.mu = max(smallest, 0.0)
        self.minimizer = centre
        self.noise_std = check.not_negative("noise_std", noise_std)

    @classmethod
    def spaced(cls, dimension: int, *, noise_std: float = 0.0) -> Self:
        """Return the paper's synthetic problem: eigenvalues spaced evenly from 1 down to 1/3."""
        return cls(np.linspace(1.0, 1 / 3, dimension), noise_std=noise_std)

    def value(self, x: Array) -> Array:
        """Return f at one point (d,), or at each of a batch (..., d)."""
        offset = as_points(x, self.dimension) - self.minimizer
        products: Array = np.einsum("...i,...i->...", offset, self._times_hessian(offset))
        return 0.5 * products

    def gradient(self, x: Array) -> Array:
        """Return H (x - x*) at one point (d,), or at each of a batch (..., d)."""
        return self._times_hessian(as_points(x, self.dimension) - self.minimizer)

    def oracle(self, x: Array, rng: np.random.Generator) -> Array:
        """Return the gradient plus independent Gaussian noise in every coordinate."""
        gradient = self.gradient(x)
        gradient += self.noise_std * rng.standard_normal(gradient.shape)
        return gradient

    def _times_hessian(self, vectors: Array) -> Array:
        return vectors * self.hessian if self.hessian.ndim == 1 else vectors @ self.hessian
