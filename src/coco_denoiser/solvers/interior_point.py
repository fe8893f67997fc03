"""Exact multipliers of one window by a primal-dual interior-point method on small tables.

Solves, for K residuals h_i, precisions n_i and bounds rho_ml,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Letters: v_e = phi_m - phi_l for a pair e = (m, l), w_e its length at the stationary residuals,
s_e = (rho_e^2 - ||v_e||^2) / 2 its slack, lam_e its multiplier, B the map from forces on pairs
to forces on points, M = (diag(n) + Laplacian(lam))^-1, and hat = M diag(n) h, the residuals
that are stationary for lam. The path is lam_e s_e = tau omega_e, tau -> 0. What a multiplier is
measured by is soft_e, the precision with which the two points know their difference: where
precisions differ by orders of magnitude, multipliers do.

1. A few multiplicative rounds, lam <- lam (w / rho)^2, find out which pairs matter.
2. Predictor-corrector steps in (phi, lam, s). phi is kept apart from hat: with phi = hat the
   tight pairs make every step too long. Pairs whose slack dominates are solved for one by one,
   so that the linear system is about as large as the active set.

Arrays come one by one and are indexed where they lie: records of arrays and views of rows would
double the time to compile. `both`, (K, q + K), holds hat and, beside it, M.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel, subroutine
from coco_denoiser._linalg import cholesky, solve_laplacian, substitute
from coco_denoiser.problem import ROUNDING, Problem
from coco_denoiser.typing import Float64, Int64

# Step 1 ends when no pair exceeds its bound by more than READY, and those nearer than `near`
# alone keep all others within CARRY; or after ROUNDS, with all pairs.
ROUNDS, READY, CARRY = 60, 1.05, 1.25
_BLOCK = 128  # third points that are looked at together
_START = 1.025  # how far inside its bounds step 2 starts
FLOOR = 0.2  # a step may double the error, or lift it to this
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
    return multipliers_of(
        problem.residuals, problem.bounds, problem.precisions, 0.5 * tol, max_iter, allowed
    )


@kernel
def multipliers_of(
    h: Float64, bounds: Float64, n: Float64, tol: float, max_iter: int, left: float
) -> tuple[Float64, int]:
    """Return the best multipliers, (K, K), and the number of steps.

    It stops where no multiplications are left.
    """
    K, q = h.shape
    first, second, rho, soft = irredundant(bounds, n)
    pairs = rho.size
    lam, w, s, omega = np.zeros(pairs), np.empty(pairs), np.zeros(pairs), np.zeros(pairs)
    dlam, ds, target, diagonal = np.empty(pairs), np.empty(pairs), np.empty(pairs), np.empty(pairs)
    lost, kept, coupled = np.empty(pairs), np.empty(pairs), np.empty(pairs, np.int64)
    phi, dphi, hat, both = (
        np.empty((K, q)),
        np.empty((K, q)),
        np.empty((K, q)),
        np.empty((K, q + K)),
    )
    excess = multiplicative(first, second, rho, soft, h, n, lam, w, hat, 0.0)
    stationary(first, second, lam, n, h, both)
    worst = rounded_ratio(first, second, rho, h, both, w, lost)
    enter(rho, soft, lam, w, s, omega, phi, both, worst, excess)
    error = residual(first, second, rho, s, phi, both)
    iterations, best = 0, np.inf
    while True:
        gap, value, loss = duality_gap(h, n, rho, lam, w, lost, both, worst)
        if gap < best * value or iterations == 0:
            best = gap / value
            for e in range(pairs):
                kept[e] = lam[e]
        if gap <= tol * value or iterations >= max_iter or not np.isfinite(error):
            break
        na = linearise(first, second, rho, lam, s, phi, both, target, diagonal, coupled)
        ridge = _RIDGE
        left -= na * na * (na / 24.0 + 3.0)
        if left < 0.0:
            break
        U = hessian(first, second, rho, lam, s, phi, both, coupled[:na], ridge)
        while not cholesky(U) and ridge < 1e-3:
            ridge *= 100.0
            left -= na * na * (na / 24.0 + 3.0)
            U = hessian(first, second, rho, lam, s, phi, both, coupled[:na], ridge)
        step_s, step_lam = direction(
            lam, s, omega, coupled[:na], U, target, diagonal, dlam, ds, 1e-3 * tol * loss
        )
        primal_direction(first, second, phi, both, dlam, dphi)
        before, sign = error, 1.0
        for _ in range(8):
            move(lam, s, phi, dlam, ds, dphi, sign * step_s, sign * step_lam)
            stationary(first, second, lam, n, h, both)
            left -= K * K * (K + q)
            error = residual(first, second, rho, s, phi, both)
            if error <= max(2.0 * before, FLOOR):
                break
            # The step was too long: go back half of it.
            step_s, step_lam, sign = 0.5 * step_s, 0.5 * step_lam, -1.0
        worst = rounded_ratio(first, second, rho, h, both, w, lost)
        iterations += 1
    if best <= tol:
        # A pair is inactive if its slack is larger than its multiplier, each on its own scale.
        force = strongest(rho, lam)
        for e in range(pairs):
            active = lam[e] * rho[e] ** 3 > force * soft[e] * s[e]
            dlam[e] = lam[e] if active else 0.0
        stationary(first, second, dlam, n, h, hat)
        worst = rounded_ratio(first, second, rho, h, hat, w, lost)
        gap, value, _ = duality_gap(h, n, rho, dlam, w, lost, hat, worst)
        if gap <= 2.0 * tol * value:
            kept = dlam
    table = np.zeros((K, K))
    for e in range(pairs):
        table[first[e], second[e]] = table[second[e], first[e]] = kept[e]
    return table, iterations


@fragment
def irredundant(bounds: Float64, n: Float64) -> tuple[Int64, Int64, Float64, Float64]:
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
    shorter, reach = bounds[i, j] * (1.0 - 1e-14), bounds[i, j] * (1.0 + 2e-15)
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
def multiplicative(
    first: Int64,
    second: Int64,
    rho: Float64,
    soft: Float64,
    h: Float64,
    n: Float64,
    lam: Float64,
    w: Float64,
    hat: Float64,
    near: float,
) -> float:
    """Improve lam until the pairs near their bounds carry the rest; zero that of the others.

    Starts from what would be right if all pairs were alike. Returns by how much the worst pair
    broke its bound.
    """
    pairs, q = rho.size, h.shape[1]
    last, kept, reach = np.ones(pairs), np.empty(pairs), np.empty(pairs)
    ratios(first, second, rho, h, q, w)
    excess = 0.0
    for e in range(pairs):
        excess = max(excess, w[e] - rho[e])
    for e in range(pairs):
        lam[e] = max(w[e] / rho[e] - 1.0, min(0.01, excess / rho[e])) * soft[e] / n.size
    for rounds in range(ROUNDS + 1):
        stationary(first, second, lam, n, h, hat)
        worst = ratios(first, second, rho, hat, q, w)
        if worst <= READY or rounds == ROUNDS:
            if rounds == ROUNDS:
                near = 0.0
            count = 0
            for e in range(pairs):
                kept[e] = 0.0
                if w[e] > near * rho[e]:
                    kept[e] = lam[e]
                    count += 1
            stationary(first, second, kept, n, h, hat)
            if count > 0 and ratios(first, second, rho, hat, q, reach) <= CARRY:
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
    return excess


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
    worst: float,
    excess: float,
) -> float:
    """Start step 2 a little inside the bounds; return the largest force of a pair.

    How far inside depends on by how much they are broken: long bounds that are barely broken
    would else take a step for every decade in between.
    """
    shrink = 1.0 + (min(1.0, 1.0 / (_START * min(worst, READY))) - 1.0) * min(1.0, 10.0 * excess)
    force = strongest(rho, lam)
    for e in range(rho.size):
        lam[e] = max(lam[e], 1e-6 * force * soft[e] / rho[e])
        least = (1.0 - 1.0 / _START) * rho[e] * min(rho[e], excess)
        s[e] = 0.5 * max(rho[e] ** 2 - (shrink * w[e]) ** 2, least)
        omega[e] = rho[e] * max(lam[e] * rho[e], 1e-3 * force * soft[e])
    for i in range(phi.shape[0]):
        for c in range(phi.shape[1]):
            phi[i, c] = shrink * hat[i, c]
    return force


@kernel
def strongest(rho: Float64, lam: Float64) -> float:
    """Return the largest force of a pair."""
    force = 0.0
    for e in range(rho.size):
        force = max(force, lam[e] * rho[e])
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
def ratios(first: Int64, second: Int64, rho: Float64, phi: Float64, q: int, w: Float64) -> float:
    """Fill w with the pairs' distances; return the largest ratio of distance to bound."""
    worst = 0.0
    for e in range(w.size):
        i, j = first[e], second[e]
        total = 0.0
        for c in range(q):
            v = phi[i, c] - phi[j, c]
            total += v * v
        w[e] = np.sqrt(total)
        worst = max(worst, w[e] / rho[e])
    return worst


@kernel
def rounded_ratio(
    first: Int64,
    second: Int64,
    rho: Float64,
    h: Float64,
    hat: Float64,
    w: Float64,
    lost: Float64,
) -> float:
    """Do what `ratios` does, and also fill in how much of each distance may be rounding.

    It is relative to the two points of a pair, not to the largest of all: next to one that is
    far away, the others still have all their digits.
    """
    size, worst = sizes(h, hat), 0.0
    for e in range(w.size):
        i, j = first[e], second[e]
        total = 0.0
        for c in range(h.shape[1]):
            v = hat[i, c] - hat[j, c]
            total += v * v
        w[e] = np.sqrt(total)
        lost[e] = ROUNDING * min(1.0, size[i] + size[j])
        worst = max(worst, (w[e] - lost[e]) / rho[e])
    return worst


@kernel
def sizes(h: Float64, hat: Float64) -> Float64:
    """Return how large each residual is, as observed or as it has become."""
    K, q = h.shape
    size = np.zeros(K)
    for i in range(K):
        for c in range(q):
            size[i] += abs(hat[i, c]) + abs(h[i, c] - hat[i, c])
    return size


@kernel
def duality_gap(
    h: Float64,
    n: Float64,
    rho: Float64,
    lam: Float64,
    w: Float64,
    lost: Float64,
    hat: Float64,
    worst: float,
) -> tuple[float, float, float]:
    """Return the duality gap of hat, shrunk until every pair fits, and the objective there.

    The third is the objective at hat itself, which is far less where a residual is far away.
    """
    shrink = 1.0 / max(worst, 1.0)
    spread, value, loss = 0.0, 0.0, 0.0
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            spread += n[i] * hat[i, c] ** 2
            loss += n[i] * (hat[i, c] - h[i, c]) ** 2
            value += n[i] * (shrink * hat[i, c] - h[i, c]) ** 2
    gap = 0.5 * (1.0 - shrink) ** 2 * spread
    for e in range(lam.size):
        slack = abs(rho[e] - shrink * w[e]) - 0.5 * lost[e]
        gap += lam[e] * w[e] * max(slack, 0.0)
    return gap, 0.5 * value, 0.5 * loss


@kernel
def linearise(
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    s: Float64,
    phi: Float64,
    both: Float64,
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
            vhat += v * (both[i, c] - both[j, c])
        target[e] = 0.5 * (rho[e] * rho[e] + vv) - vhat
        curvature = (both[i, q + i] + both[j, q + j] - 2.0 * both[i, q + j]) * vv
        diagonal[e] = curvature + s[e] / lam[e]
        if lam[e] * curvature > _DIAGONAL * s[e]:
            coupled[na] = e
            na += 1
    return na


@kernel
def hessian(
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    s: Float64,
    phi: Float64,
    both: Float64,
    coupled: Int64,
    ridge: float,
) -> Float64:
    """Return (b_e' M b_f)(v_e . v_f) + diag(s / lam) over the coupled pairs.

    Both factors are differences of rows, of X = M B and of Y = phi v', so that an entry costs
    three operations instead of q. Dependent constraints leave it singular: the ridge, relative
    to the diagonal, grows with what such a difference has lost.
    """
    K, q = phi.shape
    m = coupled.size
    X, Y, V, H = np.empty((K, m)), np.zeros((K, m)), np.empty((q, m)), np.empty((m, m))
    for k in range(m):
        i, j = first[coupled[k]], second[coupled[k]]
        for c in range(K):
            X[c, k] = both[i, q + c] - both[j, q + c]
        for c in range(q):
            V[c, k] = phi[i, c] - phi[j, c]
    for i in range(K):
        for c in range(q):
            factor = phi[i, c]
            for k in range(m):
                Y[i, k] += factor * V[c, k]
    for k in range(m):
        e = coupled[k]
        i, j = first[e], second[e]
        for f in range(m):
            H[k, f] = (X[i, f] - X[j, f]) * (Y[i, f] - Y[j, f])
        lost = ridge + 1e-15 / rho[e]
        H[k, k] = H[k, k] * (1.0 + lost) + s[e] / lam[e]
    return H


@fragment
def direction(
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
def primal_direction(
    first: Int64,
    second: Int64,
    phi: Float64,
    both: Float64,
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
            dphi[i, c] = both[i, c] - phi[i, c]
        for j in range(K):
            for c in range(q):
                dphi[i, c] -= both[i, q + j] * pull[j, c]


@kernel
def move(
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


@kernel
def residual(
    first: Int64,
    second: Int64,
    rho: Float64,
    s: Float64,
    phi: Float64,
    both: Float64,
) -> float:
    """Return the worst relative error of the slacks and of phi against hat, over the pairs."""
    worst = 0.0
    for e in range(rho.size):
        i, j = first[e], second[e]
        vv, off = 0.0, 0.0
        for c in range(phi.shape[1]):
            v = phi[i, c] - phi[j, c]
            rest = v - both[i, c] + both[j, c]
            vv += v * v
            off += rest * rest
        square = rho[e] * rho[e]
        slack = abs(s[e] - 0.5 * (square - vv)) / square
        worst = max(worst, slack, np.sqrt(off / square))
    return worst
