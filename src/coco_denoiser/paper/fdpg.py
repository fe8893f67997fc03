"""The paper's Algorithm 1, iteration by iteration, from any dual vectors.

The method is that of `coco_denoiser.solvers.fdpg`.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64


def iterate(
    problem: Problem,
    *,
    tol: float,
    max_iter: int,
    dual: Float64 | None = None,
    restart: bool = True,
) -> tuple[Float64, int, Float64]:
    """Run the method; return the dual vectors, the iterations, and the dual objective at each.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach; 0 runs all iterations.
        max_iter: limit on the iterations.
        dual: (pairs, q), where to start, in the order of `numpy.triu_indices(K, 1)`; zero if
            None. The paper's warm start passes what the last window ended with.
        restart: drop the momentum when it points uphill; False is the paper's method to the
            letter.
    """
    K, q = problem.residuals.shape
    s = np.zeros((K * (K - 1) // 2, q)) if dual is None else np.ascontiguousarray(dual).copy()
    history = np.empty(max_iter + 1)
    h = np.ascontiguousarray(problem.residuals)
    given = h, problem.bounds, problem.table, s, tol, max_iter, restart
    iterations = kernels.fdpg(*given, history)
    return s, iterations, history[: iterations + 1]
