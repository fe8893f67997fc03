"""Exact multipliers of one window by a primal-dual interior-point method on small tables.

Solves, for K residuals h_i, precisions n_i and bounds rho_ml,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Letters: v_e = phi_m - phi_l for a pair e = (m, l), w_e its length at the stationary residuals,
s_e = (rho_e^2 - ||v_e||^2) / 2 its slack, lam_e its multiplier, B the map from forces on pairs
to forces on points, M = (diag(n) + Laplacian(lam))^-1, and hat = M diag(n) h, the residuals
that are stationary for lam. The path is lam_e s_e = tau omega_e, tau -> 0. What a multiplier is
measured by is soft_e, the precision with which the two points know their difference: where
precisions differ by orders of magnitude, multipliers do.

1. A few multiplicative rounds find out which pairs matter, as in newton.py.
2. Predictor-corrector steps in (phi, lam, s). phi is kept apart from hat: with phi = hat the
   tight pairs make every step too long. Pairs whose slack dominates are solved for one by one,
   so that the linear system is about as large as the active set.

Arrays come one by one and are indexed where they lie: records of arrays and views of rows would
double the time to compile.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel, subroutine
from coco_denoiser._linalg import cholesky, substitute
from coco_denoiser.problem import Problem
from coco_denoiser.solvers.newton import (
    READY,
    distances,
    gap_and_dual,
    hessian,
    inverse_bounds,
    invert,
    multiplicative,
    start,
    stationary,
)
from coco_denoiser.typing import Float64, Int64

_START = 1.025  # how far inside its bounds step 2 starts
_FLOOR = 0.2  # a step may double the error, or lift it to this
_RIDGE = 1e-12  # on the linear system
# Multiplications that a window of K points may cost, so many times K^3, or 16^3 if that is more:
# some hundred times what it usually takes. Those of a factorisation count a quarter. The second
# number is for large windows, where it takes ten seconds or so.
ALLOWED, _MOST = 8000.0, 2.5e9
# A pair is solved for by itself if its coupling is below this share of its slack. Five times as
# much saves a few percent, and makes large hard windows run in circles more often.
_DIAGONAL = 1e-2
_NEAREST = 1e-5  # how much of a slack or a multiplier a step leaves at least


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps of the interior-point method.
    """
    allowed = min(ALLOWED * max(problem.precisions.size, 16) ** 3, _MOST)
    # Half the tolerance: the certificate is computed after a last rounding.
    return _solve(
        problem.residuals, problem.bounds, problem.precisions, 0.5 * tol, max_iter, allowed
    )


@kernel
def _solve(
    h: Float64, bounds: Float64, n: Float64, tol: float, max_iter: int, left: float
) -> tuple[Float64, int]:
    """Return the best multipliers, (K, K), and the number of steps.

    It stops where no multiplications are left.
    """
    K, q = h.shape
    table, kept, w, M = np.zeros((K, K)), np.zeros((K, K)), np.empty((K, K)), np.empty((K, K))
    A, hat, phi, dphi = (
        np.empty((K, K + 2 + q)),
        np.empty((K, q)),
        np.empty((K, q)),
        np.empty((K, q)),
    )
    inverse, _ = inverse_bounds(bounds)
    distances(h, inverse, w)
    start(bounds, inverse, n, h, w, table)
    first, second, rho, soft, excess = _pairs(bounds, inverse, n, w)
    pairs = rho.size
    lam, s, omega = np.empty(pairs), np.empty(pairs), np.empty(pairs)
    dlam, ds, target, diagonal = np.empty(pairs), np.empty(pairs), np.empty(pairs), np.empty(pairs)
    coupled = np.empty(pairs, np.int64)
    multiplicative(n, h, inverse, table, kept, A, hat, w, 0.0)
    _enter(first, second, rho, soft, table, w, hat, excess, lam, s, omega, phi)
    error = _error(first, second, rho, s, phi, hat)
    iterations, best = 0, np.inf
    while True:
        gap, dual = gap_and_dual(bounds, inverse, n, h, table, hat, w)
        if gap < best or iterations == 0:
            best = gap
            kept[:] = table
        if gap <= tol or iterations >= max_iter or not np.isfinite(error):
            break
        invert(A, M)
        na = _linearise(first, second, rho, lam, s, phi, hat, M, target, diagonal, coupled)
        chosen, cost = coupled[:na], na * na * (na / 24.0 + 3.0)
        if left < cost:
            break
        ridge, regular, U = 0.01 * _RIDGE, False, M
        while not regular and ridge < 1e-3:
            ridge *= 100.0
            left -= cost
            U = hessian(first[chosen], second[chosen], inverse, phi, M, ridge)
            for k in range(na):
                U[k, k] += s[chosen[k]] / lam[chosen[k]]
            regular = cholesky(U)
        # The dual is what the objective will be: that of an answer shrunk until every pair fits is
        # far more where a residual is far away.
        step_s, step_lam = _direction(
            lam, s, omega, chosen, U, target, diagonal, dlam, ds, 1e-3 * tol * dual
        )
        _primal_direction(first, second, phi, hat, M, dlam, dphi)
        before, sign = error, 1.0
        for _ in range(8):
            _move(lam, s, phi, dlam, ds, dphi, sign * step_s, sign * step_lam)
            _fill(first, second, lam, table)
            stationary(table, n, h, inverse, A, hat, w)
            left -= K * K * (K + q)
            error = _error(first, second, rho, s, phi, hat)
            if error <= max(2.0 * before, _FLOOR):
                break
            # The step was too long: go back half of it.
            step_s, step_lam, sign = 0.5 * step_s, 0.5 * step_lam, -1.0
        iterations += 1
    if best <= tol:
        # A pair is inactive if its slack is larger than its multiplier, each on its own scale.
        force = np.max(lam * rho)
        for e in range(pairs):
            active = lam[e] * rho[e] ** 3 > force * soft[e] * s[e]
            dlam[e] = lam[e] if active else 0.0
        _fill(first, second, dlam, table)
        stationary(table, n, h, inverse, A, hat, w)
        if gap_and_dual(bounds, inverse, n, h, table, hat, w)[0] <= 2.0 * tol:
            return table, iterations
    return kept, iterations


@subroutine
def _pairs(
    bounds: Float64, inverse: Float64, n: Float64, w: Float64
) -> tuple[Int64, Int64, Float64, Float64, float]:
    """List the pairs that are constrained; return also by how much the worst breaks its bound."""
    K, count, excess = n.size, 0, 0.0
    pairs = K * (K - 1) // 2
    first, second = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    rho, soft = np.empty(pairs), np.empty(pairs)
    for i in range(K):
        for j in range(i + 1, K):
            if inverse[i, j] > 0.0:
                first[count], second[count], rho[count] = i, j, bounds[i, j]
                soft[count] = 2.0 * n[i] * n[j] / (n[i] + n[j])
                excess = max(excess, w[i, j] - bounds[i, j])
                count += 1
    return first[:count], second[:count], rho[:count], soft[:count], excess


@subroutine
def _enter(
    first: Int64,
    second: Int64,
    rho: Float64,
    soft: Float64,
    table: Float64,
    w: Float64,
    hat: Float64,
    excess: float,
    lam: Float64,
    s: Float64,
    omega: Float64,
    phi: Float64,
) -> None:
    """Fill lam, s, omega and phi, with which step 2 starts a little inside the bounds.

    How far inside depends on by how much they are broken: long bounds that are barely broken
    would else take a step for every decade in between.
    """
    worst, force = 0.0, 0.0
    for e in range(rho.size):
        lam[e] = table[first[e], second[e]]
        worst = max(worst, w[first[e], second[e]] / rho[e])
        force = max(force, lam[e] * rho[e])
    shrink = 1.0 + (min(1.0, 1.0 / (_START * min(worst, READY))) - 1.0) * min(1.0, 10.0 * excess)
    for e in range(rho.size):
        lam[e] = max(lam[e], 1e-6 * force * soft[e] / rho[e])
        least = (1.0 - 1.0 / _START) * rho[e] * min(rho[e], excess)
        s[e] = 0.5 * max(rho[e] ** 2 - (shrink * w[first[e], second[e]]) ** 2, least)
        omega[e] = rho[e] * max(lam[e] * rho[e], 1e-3 * force * soft[e])
    for i in range(phi.shape[0]):
        for c in range(phi.shape[1]):
            phi[i, c] = shrink * hat[i, c]


@subroutine
def _fill(first: Int64, second: Int64, lam: Float64, table: Float64) -> None:
    for e in range(lam.size):
        table[first[e], second[e]] = table[second[e], first[e]] = lam[e]


@subroutine
def _linearise(
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    s: Float64,
    phi: Float64,
    hat: Float64,
    M: Float64,
    target: Float64,
    diagonal: Float64,
    coupled: Int64,
) -> int:
    """Fill the linearised slack at dlam = 0 and the Hessian's diagonal; list coupled pairs."""
    q = phi.shape[1]
    na = 0
    for e in range(rho.size):
        i, j = first[e], second[e]
        vv, vhat = 0.0, 0.0
        for c in range(q):
            v = phi[i, c] - phi[j, c]
            vv += v * v
            vhat += v * (hat[i, c] - hat[j, c])
        target[e] = 0.5 * (rho[e] * rho[e] + vv) - vhat
        curvature = (M[i, i] + M[j, j] - 2.0 * M[i, j]) * vv
        diagonal[e] = curvature + s[e] / lam[e]
        if lam[e] * curvature > _DIAGONAL * s[e]:
            coupled[na] = e
            na += 1
    return na


@fragment
def _direction(
    lam: Float64,
    s: Float64,
    omega: Float64,
    coupled: Int64,
    U: Float64,
    target: Float64,
    diagonal: Float64,
    dlam: Float64,
    ds: Float64,
    least: float,
) -> tuple[float, float]:
    """Fill dlam and ds by Mehrotra's predictor and corrector; return how far s and lam may go."""
    rhs = np.empty(coupled.size)
    mu, weight = 0.0, 0.0
    for e in range(lam.size):
        mu += lam[e] * s[e]
        weight += omega[e]
    mu /= weight
    tau, step_s, step_lam = 0.0, 1.0, 1.0
    for phase in range(2):
        for e in range(lam.size):
            second_order = dlam[e] * ds[e] if phase == 1 else 0.0
            ds[e] = (tau * omega[e] - second_order) / lam[e]
            dlam[e] = (ds[e] - target[e]) / diagonal[e]
        for k in range(coupled.size):
            rhs[k] = ds[coupled[k]] - target[coupled[k]]
        substitute(U, rhs)
        for k in range(coupled.size):
            dlam[coupled[k]] = rhs[k]
        # As close to the boundary as the path allows: 0.9 far out, 1 - mu near the end.
        keep = max(0.9, 1.0 - max(mu, _NEAREST)) if phase == 1 else 1.0
        step_s, step_lam = 1.0, 1.0
        for e in range(lam.size):
            ds[e] -= s[e] + s[e] / lam[e] * dlam[e]
            if ds[e] < 0.0:
                step_s = min(step_s, -keep * s[e] / ds[e])
            if dlam[e] < 0.0:
                step_lam = min(step_lam, -keep * lam[e] / dlam[e])
        if phase == 0:
            affine = 0.0
            for e in range(lam.size):
                affine += (lam[e] + step_lam * dlam[e]) * (s[e] + step_s * ds[e])
            # Not nearer to the end of the path than the tolerance asks for: a slack far below
            # rounding would only spoil the system.
            tau = max((affine / weight / mu) ** 3 * mu, least / weight)
    return step_s, step_lam


@fragment
def _primal_direction(
    first: Int64,
    second: Int64,
    phi: Float64,
    hat: Float64,
    M: Float64,
    dlam: Float64,
    dphi: Float64,
) -> None:
    """Fill dphi = hat - phi - M B (dlam v)."""
    K, q = phi.shape
    pull = np.zeros((K, q))
    for e in range(dlam.size):
        i, j = first[e], second[e]
        for c in range(q):
            v = dlam[e] * (phi[i, c] - phi[j, c])
            pull[i, c] += v
            pull[j, c] -= v
    for i in range(K):
        for c in range(q):
            dphi[i, c] = hat[i, c] - phi[i, c]
        for j in range(K):
            for c in range(q):
                dphi[i, c] -= M[i, j] * pull[j, c]


@subroutine
def _move(
    lam: Float64,
    s: Float64,
    phi: Float64,
    dlam: Float64,
    ds: Float64,
    dphi: Float64,
    step_s: float,
    step_lam: float,
) -> None:
    """Take a step, or a part of it back."""
    for e in range(lam.size):
        lam[e] += step_lam * dlam[e]
        s[e] += step_s * ds[e]
    for i in range(phi.shape[0]):
        for c in range(phi.shape[1]):
            phi[i, c] += step_s * dphi[i, c]


@subroutine
def _error(
    first: Int64,
    second: Int64,
    rho: Float64,
    s: Float64,
    phi: Float64,
    hat: Float64,
) -> float:
    """Return the worst relative error of the slacks and of phi against hat, over the pairs."""
    worst = 0.0
    for e in range(rho.size):
        i, j = first[e], second[e]
        vv, off = 0.0, 0.0
        for c in range(phi.shape[1]):
            v = phi[i, c] - phi[j, c]
            rest = v - hat[i, c] + hat[j, c]
            vv += v * v
            off += rest * rest
        square = rho[e] * rho[e]
        slack = abs(s[e] - 0.5 * (square - vv)) / square
        worst = max(worst, slack, np.sqrt(off / square))
    return worst
