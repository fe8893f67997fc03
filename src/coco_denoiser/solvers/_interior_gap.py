"""How far an iterate of the interior-point method is from the end: distances, and the gap.

The letters are those of interior_point.py.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser.geometry import ROUNDING
from coco_denoiser.typing import Float64, Int64


@kernel
def ratios(first: Int64, second: Int64, rho: Float64, phi: Float64, q: int, w: Float64) -> float:
    """Fill w with the pairs' distances; return the largest ratio of distance to bound."""
    worst = 0.0
    for e in range(w.size):
        i, j = first[e], second[e]
        total = 0.0
        for c in range(q):
            v = phi[i, c] - phi[j, c]
            total += v * v
        w[e] = np.sqrt(total)
        worst = max(worst, w[e] / rho[e])
    return worst


@kernel
def rounded_ratio(
    first: Int64,
    second: Int64,
    rho: Float64,
    h: Float64,
    hat: Float64,
    w: Float64,
    lost: Float64,
) -> float:
    """Do what `ratios` does, and also fill in how much of each distance may be rounding.

    It is relative to the two points of a pair, not to the largest of all: next to one that is
    far away, the others still have all their digits.
    """
    size, worst = sizes(h, hat), 0.0
    for e in range(w.size):
        i, j = first[e], second[e]
        total = 0.0
        for c in range(h.shape[1]):
            v = hat[i, c] - hat[j, c]
            total += v * v
        w[e] = np.sqrt(total)
        lost[e] = ROUNDING * min(1.0, size[i] + size[j])
        worst = max(worst, (w[e] - lost[e]) / rho[e])
    return worst


@subroutine
def sizes(h: Float64, hat: Float64) -> Float64:
    """Return how large each residual is, as observed or as it has become."""
    K, q = h.shape
    size = np.zeros(K)
    for i in range(K):
        for c in range(q):
            size[i] += abs(hat[i, c]) + abs(h[i, c] - hat[i, c])
    return size


@kernel
def duality_gap(
    h: Float64,
    n: Float64,
    rho: Float64,
    lam: Float64,
    w: Float64,
    lost: Float64,
    hat: Float64,
    worst: float,
) -> tuple[float, float, float]:
    """Return the duality gap of hat, shrunk until every pair fits, and the objective there.

    The third is the objective at hat itself, which is far less where a residual is far away.
    """
    shrink = 1.0 / max(worst, 1.0)
    spread, value, loss = 0.0, 0.0, 0.0
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            spread += n[i] * hat[i, c] ** 2
            loss += n[i] * (hat[i, c] - h[i, c]) ** 2
            value += n[i] * (shrink * hat[i, c] - h[i, c]) ** 2
    gap = 0.5 * (1.0 - shrink) ** 2 * spread
    for e in range(lam.size):
        slack = abs(rho[e] - shrink * w[e]) - 0.5 * lost[e]
        gap += lam[e] * w[e] * max(slack, 0.0)
    return gap, 0.5 * value, 0.5 * loss
