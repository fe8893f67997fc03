"""Exact multipliers of an ordinary window by Newton's method on the pairs at their bounds.

The method is in `_core/newton.pxi`. It takes three to five steps on ordinary windows, and may fall
short on others: the certificate tells, and another method is tried.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64

STEPS: int = kernels.CONSTANTS["STEPS"]
PIVOTS: int = kernels.CONSTANTS["PIVOTS"]
ROUNDS: int = kernels.CONSTANTS["ROUNDS"]
READY: float = kernels.CONSTANTS["READY"]
NEAR: float = kernels.CONSTANTS["NEAR"]
CARRY: float = kernels.CONSTANTS["CARRY"]
RIDGE: float = kernels.CONSTANTS["RIDGE"]


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations."""
    h, bounds, n = problem.residuals, problem.bounds, problem.precisions
    _, _, multipliers, steps, *_ = kernels.solve(h, bounds, n, None, tol, max_iter, 0.1 * tol, "newton")
    return multipliers, steps


def needed_bounds(bounds: Float64) -> Float64:
    """Return the bounds, infinite on the diagonal and for pairs that a third point implies."""
    needed = bounds.copy()
    kernels.implied_pairs(needed)
    np.fill_diagonal(needed, np.inf)
    return needed
