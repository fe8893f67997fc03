"""denoise() and solve(): a batch of observations at once."""

import numpy as np
from numpy.typing import ArrayLike

from coco_denoiser import _validation as check
from coco_denoiser import geometry
from coco_denoiser.solution import Answer, ConvergenceError, Solution
from coco_denoiser.solvers import METHODS, answer
from coco_denoiser.typing import Float64


def denoise(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float,
    mu: float = 0.0,
    noise_variance: ArrayLike | None = None,
) -> Float64:
    """Project K noisy gradients onto the gradients that a smooth convex function can have.

        argmin over theta of  sum_i ||theta_i - g_i||^2 / v_i
        subject to  ||theta_m - theta_l - c (x_m - x_l)|| <= r ||x_m - x_l||  for all pairs,

    with c = (L + mu) / 2 and r = (L - mu) / 2. For mu = 0 this is co-coercivity,
    `||theta_m - theta_l||^2 <= L <theta_m - theta_l, x_m - x_l>`.

    Args:
        points: (K, d), where the gradients were observed.
        gradients: (K, d), the noisy gradients.
        L: upper bound on the curvature of the objective.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth.
        noise_variance: (K,), the noise variance v_i of each observation; None for equal ones.

    Returns:
        (K, d), the denoised gradients. For what is known about them, see `solve`.
    """
    return solve(points, gradients, L=L, mu=mu, noise_variance=noise_variance).gradients


def solve(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float,
    mu: float = 0.0,
    noise_variance: ArrayLike | None = None,
    method: str = "auto",
    tol: float = 1e-9,
    max_iter: int | None = None,
    throw: bool = True,
) -> Solution:
    """Solve the problem of `denoise`, and return the answer with its certificate.

    Args:
        points: (K, d), where the gradients were observed.
        gradients: (K, d), the noisy gradients.
        L: upper bound on the curvature of the objective.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth.
        noise_variance: (K,), the noise variance of each observation; None for equal ones.
        method: "closed-form" (two points), "interior-point" (exact), "fdpg" (the paper's),
            "conic" (Clarabel), or "auto", which picks and tells in the solution.
        tol: relative duality gap, and relative violation, to reach.
        max_iter: limit on the iterations; None leaves it to the method.
        throw: whether to raise ConvergenceError where `tol` is not reached; the solution it
            carries is what `throw=False` returns.
    """
    x, g = check.observations(points, gradients)
    L, mu = check.curvature(L, mu)
    variances = check.variances(noise_variance, len(x))
    check.one_of("method", method, ("auto", *METHODS))
    tol = check.positive("tol", tol)
    limit = check.count("max_iter", max_iter, optional=True)
    window, residuals, scale, exponent = geometry.observe(x, g, L, mu, variances)
    found = answer(window, method=method, tol=tol, max_iter=limit)
    move = scale * (found.weights @ residuals - residuals)
    if exponent:
        move = np.ldexp(move, exponent)
    solution = with_gradients(found, g + move, variances)
    if throw and not solution.status.success:
        raise ConvergenceError(solution, tol)
    return solution


def with_gradients(found: Answer, gradients: Float64, variances: Float64) -> Solution:
    """Return the solution; its multipliers refer to the variances as they were given."""
    return Solution(
        weights=found.weights,
        multipliers=found.multipliers / variances.min(),
        gap=found.gap,
        violation=found.violation,
        iterations=found.iterations,
        method=found.method,
        status=found.status,
        gradients=gradients,
    )
