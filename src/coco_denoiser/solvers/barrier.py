"""Exact multipliers of a hard window by an interior-point method whose iterates obey all bounds.

The method is in `_core/barrier.pxi`. Its linear system has K q unknowns, however many pairs there
are.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64

STEPS: int = kernels.CONSTANTS["PATH"]


def multiplications(problem: Problem) -> float:
    """Return how many a step takes, about."""
    K, q = problem.residuals.shape
    return float(K * (min(K, q) if problem.isotropic else q)) ** 3 / 6.0


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on Newton's steps.
    """
    h, n, shares = problem.residuals, problem.precisions, problem.coordinate_precisions
    if problem.isotropic and h.shape[1] > len(h):
        h = np.asarray(np.linalg.qr(h.T, mode="r")).T
        shares = shares[: len(h)]
    h = np.ascontiguousarray(h)
    given = h, problem.bounds, n, shares, tol, max_iter, 0.1 * tol, "barrier"
    _, _, multipliers, steps, *_ = kernels.solve(*given)
    return multipliers, steps
