"""How good an answer is, from the definition of the problem alone.

For any feasible phi and any forces y_e on the pairs, weak duality says that the objective at
phi exceeds its minimum by at most

    gap = 1/2 sum_i ||f_i||^2 / n_i + sum_e (rho_e ||y_e|| - <y_e, v_e>),

where f_i = n_i (h_i - phi_i) - sum of the forces on i, and v_e = phi_m - phi_l. Every term is
non-negative, so nothing cancels. A distance is known up to ROUNDING, so rho_e ||y_e|| is known
up to ROUNDING ||y_e||, which is forgiven: else no answer to a window whose bounds are barely
broken would pass. The multipliers give the forces: y_e = lam_e (v_e + u_m - u_l),
where u makes up for the rounding of phi, which large multipliers would magnify. Any forces
would do for a valid bound. No solver uses this file.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser._linalg import solve_large_laplacian
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.typing import Float64


def certify(window: Window, weights: Float64, multipliers: Float64) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of phi = weights·h.

    A pair whose bound is infinite is free, and no part of the problem.

    Args:
        window: K residuals and their bounds.
        weights: (K, K), the answer.
        multipliers: (K, K), symmetric; infinite for pairs that move as one.
    """
    h, n = window.residuals, window.precisions
    phi, force, u, value = _forces(h, n, weights, multipliers)
    solve_large_laplacian(np.minimum(multipliers, 1e30), n.copy(), u, h.shape[1])
    gap, violation = _certify(phi, force, u, window.bounds, multipliers, n)
    return relative(gap, value), violation


def relative(gap: float, value: float) -> float:
    """Return a gap relative to the objective; what is not a number certifies nothing."""
    if gap == 0.0:
        return 0.0
    return gap / value if gap > 0.0 and value > 0.0 else np.inf


@kernel
def _forces(
    h: Float64, n: Float64, W: Float64, lam: Float64
) -> tuple[Float64, Float64, Float64, float]:
    """Return phi, the forces that hold it, what the forces lam v leave of them, and its value."""
    K, q = h.shape
    phi, force, u = np.zeros((K, q)), np.empty((K, q)), np.empty((K, q))
    value = 0.0
    for i in range(K):
        for j in range(K):
            for c in range(q):
                phi[i, c] += W[i, j] * h[j, c]
        for c in range(q):
            force[i, c] = n[i] * (h[i, c] - phi[i, c])
            u[i, c] = force[i, c]
            value += 0.5 * n[i] * (h[i, c] - phi[i, c]) ** 2
    for i in range(K):
        for j in range(i):
            if np.isfinite(lam[i, j]):
                for c in range(q):
                    y = lam[i, j] * (phi[i, c] - phi[j, c])
                    u[i, c] -= y
                    u[j, c] += y
    return phi, force, u, value


@kernel
def _certify(
    phi: Float64, force: Float64, u: Float64, bounds: Float64, lam: Float64, n: Float64
) -> tuple[float, float]:
    """Return the gap and the violation; `force` is used up."""
    K, q = phi.shape
    gap, violation = 0.0, 0.0
    for i in range(K):
        for j in range(i):
            squared, strength, work = 0.0, 0.0, 0.0
            for c in range(q):
                v = phi[i, c] - phi[j, c]
                squared += v * v
                if np.isfinite(lam[i, j]):
                    y = lam[i, j] * (v + u[i, c] - u[j, c])
                    strength += y * y
                    work += y * v
                    force[i, c] -= y
                    force[j, c] += y
            if strength > 0.0:  # a pair that is free has no force, and an infinite bound
                gap += _unbalanced(bounds[i, j], np.sqrt(strength), work)
            excess = np.sqrt(squared) - bounds[i, j]
            if excess > 2.0 * ROUNDING:  # once for the answer, once for this sum
                violation = max(violation, excess / (bounds[i, j] + ROUNDING))
    for i in range(K):
        gap += _remainder(phi, force, bounds, lam, i) + _imbalance(force, lam, n, i) / n[i]
    return gap, violation


@subroutine
def _imbalance(force: Float64, lam: Float64, n: Float64, i: int) -> float:
    """Return half the square of the mean force on the group that i moves with."""
    total = 0.0
    for c in range(force.shape[1]):
        mean, size = force[i, c], 1
        for j in range(lam.shape[0]):
            if j != i and np.isinf(lam[i, j]):
                mean += force[j, c]
                size += 1
        total += 0.5 * (mean / size) ** 2
    return total if total > 0.5 * (ROUNDING * n[i]) ** 2 else 0.0


@subroutine
def _remainder(phi: Float64, force: Float64, bounds: Float64, lam: Float64, i: int) -> float:
    """Return what it costs to balance the forces inside a group by one between every two."""
    size = 1
    for j in range(lam.shape[0]):
        if j != i and np.isinf(lam[i, j]):
            size += 1
    total = 0.0
    for j in range(i):
        if np.isinf(lam[i, j]):
            squared, work = 0.0, 0.0
            for c in range(force.shape[1]):
                y = (force[i, c] - force[j, c]) / size
                squared += y * y
                work += y * (phi[i, c] - phi[j, c])
            total += _unbalanced(bounds[i, j], np.sqrt(squared), work)
    return total


@subroutine
def _unbalanced(bound: float, strength: float, work: float) -> float:
    """Return rho ||y|| - <y, v>, as far as rounding does not explain it."""
    return max(abs(bound * strength - work) - ROUNDING * strength, 0.0)
