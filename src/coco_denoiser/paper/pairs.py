"""Many windows at once, for Monte Carlo; those of two points by the closed form of Theorem 3.1.

Both move along the line between their gradients, by the same length.
"""

import numpy as np

from coco_denoiser import denoise
from coco_denoiser.typing import Float64


def denoise_windows(points: Float64, gradients: Float64, *, L: float) -> Float64:
    """Denoise many windows one by one, (n, K, d) -> (n, K, d); their points may be the same."""
    windows = zip(np.broadcast_to(points, gradients.shape), gradients, strict=True)
    return np.stack([denoise(x, g, L=L) for x, g in windows])


def denoise_pairs(points: Float64, gradients: Float64, *, L: float) -> Float64:
    """Denoise many windows of two points at once, each by itself: (..., 2, d) -> (..., 2, d).

    Args:
        points: (..., 2, d), the two points of each window; broadcast against the gradients.
        gradients: (..., 2, d), their noisy gradients, of one variance.
        L: upper bound on the curvature, whose lower bound is 0.
    """
    dx, dg = (a[..., 0, :] - a[..., 1, :] for a in np.broadcast_arrays(points, gradients))
    dh = dg - L / 2 * dx
    rho, apart = L / 2 * np.linalg.norm(dx, axis=-1), np.linalg.norm(dh, axis=-1)
    t = np.zeros(rho.shape)
    np.divide(apart - rho, apart, out=t, where=apart > rho)
    move = t[..., None] * dh / 2
    return np.asarray(gradients - np.stack((move, -move), axis=-2))
