"""How good an answer is, from the definition of the problem alone: `_core/certificate.pxi`."""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem, response
from coco_denoiser.typing import Float64


def certify(problem: Problem, phi: Float64, multipliers: Float64) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of an answer.

    Args:
        problem: K residuals and what is asked of them.
        phi: (K, q), the residuals of the answer.
        multipliers: (K, K), symmetric; infinite for pairs that move as one.
    """
    h, u = problem.residuals, None
    if not problem.isotropic:
        finite = np.where(np.isinf(multipliers), 0.0, multipliers)
        held = [lam @ (own - phi) for lam, own in zip(finite, phi, strict=True)]
        rest = problem.table * (h - phi) - np.array(held)
        u = response(np.minimum(multipliers, 1e30), problem, rest)
    n, shares = problem.precisions, problem.coordinate_precisions
    given = h, problem.bounds, n, shares, phi, multipliers
    h, bounds, n, shares, phi, multipliers = map(np.ascontiguousarray, given)
    return kernels.certify(h, bounds, n, shares, phi, multipliers, u)
