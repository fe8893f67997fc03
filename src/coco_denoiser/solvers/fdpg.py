"""The paper's Algorithm 1: the fast dual proximal gradient method, matrix-free.

Minimises over one dual vector s_e for each pair e = (m, l)

    1/2 ||B s||^2 + sum_e (rho_e ||s_e|| - <s_e, h_m - h_l>),

where B s adds s_e to m and takes it from l, in the norm of the noise. With phi = h - B s, a
step is: go to u = y + phi_m - phi_l over K for each pair, then shorten u by rho / K. K is the
largest eigenvalue of the dual's quadratic form, the pairs being a complete graph's edges.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64

_CHECKED = 10  # iterations after which the answer is looked at


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero. The dual vectors start as
            lam (phi_m - phi_l), of its start.
        tol: relative duality gap to reach.
        max_iter: limit on the iterations.
    """
    h, bounds, n = problem.residuals, problem.bounds, problem.precisions
    pairs = np.triu_indices(len(n), 1)
    s, rho, iterations = np.zeros((pairs[0].size, h.shape[1])), bounds[pairs], 0
    if problem.start is not None:
        laplacian = np.diag(problem.start.sum(axis=1)) - problem.start
        phi = np.linalg.solve(np.diag(n) + laplacian, n[:, None] * h)
        s = problem.start[pairs][:, None] * (phi[pairs[0]] - phi[pairs[1]])
    given = problem, s, True
    method = kernels.Fdpg(*given)
    while True:
        lam = np.zeros_like(bounds)
        lam[pairs] = np.linalg.norm(s, axis=1) / rho
        lam += lam.T
        found = kernels.average(problem, lam, 0.1 * tol)
        if max(found.gap, found.violation) <= 0.5 * tol or iterations >= max_iter:
            return lam, iterations
        count = min(_CHECKED, max_iter - iterations)
        method.iterate(count)
        iterations += count
