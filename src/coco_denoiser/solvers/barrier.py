"""Exact multipliers of a hard window: Newton's method on a barrier, from inside the bounds.

For tau -> 0, the method minimises

    F(phi) = 1/2 sum_i n_i ||phi_i - h_i||^2 - tau sum_e log s_e,

which is convex and self-concordant: Newton's steps, halved while F does not fall, lead to its
minimum from everywhere. The multipliers are unknowns too (lam s = tau, linearised), so that tau
may fall to a tenth at once.

The choice of unknowns saves the digits: a point is its parent in a tree plus a difference of its
own, in units of their bound. So near points lose nothing to where they are. And a parent is known
at least as precisely as its children, so that no small force is added to a large one.

The linear system has K q unknowns, however many pairs there are. `_core/barrier.pxi` is the code.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64

STEPS: int = kernels.CONSTANTS["PATH"]


def multiplications(problem: Problem) -> float:
    """Return how many a step takes, about."""
    K, q = problem.residuals.shape
    return float(K * min(K, q)) ** 3 / 6.0


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on Newton's steps.
    """
    h = problem.residuals
    if h.shape[1] > len(h):
        h = np.ascontiguousarray(np.asarray(np.linalg.qr(h.T, mode="r")).T)
    given = h, problem.bounds, problem.precisions, tol, max_iter, 0.1 * tol, "barrier"
    _, _, multipliers, steps, *_ = kernels.solve(*given)
    return multipliers, steps
