"""How good an answer is, from the definition of the problem alone: `_core/certificate.pxi`."""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64


def certify(problem: Problem, phi: Float64, multipliers: Float64) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of an answer.

    Args:
        problem: K residuals and what is asked of them.
        phi: (K, q), the residuals of the answer.
        multipliers: (K, K), symmetric; infinite for pairs that move as one.
    """
    n, shares = problem.precisions, problem.coordinate_precisions
    given = problem.residuals, problem.bounds, n, shares, phi, multipliers
    return kernels.certify(*map(np.ascontiguousarray, given))
