"""How good an answer is, from the definition of the problem alone. No solver uses this file.

For any feasible phi and any forces y_e on the pairs, weak duality says that the objective at
phi exceeds its minimum by at most

    gap = 1/2 sum_i ||f_i||^2 / n_i + sum_e (rho_e ||y_e|| - <y_e, v_e>),

where f_i = n_i (h_i - phi_i) - sum of the forces on i, and v_e = phi_m - phi_l. Every term is
non-negative, so nothing cancels. A distance is known up to ROUNDING times the size of its two
points, and rho_e ||y_e|| up to that times ||y_e||. That much is forgiven; otherwise no answer to a
window whose bounds are barely broken would pass. The multipliers give the forces:
y_e = lam_e (v_e + u_m - u_l), where u makes up for the rounding of phi, which large multipliers
would magnify. Any forces would do for a valid bound.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel
from coco_denoiser._linalg import MANY, solve_laplacian
from coco_denoiser.problem import ROUNDING, Problem, response, rounding_sizes
from coco_denoiser.typing import Float64


def certify(problem: Problem, phi: Float64, multipliers: Float64) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of an answer.

    A pair whose bound is infinite is not part of the problem.

    Args:
        problem: K residuals and what is asked of them.
        phi: (K, q), the residuals of the answer.
        multipliers: (K, K), symmetric; infinite for pairs that move as one.
    """
    h = problem.residuals
    if problem.isotropic and len(phi) < MANY:
        return certify_plain(h, problem.bounds, problem.precisions, phi, multipliers)
    n = problem.table
    value = 0.5 * float(np.sum(n * (phi - h) ** 2))
    force, rest = _forces(h, n, phi, multipliers)
    u = response(np.minimum(multipliers, 1e30), problem, rest)
    gap, violation = _pairs(h, phi, force, u, problem.bounds, multipliers, n)
    return _relative(gap, value), violation


@kernel
def certify_plain(
    h: Float64, bounds: Float64, precisions: Float64, phi: Float64, lam: Float64
) -> tuple[float, float]:
    """Do what `certify` does, in one call, for pairwise bounds and the same noise everywhere."""
    K, q = h.shape
    n, pull, value = np.empty((K, q)), np.empty((K, K)), 0.0
    for i in range(K):
        for c in range(q):
            n[i, c] = precisions[i]
            move = phi[i, c] - h[i, c]
            value += 0.5 * n[i, c] * move * move
        for j in range(K):
            pull[i, j] = min(lam[i, j], 1e30)
    force, u = _forces(h, n, phi, lam)
    solve_laplacian(pull, precisions.copy(), u)
    gap, violation = _pairs(h, phi, force, u, bounds, lam, n)
    return _relative(gap, value), violation


@fragment
def _relative(gap: float, value: float) -> float:
    """Return the gap relative to the objective: an answer that is not a number has none."""
    if gap == 0.0 and value >= 0.0:
        return 0.0
    return gap / value if gap > 0.0 and value > 0.0 else np.inf


@fragment
def _forces(h: Float64, n: Float64, phi: Float64, lam: Float64) -> tuple[Float64, Float64]:
    """Return the forces that hold phi, (K, q), and what the forces lam v leave of them."""
    K, q = h.shape
    force, rest = np.empty((K, q)), np.empty((K, q))
    for i in range(K):
        for c in range(q):
            force[i, c] = n[i, c] * (h[i, c] - phi[i, c])
            rest[i, c] = force[i, c]
    for i in range(K):
        for j in range(i):
            if lam[i, j] != 0.0 and np.isfinite(lam[i, j]):
                for c in range(q):
                    y = lam[i, j] * (phi[i, c] - phi[j, c])
                    rest[i, c] -= y
                    rest[j, c] += y
    return force, rest


@fragment
def _pairs(
    h: Float64,
    phi: Float64,
    force: Float64,
    u: Float64,
    bounds: Float64,
    lam: Float64,
    n: Float64,
) -> tuple[float, float]:
    """Return the gap and the violation; `force` is used up."""
    K, q = phi.shape
    gap, violation = 0.0, 0.0
    near, size = np.zeros(K), rounding_sizes(phi, h)
    for i in range(K):
        for c in range(q):
            near[i] += 2.0 * (abs(phi[i, c]) + abs(force[i, c]) / n[i, c])
    for i in range(K):
        for j in range(i):
            squared, strength, work = 0.0, 0.0, 0.0
            pulled = lam[i, j] != 0.0 and np.isfinite(lam[i, j])
            for c in range(q):
                v = phi[i, c] - phi[j, c]
                squared += v * v
                if pulled:
                    y = lam[i, j] * (v + u[i, c] - u[j, c])
                    strength += y * y
                    work += y * v
                    force[i, c] -= y
                    force[j, c] += y
            if strength > 0.0:  # a pair that is free has no force, and an infinite bound
                gap += _unbalanced(bounds[i, j], np.sqrt(strength), work, near[i] + near[j])
            excess, lost = np.sqrt(squared) - bounds[i, j], ROUNDING * min(1.0, size[i] + size[j])
            if excess > 2.0 * lost:  # once for the answer, once for this sum
                violation = max(violation, excess / (bounds[i, j] + lost))
    for i in range(K):
        gap += _unforced(phi, force, bounds, lam, n, near, i)
    return gap, violation


@fragment
def _unforced(
    phi: Float64, force: Float64, bounds: Float64, lam: Float64, n: Float64, near: Float64, i: int
) -> float:
    """Return the cost of the force on i that no multiplier accounts for.

    Among points that move as one, a force for each pair balances all but the mean; that is
    unbalanced, unless it is rounding.
    """
    K, q = phi.shape
    total, size = 0.0, 1
    for j in range(K):
        if j != i and np.isinf(lam[i, j]):
            size += 1
    for c in range(q):
        mean = force[i, c]
        if size > 1:
            for j in range(K):
                if j != i and np.isinf(lam[i, j]):
                    mean += force[j, c]
        mean /= size
        if abs(mean) > ROUNDING * n[i, c]:
            total += 0.5 * mean * mean / n[i, c]
    if size > 1:
        for j in range(i):
            if np.isinf(lam[i, j]):
                squared, work = 0.0, 0.0
                for c in range(q):
                    y = (force[i, c] - force[j, c]) / size
                    squared += y * y
                    work += y * (phi[i, c] - phi[j, c])
                total += _unbalanced(bounds[i, j], np.sqrt(squared), work, near[i] + near[j])
    return total


@fragment
def _unbalanced(bound: float, strength: float, work: float, size: float) -> float:
    """Return rho ||y|| - <y, v>, as far as the rounding of two points of this size allows."""
    return max(abs(bound * strength - work) - ROUNDING * min(1.0, size) * strength, 0.0)
