"""Exact multipliers of one window by a primal-dual interior-point method on small tables.

Solves, for K residuals h_i, precisions n_i and bounds rho_ml,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Letters: v_e = phi_m - phi_l for a pair e = (m, l), w_e its length at the stationary residuals,
s_e = (rho_e^2 - ||v_e||^2) / 2 its slack, lam_e its multiplier, B the map from forces on pairs
to forces on points, M = (diag(n) + Laplacian(lam))^-1, and hat = M diag(n) h, the residuals
that are stationary for lam. The path is lam_e s_e = tau omega_e, tau -> 0. What a multiplier is
measured by is soft_e, the precision with which the two points know their difference: where
precisions differ by orders of magnitude, multipliers do.

1. A few multiplicative rounds, lam <- lam (w / rho)^2, find the pairs that matter.
2. Predictor-corrector steps in (phi, lam, s) on those pairs. phi is kept apart from hat:
   with phi = hat the tight pairs make every step too long. Pairs that turn out to be violated
   join; pairs whose slack dominates are solved for one by one, so that the linear system is
   about as large as the active set.
"""

import numpy as np
from numpy.typing import NDArray

from coco_denoiser._jit import fragment, kernel, subroutine
from coco_denoiser._linalg import cholesky, solve_laplacian
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.solvers._interior_step import (
    direction,
    hessian,
    linearise,
    move,
    primal_direction,
    residual,
)
from coco_denoiser.typing import Float64, Int64

# Step 1 ends when no pair exceeds its bound by more than READY, and those nearer than `near`
# alone keep all others within CARRY; or after ROUNDS, with all pairs.
ROUNDS, READY, CARRY = 60, 1.05, 1.25
_BLOCK = 128  # third points that are looked at together
_START = 1.025  # how far inside its bounds step 2 starts
# A step may double the error, or lift it to `floor`. Where bounds or precisions differ by many
# orders of magnitude, a window in a hundred runs in circles, and is begun anew: from another
# working set, with more of a ridge on the linear system, or from deeper inside its bounds, with
# multipliers so many times as large.
ATTEMPTS = (  # near, floor, ridge, depth
    (0.95, 0.2, 1e-12, 1.0),
    (0.8, 0.1, 1e-10, 1.0),
    (0.5, 0.05, 1e-8, 10.0),
    (0.5, 0.05, 1e-6, 100.0),
    (0.95, 1.0, 1e-8, 1.0),
)
STEPS = 70  # of each attempt


def solve(window: Window, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        window: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps of the interior-point method.
    """
    iterations = 0
    for near, floor, ridge, depth in ATTEMPTS:
        # Half the tolerance: the certificate is computed after a last rounding.
        multipliers, steps, solved = multipliers_of(
            window.residuals,
            window.bounds,
            window.precisions,
            0.5 * tol,
            min(max_iter - iterations, STEPS),
            near,
            floor,
            ridge,
            depth,
        )
        iterations += steps
        if solved or iterations >= max_iter:
            break
    return multipliers, iterations


@kernel
def multipliers_of(
    h: Float64,
    bounds: Float64,
    n: Float64,
    tol: float,
    max_iter: int,
    near: float,
    floor: float,
    ridge: float,
    depth: float,
) -> tuple[Float64, int, bool]:
    """Return the multipliers, (K, K), the number of steps, and whether they reach tol."""
    K, q = h.shape
    first, second, rho, soft = _irredundant(bounds, n)
    pairs = rho.size
    lam, w, s, omega = np.zeros(pairs), np.empty(pairs), np.zeros(pairs), np.zeros(pairs)
    dlam, ds, target, diagonal = np.empty(pairs), np.empty(pairs), np.empty(pairs), np.empty(pairs)
    work, coupled = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    listed = np.zeros(pairs, np.bool_)
    phi, dphi, hat, both = (
        np.empty((K, q)),
        np.empty((K, q)),
        np.empty((K, q)),
        np.empty((K, q + K)),
    )
    m = _multiplicative(first, second, rho, soft, h, n, lam, w, hat, work, near)
    for e in range(pairs):
        lam[e] *= depth
    stationary(first, second, lam, n, h, both)
    worst = distances(first, second, rho, both, q, w)
    force = enter(rho, soft, lam, w, s, omega, phi, both, work[:m], worst)
    for k in range(m):
        listed[work[k]] = True
    error = residual(first, second, rho, s, phi, both, work[:m])
    iterations, solved = 0, False
    while True:
        gap, value = duality_gap(h, n, rho, lam, w, both, worst)
        solved = gap <= tol * value
        if solved or iterations >= max_iter or not np.isfinite(error):
            break
        m = _join(first, second, rho, soft, lam, s, omega, phi, work, m, listed, force)
        now = work[:m]
        na = linearise(first, second, rho, lam, s, phi, both, now, target, diagonal, coupled)
        extra = ridge
        U = hessian(first, second, rho, lam, s, phi, both, coupled[:na], extra)
        while not cholesky(U) and extra < 1e-3:
            extra *= 100.0
            U = hessian(first, second, rho, lam, s, phi, both, coupled[:na], extra)
        step_s, step_lam = direction(
            lam, s, omega, now, coupled[:na], U, target, diagonal, dlam, ds, 1e-3 * tol * value
        )
        primal_direction(first, second, phi, both, dlam, now, dphi)
        before, sign = error, 1.0
        for _ in range(8):
            move(lam, s, phi, dlam, ds, dphi, now, sign * step_s, sign * step_lam)
            stationary(first, second, lam, n, h, both)
            error = residual(first, second, rho, s, phi, both, now)
            if error <= max(2.0 * before, floor):
                break
            # The step was too long: go back half of it.
            step_s, step_lam, sign = 0.5 * step_s, 0.5 * step_lam, -1.0
        worst = distances(first, second, rho, both, q, w)
        iterations += 1
    if solved:
        # A pair is inactive if its slack is larger than its multiplier, each on its own scale.
        for e in range(pairs):
            active = lam[e] * rho[e] ** 3 > force * soft[e] * s[e]
            dlam[e] = lam[e] if active else 0.0
        stationary(first, second, dlam, n, h, hat)
        worst = distances(first, second, rho, hat, q, w)
        gap, value = duality_gap(h, n, rho, dlam, w, hat, worst)
        if gap <= 2.0 * tol * value:
            lam = dlam
    table = np.zeros((K, K))
    for e in range(pairs):
        table[first[e], second[e]] = table[second[e], first[e]] = lam[e]
    return table, iterations, solved


@fragment
def _irredundant(bounds: Float64, n: Float64) -> tuple[Int64, Int64, Float64, Float64]:
    """Return the pairs that no third point implies: rho_mp + rho_pl <= rho_ml, both shorter."""
    K = bounds.shape[0]
    pairs = K * (K - 1) // 2
    first, second = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    rho, soft = np.empty(pairs), np.empty(pairs)
    count = 0
    for i in range(K):
        for j in range(i + 1, K):
            if bounds[i, j] < np.inf and not is_implied(bounds, i, j):
                first[count], second[count], rho[count] = i, j, bounds[i, j]
                soft[count] = 2.0 * n[i] * n[j] / (n[i] + n[j])
                count += 1
    return first[:count], second[:count], rho[:count], soft[:count]


@subroutine
def is_implied(bounds: Float64, i: int, j: int) -> bool:
    """Say whether a third point implies the bound of these two."""
    # Without "both shorter", near-duplicates would imply each other away.
    shorter, reach = bounds[i, j] * (1.0 - 1e-9), bounds[i, j] * (1.0 + 1e-12)
    K = bounds.shape[0]
    for start in range(0, K, _BLOCK):
        found = 0
        for p in range(start, min(start + _BLOCK, K)):
            # Counted, since a way out would keep it from vectorising.
            x, y = bounds[i, p], bounds[j, p]
            ok = (x + y <= reach) & (x < shorter) & (y < shorter)
            found += 1 if ok else 0
        if found > 0:
            return True
    return False


@fragment
def _multiplicative(
    first: Int64,
    second: Int64,
    rho: Float64,
    soft: Float64,
    h: Float64,
    n: Float64,
    lam: Float64,
    w: Float64,
    hat: Float64,
    work: Int64,
    near: float,
) -> int:
    """Improve lam until the pairs near their bounds carry the rest; list them in work.

    Starts from what would be right if all pairs were alike. Sets lam of the other pairs to
    zero, and returns how many are listed.
    """
    pairs, q = rho.size, h.shape[1]
    last, kept, reach = np.ones(pairs), np.empty(pairs), np.empty(pairs)
    distances(first, second, rho, h, q, w)
    for e in range(pairs):
        lam[e] = max(w[e] / rho[e] - 1.0, 0.01) * soft[e] / n.size
    m = 0
    for rounds in range(ROUNDS + 1):
        stationary(first, second, lam, n, h, hat)
        worst = distances(first, second, rho, hat, q, w)
        if worst <= READY or rounds == ROUNDS:
            if rounds == ROUNDS:
                near = 0.0
            m = 0
            for e in range(pairs):
                kept[e] = 0.0
                if w[e] > near * rho[e]:
                    work[m] = e
                    m += 1
                    kept[e] = lam[e]
            stationary(first, second, kept, n, h, hat)
            if m > 0 and distances(first, second, rho, hat, q, reach) <= CARRY:
                break
        if rounds < ROUNDS:
            for e in range(pairs):
                # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but
                # swings to and fro on such a pair, and is given up there.
                x = max(w[e] / rho[e], 0.1)
                lam[e] *= x * x if (x - 1.0) * (last[e] - 1.0) >= 0.0 else x
                last[e] = x
    for e in range(pairs):
        lam[e] = kept[e]
    return m


@kernel
def enter(
    rho: Float64,
    soft: Float64,
    lam: Float64,
    w: Float64,
    s: Float64,
    omega: Float64,
    phi: Float64,
    hat: Float64,
    work: Int64,
    worst: float,
) -> float:
    """Start step 2 a little inside the bounds; return the largest force of a pair."""
    shrink = min(1.0, 1.0 / (_START * min(worst, READY)))
    force = 0.0
    for e in range(rho.size):
        force = max(force, lam[e] * rho[e])
    for k in range(work.size):
        e = work[k]
        lam[e] = max(lam[e], 1e-6 * force * soft[e] / rho[e])
        inside = max(rho[e] ** 2 - (shrink * w[e]) ** 2, (1.0 - 1.0 / _START) * rho[e] ** 2)
        s[e] = 0.5 * inside
        omega[e] = rho[e] * max(lam[e] * rho[e], 1e-3 * force * soft[e])
    for i in range(phi.shape[0]):
        for c in range(phi.shape[1]):
            phi[i, c] = shrink * hat[i, c]
    return force


@subroutine
def stationary(
    first: Int64, second: Int64, lam: Float64, n: Float64, h: Float64, both: Float64
) -> None:
    """Fill hat and, where there are columns for it, M: both come out of one elimination."""
    K, q = h.shape
    a, rest = np.zeros((K, K)), np.empty(K)
    for e in range(lam.size):
        a[first[e], second[e]] = lam[e]
    for i in range(K):
        rest[i] = n[i]
        for c in range(q):
            both[i, c] = n[i] * h[i, c]
        for c in range(q, both.shape[1]):
            both[i, c] = 1.0 if c == q + i else 0.0
    solve_laplacian(a, rest, both, q)


@kernel
def distances(first: Int64, second: Int64, rho: Float64, phi: Float64, q: int, w: Float64) -> float:
    """Fill w with the pairs' distances; return the largest ratio of distance to bound."""
    worst = 0.0
    for e in range(w.size):
        i, j = first[e], second[e]
        total = 0.0
        for c in range(q):
            v = phi[i, c] - phi[j, c]
            total += v * v
        w[e] = np.sqrt(total)
        worst = max(worst, (w[e] - ROUNDING) / rho[e])
    return worst


@kernel
def duality_gap(
    h: Float64, n: Float64, rho: Float64, lam: Float64, w: Float64, hat: Float64, worst: float
) -> tuple[float, float]:
    """Return the duality gap of hat, shrunk until every pair fits, and the objective there.

    A distance is known up to rounding.
    """
    shrink = 1.0 / max(worst, 1.0)
    spread, value = 0.0, 0.0
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            spread += n[i] * hat[i, c] ** 2
            value += n[i] * (shrink * hat[i, c] - h[i, c]) ** 2
    gap = 0.5 * (1.0 - shrink) ** 2 * spread
    for e in range(lam.size):
        slack = abs(rho[e] - shrink * w[e]) - 0.5 * ROUNDING
        gap += lam[e] * w[e] * max(slack, 0.0)
    return gap, 0.5 * value


@fragment
def _join(
    first: Int64,
    second: Int64,
    rho: Float64,
    soft: Float64,
    lam: Float64,
    s: Float64,
    omega: Float64,
    phi: Float64,
    work: Int64,
    m: int,
    listed: NDArray[np.bool_],
    force: float,
) -> int:
    """Let the violated pairs that are not yet worked on join; return how many are now."""
    for e in range(rho.size):
        if not listed[e]:
            i, j = first[e], second[e]
            total = 0.0
            for c in range(phi.shape[1]):
                v = phi[i, c] - phi[j, c]
                total += v * v
            if total > rho[e] * rho[e]:
                work[m] = e
                m += 1
                listed[e] = True
                lam[e] = 1e-4 * force * soft[e] / rho[e]
                s[e] = 1e-2 * rho[e] * rho[e]
                omega[e] = 1e-3 * force * soft[e] * rho[e]
    return m
