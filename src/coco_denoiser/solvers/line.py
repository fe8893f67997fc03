"""Exact multipliers of points on a line, whose bounds may differ by any number of decades.

In one dimension only neighbours bound each other. With the points in order, the problem is

    minimise  1/2 sum_k n_k (phi_k - h_k)^2   subject to   |phi_k+1 - phi_k| <= rho_k,

and dynamic programming solves it. Let F_k be the least cost of the first k points as a function
of phi_k. Its derivative is increasing and piecewise linear, and zero at m_k. To allow for rho_k,
what lies to the left of m_k moves left by rho_k, the rest moves right, and between them the
derivative is zero; then point k + 1 adds n (phi - h). On the way back phi_k is m_k, clipped to
what phi_k+1 allows. The force between two points is the sum of n (h - phi) on one side of them,
and their multiplier that force over their bound.
"""

import numpy as np

from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64, Int64


def applies(problem: Problem) -> bool:
    """Return whether points and residuals lie on a line, and every pair is constrained."""
    bounds = problem.bounds
    if problem.residuals.shape[1] > 1 or np.isinf(bounds).any():
        return False
    order = _order(bounds)
    length = float(bounds[order[:-1], order[1:]].sum())
    return abs(length - float(bounds[order[0], order[-1]])) <= 1e-12 * length


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations: none."""
    del tol, max_iter
    order = _order(problem.bounds)
    h, n = problem.residuals[order, 0], problem.precisions[order]
    rho = problem.bounds[order[:-1], order[1:]]
    phi = h.copy()
    corners, values = np.empty(0), np.empty(0)  # of the derivative of F_k
    for k in range(1, h.size):
        values += n[k - 1] * (corners - h[k - 1])
        if k > 1:
            phi[k - 1] = _zero(corners, values, n[:k].sum())
        left, m, reach = np.searchsorted(values, 0.0), phi[k - 1], rho[k - 1]
        middle = m - reach, m + reach
        corners = np.concatenate((corners[:left] - reach, middle, corners[left:] + reach))
        values = np.insert(values, left, (0.0, 0.0))
    phi[-1] = _zero(corners, values + n[-1] * (corners - h[-1]), n.sum())
    side = np.zeros(h.size - 1)  # of its successor on which a point is held, if it is
    for k in range(h.size - 2, -1, -1):
        held = min(max(phi[k], phi[k + 1] - rho[k]), phi[k + 1] + rho[k])
        side[k], phi[k] = np.sign(held - phi[k]), held
    # Summed from the end that costs fewer digits.
    force, size = n * (h - phi), n * (np.abs(h) + np.abs(phi))
    ahead = np.cumsum(size)[:-1] <= np.cumsum(size[::-1])[-2::-1]
    total = np.where(ahead, np.cumsum(force)[:-1], -np.cumsum(force[::-1])[-2::-1])
    table = np.zeros_like(problem.bounds)
    table[order[:-1], order[1:]] = np.maximum(-side * total, 0.0) / rho
    return table + table.T, 0


def _order(bounds: Float64) -> Int64:
    """Return the points from one end to the other, by the distances of close ones.

    The nearest to an end of those found is the next: a point that is far away cannot tell the
    others apart.
    """
    order = [int(bounds.sum(axis=1).argmin())]
    near = bounds[order[0]].copy()
    for _ in range(len(bounds) - 1):
        near[order[0]] = near[order[-1]] = np.inf
        new = int(near.argmin())
        left = bounds[new, order[0]] < bounds[new, order[-1]]
        order.insert(0 if left else len(order), new)
        near = np.where(np.isinf(near), near, np.minimum(near, bounds[new]))
    return np.array(order)


def _zero(corners: Float64, values: Float64, steepest: float) -> float:
    """Return where a piecewise linear function is zero; beyond its corners it is steepest."""
    right = int(np.searchsorted(values, 0.0))
    k, slope = min(right, values.size - 1), steepest
    if 0 < right < values.size:
        k = right if values[right] < -values[right - 1] else right - 1
        rise, run = values[right] - values[right - 1], corners[right] - corners[right - 1]
        slope = rise / run
    return float(corners[k] - values[k] / slope)
