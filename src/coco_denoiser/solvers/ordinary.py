"""An ordinary window in one compiled call: from its tables to the weights and their certificate.

Ordinary is a window of which no two points coincide, of a size at which systems over pairs are
factorised, and which Newton's method solves. All others are told by their certificate, and left
to the loop that tries one method after another.
"""

import numpy as np

from coco_denoiser._jit import kernel
from coco_denoiser.certificate import certify_plain
from coco_denoiser.constraints.averages import weights_and_phi
from coco_denoiser.geometry import COINCIDENT, reduced, worst_excess
from coco_denoiser.solvers.closed_form import multiplier
from coco_denoiser.solvers.newton import STEPS, multipliers_of
from coco_denoiser.typing import Float64


@kernel
def settle(
    h: Float64, bounds: Float64, n: Float64, tol: float, max_iter: int
) -> tuple[Float64, Float64, Float64, float, float, int]:
    """Return W (K, K), phi (K, q), multipliers (K, K), gap, violation and iterations.

    Args:
        h: (K, q), residuals.
        bounds: (K, K).
        n: (K,), precisions.
        tol: relative duality gap to reach.
        max_iter: limit on the iterations.

    Returns:
        The answer with its certificate; an infinite gap if points coincide.
    """
    K = n.size
    lam, iterations = np.zeros((K, K)), 0
    for i in range(K):
        for j in range(i):
            if bounds[i, j] <= COINCIDENT:
                return lam, h, lam, np.inf, np.inf, 0
    if worst_excess(h, bounds, 1e-12) > 0.0:
        if K == 2:
            lam[0, 1] = lam[1, 0] = multiplier(h, bounds, n)
        else:
            # Half the tolerance: the certificate is computed after a last rounding.
            lam, iterations = multipliers_of(h, bounds, n, 0.5 * tol, min(max_iter, STEPS))
    W, phi = weights_and_phi(lam, h, bounds, n)
    gap, violation = certify_plain(h, bounds, n, phi, lam)
    return W, phi, lam, gap, violation, iterations


@kernel
def newest_weights(
    points: Float64,
    distances: Float64,
    residuals: Float64,
    radius: float,
    variances: Float64,
    newest: int,
    tol: float,
) -> tuple[Float64, int, float, float]:
    """Return the weights of one observation, (K,), how many pairs are active, gap and violation.

    The window is that of `geometry.reduced`.
    """
    h, bounds, n = reduced(points, distances, residuals, radius, variances)
    W, _, lam, gap, violation, _ = settle(h, bounds, n, tol, STEPS)
    active = 0
    for i in range(n.size):
        for j in range(i):
            if lam[i, j] > 0.0:
                active += 1
    return W[newest].copy(), active, gap, violation
