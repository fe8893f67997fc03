"""An ordinary window in three compiled calls: its multipliers, its weights, its certificate.

Ordinary is a window of which no two points coincide, of a size at which systems over pairs are
factorised, and which Newton's method solves. All others are told by their certificate, and left
to the loop that tries one method after another.
"""

import math

from coco_denoiser.certificate import certify_plain
from coco_denoiser.constraints.averages import weights_and_phi
from coco_denoiser.solvers.newton import multipliers_of
from coco_denoiser.typing import Float64


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
    lam, iterations = multipliers_of(h, bounds, n, tol, max_iter)
    W, phi = weights_and_phi(lam, h, bounds, n)
    gap, violation = certify_plain(h, bounds, n, phi, lam)
    return W, phi, lam, gap if iterations >= 0 else math.inf, violation, iterations
