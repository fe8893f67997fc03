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

import math

import numpy as np

from coco_denoiser._jit import kernel
from coco_denoiser._linalg import MANY
from coco_denoiser.problem import NONE, ROUNDING, Problem, response
from coco_denoiser.typing import Float64


def certify(problem: Problem, phi: Float64, multipliers: Float64) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of an answer.

    A pair whose bound is infinite is not part of the problem.

    Args:
        problem: K residuals and what is asked of them.
        phi: (K, q), the residuals of the answer.
        multipliers: (K, K), symmetric; infinite for pairs that move as one.
    """
    h, u = problem.residuals, NONE
    if not problem.isotropic or len(phi) >= MANY:
        finite = np.where(np.isinf(multipliers), 0.0, multipliers)
        held = [lam @ (own - phi) for lam, own in zip(finite, phi, strict=True)]
        rest = problem.table * (h - phi) - np.array(held)
        u = response(np.minimum(multipliers, 1e30), problem, rest)
    n, shares = problem.precisions, problem.coordinate_precisions
    return certify_tables(h, problem.bounds, n, shares, phi, multipliers, u)


@kernel
def certify_tables(  # noqa: C901, PLR0912
    h: Float64,
    bounds: Float64,
    precisions: Float64,
    shares: Float64,
    phi: Float64,
    lam: Float64,
    given: Float64,
) -> tuple[float, float]:
    """Do what `certify` does, given u, or NONE where the noise is the same in all directions.

    There are as many coordinates as shares; h and phi may have room for more.

    One function without callees: in parts it would take twice as long to compile.
    """
    K, q = h.shape[0], shares.size
    force, u, A = np.empty((K, q)), np.empty((K, q)), np.empty((K, q + 1 + K))
    size, pivot, mean = np.empty(K), np.empty(K), np.empty(q)
    gap, violation, value = 0.0, 0.0, 0.0
    for i in range(K):
        row, size[i] = A[i], 0.0
        for c in range(q):
            move = h[i, c] - phi[i, c]
            force[i, c] = row[c] = precisions[i] * shares[c] * move
            value += 0.5 * force[i, c] * move
            size[i] += abs(phi[i, c]) + abs(move)  # what the rounding of i is relative to
        row[q] = precisions[i]
        for j in range(K):
            row[q + 1 + j] = min(lam[i, j], 1e30)
            if given.size == 0 and lam[i, j] != 0.0 and lam[i, j] < np.inf:
                for c in range(q):
                    row[c] -= lam[i, j] * (phi[i, c] - phi[j, c])
    # u = (N + Laplacian)^-1 of what the forces lam v leave, as in newton.py.
    for i in range(K - 1, -1, -1):
        row, total = A[i], 0.0
        for k in range(i + 1, K):
            other, f = A[k], A[k, q + 1 + i] * pivot[k]
            for j in range(q + 1 + i):
                row[j] += f * other[j]
        for j in range(q, q + 1 + i):
            total += row[j]
        pivot[i] = 1.0 / total
    for i in range(K):
        for c in range(q):
            f = A[i, c]
            for k in range(i):
                f += A[i, q + 1 + k] * u[k, c]
            u[i, c] = f * pivot[i] if given.size == 0 else given[i, c]
    # Comparisons are such that what is not a number counts against the answer.
    for i in range(K):
        for j in range(i):
            squared, strength, work = 0.0, 0.0, 0.0
            for c in range(q):
                v = phi[i, c] - phi[j, c]
                squared += v * v
            lost = ROUNDING * min(1.0, size[i] + size[j])
            excess = math.sqrt(squared) - bounds[i, j]
            if not excess <= 2.0 * lost:  # once for the answer, once for this sum
                violation = max(violation, excess / (bounds[i, j] + lost))
            if lam[i, j] != 0.0 and lam[i, j] < np.inf:
                for c in range(q):
                    v = phi[i, c] - phi[j, c]
                    y = lam[i, j] * (v + (u[i, c] - u[j, c]))
                    strength += y * y
                    work += y * v
                    force[i, c] -= y
                    force[j, c] += y
                strength = math.sqrt(strength)
                known = ROUNDING * min(1.0, 2.0 * (size[i] + size[j]))
                slack = abs(bounds[i, j] * strength - work) - known * strength
                if not slack <= 0.0:
                    gap += slack
    # The force on i that no multiplier accounts for. Among points that move as one, a force for
    # each pair balances all but the mean; that is unbalanced, unless it is rounding.
    for i in range(K):
        count = 1
        for c in range(q):
            mean[c] = force[i, c]
        for j in range(K):
            if lam[i, j] == np.inf:
                count += 1
                for c in range(q):
                    mean[c] += force[j, c]
        for c in range(q):
            f, n = mean[c] / count, precisions[i] * shares[c]
            if not abs(f) <= ROUNDING * n:
                gap += 0.5 * f * f / n
        for j in range(i):
            if lam[i, j] == np.inf:
                strength, work = 0.0, 0.0
                for c in range(q):
                    y = (force[i, c] - force[j, c]) / count
                    strength += y * y
                    work += y * (phi[i, c] - phi[j, c])
                strength = math.sqrt(strength)
                known = ROUNDING * min(1.0, 2.0 * (size[i] + size[j]))
                slack = abs(bounds[i, j] * strength - work) - known * strength
                if not slack <= 0.0:
                    gap += slack
    if gap == 0.0 and value >= 0.0:
        return 0.0, violation
    return gap / value if gap > 0.0 and value > 0.0 else np.inf, violation
