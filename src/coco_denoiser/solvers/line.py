"""Exact multipliers of points on a line, whose bounds may differ by any number of decades.

The method is in `_core/line.pxi`. It has no iterations, and is tried first where it applies.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64


def applies(problem: Problem) -> bool:
    """Return whether points and residuals lie on a line, and every pair is constrained."""
    return problem.residuals.shape[1] == 1 and _multipliers(problem) is not None


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations: none."""
    del tol, max_iter
    found = _multipliers(problem)
    return np.zeros_like(problem.bounds) if found is None else found, 0


def _multipliers(problem: Problem) -> Float64 | None:
    return kernels.line_multipliers(problem.residuals, problem.bounds, problem.precisions)
