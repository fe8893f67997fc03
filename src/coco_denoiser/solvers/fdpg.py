"""The paper's Algorithm 1: the fast dual proximal gradient method, matrix-free.

Minimises over one dual vector s_e for each pair e = (m, l)

    1/2 ||B s||^2 + sum_e (rho_e ||s_e|| - <s_e, h_m - h_l>),

where B s adds s_e to m and takes it from l, in the norm of the noise. With phi = h - B s, a
step is: go to u = y + phi_m - phi_l over K for each pair, then shorten u by rho / K. K is the
largest eigenvalue of the dual's quadratic form, the pairs being a complete graph's edges.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem, stationary
from coco_denoiser.typing import Float64


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero. The dual vectors start as
            lam (phi_m - phi_l), of its start.
        tol: relative duality gap to reach.
        max_iter: limit on the iterations.
    """
    multipliers, h = np.zeros_like(problem.bounds), np.ascontiguousarray(problem.residuals)
    first, second = np.triu_indices(len(multipliers), 1)
    s = np.zeros((first.size, h.shape[1]))
    if problem.start is not None:
        phi = stationary(problem.start, problem)
        s = problem.start[first, second, None] * (phi[first] - phi[second])
    # The multipliers are one step behind the dual vectors: aim lower.
    given = h, problem.bounds, problem.table, s, 0.02 * tol, max_iter
    iterations = kernels.fdpg(*given, restart=True)
    multipliers[first, second] = np.linalg.norm(s, axis=1) / problem.bounds[first, second]
    return multipliers + multipliers.T, iterations
