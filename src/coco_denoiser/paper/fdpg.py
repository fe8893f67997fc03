"""The paper's Algorithm 1 to the letter, or with restarts, iteration by iteration.

The method is that of `coco_denoiser.solvers.fdpg`.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64


def iterate(
    problem: Problem, *, max_iter: int, dual: Float64 | None = None, restart: bool = False
) -> tuple[Float64, Float64]:
    """Run the method; return the dual vectors, and the dual objective from the start on.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        max_iter: how many iterations.
        dual: (pairs, q), where to start, in the order of `numpy.triu_indices(K, 1)`; zero if
            None. The paper's warm start passes what the last window ended with.
        restart: drop the momentum when it points uphill, which is not the paper's.
    """
    h, n = problem.residuals, problem.precisions[:, None] * problem.coordinate_precisions
    first, second = np.triu_indices(len(h), 1)
    c, rho = h[first] - h[second], problem.bounds[first, second]
    s = np.zeros_like(c) if dual is None else np.ascontiguousarray(dual).copy()
    ends = np.eye(len(h))[:, first] - np.eye(len(h))[:, second]  # of the pairs
    method, history = kernels.Fdpg(problem, s, restart), np.empty(max_iter + 1)
    for k in range(max_iter + 1):
        pull = ends @ s
        lengths = np.linalg.norm(s, axis=1)
        history[k] = 0.5 * np.sum(pull * pull / n) + rho @ lengths - np.sum(s * c)
        if k < max_iter:
            method.iterate(1)
    return s, history
