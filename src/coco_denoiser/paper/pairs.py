"""Many windows at once, for Monte Carlo; those of two points by the closed form of Theorem 3.1.

Both move along the line between them, the noisier one more.
"""

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import denoise
from coco_denoiser.problem import centre_and_radius
from coco_denoiser.typing import ArrayLike, Float64


def denoise_windows(points: Float64, gradients: Float64, *, L: float) -> Float64:
    """Denoise many windows one by one, (n, K, d) -> (n, K, d); their points may be the same."""
    windows = zip(np.broadcast_to(points, gradients.shape), gradients, strict=True)
    return np.stack([denoise(x, g, L=L) for x, g in windows])


def denoise_pairs(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float,
    mu: float = 0.0,
    noise_variance: tuple[float, float] = (1.0, 1.0),
) -> Float64:
    """Denoise many windows of two points at once, each by itself: (..., 2, d) -> (..., 2, d).

    Args:
        points: (..., 2, d), the two points of each window; broadcast against the gradients.
        gradients: (..., 2, d), their noisy gradients.
        L: upper bound on the curvature.
        mu: lower bound on the curvature.
        noise_variance: variance of the first and of the second observation of a problem.
    """
    x, g = check.finite_array("points", points), check.finite_array("gradients", gradients)
    L, mu = check.curvature(L, mu)
    for name, array in (("points", x), ("gradients", g)):
        if array.ndim < 2 or array.shape[-2] != 2:
            raise ValueError(f"{name} must have shape (..., 2, d), got {array.shape}.")
    variances = check.per_row("noise_variance", noise_variance, 2)
    c, r = centre_and_radius(L, mu)
    dx = x[..., 0, :] - x[..., 1, :]
    dh = (g[..., 0, :] - g[..., 1, :]) - c * dx
    rho, apart = r * np.linalg.norm(dx, axis=-1), np.linalg.norm(dh, axis=-1)
    t = np.zeros(np.broadcast_shapes(rho.shape, apart.shape))
    np.divide(apart - rho, apart, out=t, where=apart > rho)
    a = variances / variances.sum()
    move = t[..., None] * dh
    return np.asarray(g - np.stack((a[0] * move, -a[1] * move), axis=-2))
