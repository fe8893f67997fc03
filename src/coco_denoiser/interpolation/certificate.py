"""How good an answer is, from the definition of the problem alone.

For any feasible phi and E and any multipliers a_ij >= 0 of the ordered pairs, the objective
exceeds its minimum by at most

    gap = sum_ij a_ij slack_ij + 1/2 sum_c <e_c, (N + Laplacian)^-1 e_c> + 1/2 sum_i u_i^2 / m_i,

where slack_ij = ||X_i - X_j||^2 - ||phi_i - phi_j||^2 - s_ij, the Laplacian is that of
2 (a_ij + a_ji), and e (K, q) and u (K,) are the gradients of the Lagrangian in phi and in E:
the Lagrangian is quadratic, so its minimum is that far below. Every term is non-negative.
Values that were not observed enter linearly, and u must vanish: the multipliers that flow into
a point must equal those that flow out of it. No method uses this file.
"""

import numpy as np

from coco_denoiser._linalg import solve_laplacian
from coco_denoiser.certificate import relative
from coco_denoiser.geometry import ROUNDING
from coco_denoiser.interpolation.problem import Problem, excess, rounding
from coco_denoiser.typing import Float64


def certify(problem: Problem, phi: Float64, E: Float64, multipliers: Float64) -> float:
    """Return the relative duality gap of (phi, E).

    Args:
        problem: residuals, points and perhaps values; no two points coincide.
        phi: (K, q), feasible.
        E: (K,), feasible with phi.
        multipliers: (K, K), non-negative; any would do for a valid bound.
    """
    n, m, X = problem.precisions, problem.value_precisions, problem.points
    away = phi - problem.residuals
    value = 0.5 * float(n @ (away * away).sum(axis=1) + m @ (E - problem.values) ** 2)
    a = multipliers if problem.observed else balanced(multipliers)
    squared, s, bound = excess(problem, phi, E)
    # As for the pairs' bounds: a distance is known up to ROUNDING.
    slack = np.maximum(np.abs(bound - squared - s) - 2.0 * ROUNDING * np.sqrt(bound), 0.0)
    gap = float(np.sum(a * slack))
    pull, flow = 2.0 * (a + a.T), a - a.T
    e = n[:, None] * away + pull.sum(axis=1)[:, None] * phi - pull @ phi
    e += 2.0 * (flow.sum(axis=1)[:, None] * X - flow @ X)
    solved = e.copy()
    solve_laplacian(pull.copy(), n.copy(), solved, e.shape[1])
    gap += 0.5 * float(np.sum(e * solved))
    if problem.observed:
        u = m * (E - problem.values) - flow.sum(axis=1)
        gap += 0.5 * float(np.sum(u * u / m))
    return relative(gap, value)


def violation(problem: Problem, phi: Float64, E: Float64) -> float:
    """Return the worst excess of a pair over ||X_i - X_j||^2, relative to that."""
    squared, s, bound = excess(problem, phi, E)
    over, forgiven = squared + s - bound, rounding(problem, phi, E)
    worst = np.zeros_like(over)
    np.divide(over, bound + forgiven, out=worst, where=over > forgiven)
    return float(worst.max())


def balanced(multipliers: Float64) -> Float64:
    """Return multipliers with equal flow into and out of every point, changed as little as can be.

    The missing flow takes the ways that carry most already, as a current does; what little
    goes against the multipliers is then added the other way round.
    """
    a = multipliers
    K = len(a)
    if K < 2:
        return a
    lacking = a.sum(axis=0) - a.sum(axis=1)
    ways = a + a.T
    ways = ways + 1e-12 * ways.max() + np.finfo(float).tiny
    np.fill_diagonal(ways, 0.0)
    laplacian = np.diag(ways.sum(axis=1)) - ways
    potential = np.zeros(K)
    potential[1:] = np.linalg.lstsq(laplacian[1:, 1:], lacking[1:], rcond=None)[0]
    a = a + np.maximum(ways * (potential[:, None] - potential), 0.0)
    # What rounding left, over all ways alike.
    lacking = a.sum(axis=0) - a.sum(axis=1)
    return np.asarray(a + np.maximum(lacking[:, None] - lacking, 0.0) / K)
