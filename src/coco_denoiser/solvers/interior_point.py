"""Exact multipliers of one window by a primal-dual interior-point method on small tables.

Solves, for K residuals h_i, precisions n_i and bounds rho_ml,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Letters: v_e = phi_m - phi_l for a pair e = (m, l), s_e = (rho_e^2 - ||v_e||^2) / 2 its slack,
lam_e its multiplier, M = (diag(n) + Laplacian(lam))^-1, and hat = M diag(n) h, the residuals
that are stationary for lam. The path is lam_e s_e = tau omega_e, tau -> 0.

1. A few multiplicative rounds, lam <- lam (||v|| / rho)^1.5, find the pairs that matter.
2. Predictor-corrector steps in (phi, lam, s) on those pairs. phi is kept apart from hat:
   with phi = hat the tight pairs make every step too long. Pairs that turn out to be violated
   join; pairs whose slack dominates are solved for one by one, so that the linear system is
   about as large as the active set.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser._linalg import cholesky, solve_laplacian, substitute
from coco_denoiser.geometry import OBJECTIVE_FLOOR, ROUNDING, Window
from coco_denoiser.typing import Float64, Int64

# Step 1 ends when no pair exceeds its bound by more than _READY, and those nearer than `near`
# alone keep all others within _CARRY; or after _ROUNDS, with all pairs.
_ROUNDS, _READY, _CARRY = 60, 1.05, 1.25
_START = 1.025  # how far inside its bounds step 2 starts
_DIAGONAL = 1e-2  # a pair is solved for by itself if its coupling is below this share of its slack
# A step may double the residual, or lift it to `floor`. Where bounds differ by many orders of
# magnitude, about one large window in a hundred runs in circles, and is begun anew from another
# working set.
_ATTEMPTS, _STEPS = ((0.95, 0.2), (0.8, 0.1), (0.5, 0.05)), 70  # (near, floor), steps of each


def solve(
    window: Window, *, tol: float, max_iter: int, start: Float64 | None = None
) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        window: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps of the interior-point method.
        start: multipliers to start from, (K, K); a zero stands for a pair not seen before.
    """
    if start is None:
        start = np.zeros_like(window.bounds)
    iterations = 0
    for near, floor in _ATTEMPTS:
        # Half the tolerance: the certificate is computed after a last rounding.
        multipliers, steps, solved = _solve(
            window.residuals,
            window.bounds,
            window.precisions,
            start if iterations == 0 else np.zeros_like(start),
            0.5 * tol,
            min(max_iter - iterations, _STEPS),
            near,
            floor,
        )
        iterations += steps
        if solved or iterations >= max_iter:
            break
    return multipliers, iterations


@kernel
def _solve(
    h: Float64,
    bounds: Float64,
    n: Float64,
    start: Float64,
    tol: float,
    max_iter: int,
    near: float,
    floor: float,
) -> tuple[Float64, int, bool]:
    K, q = h.shape
    first, second, rho = _irredundant(bounds)
    pairs = rho.size
    hat, M, phi, dphi = np.empty((K, q)), np.empty((K, K)), np.empty((K, q)), np.empty((K, q))
    w, work = np.empty(pairs), np.empty(pairs, np.int64)
    lam = _initial(h, first, second, rho, start)
    m = _multiplicative(h, n, first, second, rho, lam, near, hat, M, w, work)

    force = 0.0
    for e in range(pairs):
        force = max(force, lam[e] * rho[e])
    s, omega = np.zeros(pairs), np.zeros(pairs)
    shrink = 1.0 / (_START * min(max(_distances(hat, first, second, w, rho), 1.0), _READY))
    for k in range(m):
        e = work[k]
        lam[e] = max(lam[e], 1e-6 * force / rho[e])
        s[e] = 0.5 * max(rho[e] ** 2 - (shrink * w[e]) ** 2, (1.0 - 1.0 / _START) * rho[e] ** 2)
        omega[e] = rho[e] * max(lam[e] * rho[e], 1e-3 * force)
    for i in range(K):
        for c in range(q):
            phi[i, c] = shrink * hat[i, c]
    residual = _residual(phi, hat, first, second, rho, s, work[:m])

    dlam, ds, target, diagonal = np.empty(pairs), np.empty(pairs), np.empty(pairs), np.empty(pairs)
    coupled = np.empty(pairs, np.int64)
    iterations, solved = 0, False
    while True:
        worst = _distances(hat, first, second, w, rho)
        solved = _relative_gap(lam, w, rho, hat, h, n, worst) <= tol
        if solved or iterations >= max_iter:
            break
        m = _join(phi, first, second, rho, lam, s, omega, work, m, force)
        na = _linearise(
            phi, hat, M, first, second, rho, lam, s, work[:m], target, diagonal, coupled
        )
        ridge = 1e-12
        H = _hessian(phi, M, first, second, lam, s, coupled[:na], ridge)
        while not cholesky(H) and ridge < 1e-3:
            ridge *= 100.0
            H = _hessian(phi, M, first, second, lam, s, coupled[:na], ridge)
        step_s, step_lam = _direction(
            H, coupled[:na], work[:m], target, diagonal, lam, s, omega, dlam, ds
        )
        _primal_direction(phi, hat, M, first, second, work[:m], dlam, dphi)
        before = residual
        for attempt in range(8):
            if attempt > 0:  # the step was too long: go back half of it
                step_s *= 0.5
                step_lam *= 0.5
            sign = 1.0 if attempt == 0 else -1.0
            _move(phi, lam, s, work[:m], dphi, dlam, ds, sign * step_s, sign * step_lam)
            _stationary(lam, first, second, n, h, hat, M)
            residual = _residual(phi, hat, first, second, rho, s, work[:m])
            if residual <= max(2.0 * before, floor):
                break
        iterations += 1

    table = np.zeros((K, K))
    for e in range(pairs):
        table[first[e], second[e]] = table[second[e], first[e]] = lam[e]
    return table, iterations, solved


@subroutine
def _multiplicative(
    h: Float64,
    n: Float64,
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    near: float,
    hat: Float64,
    M: Float64,
    w: Float64,
    work: Int64,
) -> int:
    """Improve lam until the pairs near their bounds carry the rest; list them in work.

    Fills hat and M, sets lam of the other pairs to zero, and returns how many are listed.
    """
    pairs = rho.size
    last, kept, reach, none = np.ones(pairs), np.empty(pairs), np.empty(pairs), np.empty((0, 0))
    m = 0
    for rounds in range(_ROUNDS + 1):
        _stationary(lam, first, second, n, h, hat, none)
        worst = _distances(hat, first, second, w, rho)
        if worst <= _READY or rounds == _ROUNDS:
            if rounds == _ROUNDS:
                near = 0.0
            m = 0
            for e in range(pairs):
                kept[e] = 0.0
                if w[e] > near * rho[e]:
                    work[m] = e
                    m += 1
                    kept[e] = lam[e]
            _stationary(kept, first, second, n, h, hat, M)
            if m > 0 and _distances(hat, first, second, reach, rho) <= _CARRY:
                break
        if rounds < _ROUNDS:
            for e in range(pairs):
                # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but
                # swings to and fro on such a pair, and is given up there.
                x = max(w[e] / rho[e], 0.1)
                lam[e] *= x * x if (x - 1.0) * (last[e] - 1.0) >= 0.0 else x
                last[e] = x
    for e in range(pairs):
        lam[e] = kept[e]
    return m


@subroutine
def _move(
    phi: Float64,
    lam: Float64,
    s: Float64,
    work: Int64,
    dphi: Float64,
    dlam: Float64,
    ds: Float64,
    step_s: float,
    step_lam: float,
) -> None:
    for k in range(work.size):
        e = work[k]
        lam[e] += step_lam * dlam[e]
        s[e] += step_s * ds[e]
    for i in range(phi.shape[0]):
        for c in range(phi.shape[1]):
            phi[i, c] += step_s * dphi[i, c]


@subroutine
def _irredundant(bounds: Float64) -> tuple[Int64, Int64, Float64]:
    """List the pairs that no third point implies: rho_mp + rho_pl <= rho_ml, both shorter."""
    K = bounds.shape[0]
    pairs = K * (K - 1) // 2
    first, second, rho = np.empty(pairs, np.int64), np.empty(pairs, np.int64), np.empty(pairs)
    count = 0
    for i in range(K):
        for j in range(i + 1, K):
            bound = bounds[i, j]
            # Without "both shorter", near-duplicates would imply each other away.
            shorter = bound * (1.0 - 1e-9)
            implied = False
            for p in range(K):
                x, y = bounds[i, p], bounds[j, p]
                if x + y <= bound * (1.0 + 1e-12) and x < shorter and y < shorter:
                    implied = True
                    break
            if not implied:
                first[count], second[count], rho[count] = i, j, bound
                count += 1
    return first[:count], second[:count], rho[:count]


@subroutine
def _initial(h: Float64, first: Int64, second: Int64, rho: Float64, start: Float64) -> Float64:
    """Start from the given multipliers, and elsewhere from those of a complete graph."""
    lam = np.empty(rho.size)
    _distances(h, first, second, lam, rho)
    for e in range(rho.size):
        given = start[first[e], second[e]]
        lam[e] = given if given > 0.0 else max(lam[e] / rho[e] - 1.0, 0.01) / h.shape[0]
    return lam


@subroutine
def _stationary(
    lam: Float64, first: Int64, second: Int64, n: Float64, h: Float64, hat: Float64, M: Float64
) -> None:
    """Fill hat and, unless it is empty, M: both come out of one elimination."""
    K, q = h.shape
    a, rest, both = np.zeros((K, K)), np.empty(K), np.zeros((K, q + M.shape[0]))
    for e in range(lam.size):
        a[first[e], second[e]] = lam[e]
    for i in range(K):
        rest[i] = n[i]
        for c in range(q):
            both[i, c] = n[i] * h[i, c]
        if M.size > 0:
            both[i, q + i] = 1.0
    solve_laplacian(a, rest, both, q)
    for i in range(K):
        for c in range(q):
            hat[i, c] = both[i, c]
        for c in range(M.shape[0]):
            M[i, c] = both[i, q + c]


@subroutine
def _distances(phi: Float64, first: Int64, second: Int64, w: Float64, rho: Float64) -> float:
    """Fill w with the pairs' distances; return the largest ratio w / rho."""
    worst = 0.0
    for e in range(w.size):
        x, y = phi[first[e]], phi[second[e]]
        total = 0.0
        for c in range(x.size):
            total += (x[c] - y[c]) ** 2
        w[e] = np.sqrt(total)
        worst = max(worst, (w[e] - ROUNDING) / rho[e])
    return worst


@subroutine
def _relative_gap(
    lam: Float64, w: Float64, rho: Float64, hat: Float64, h: Float64, n: Float64, worst: float
) -> float:
    """Return the relative duality gap of hat, shrunk until every pair fits.

    The centroid of h, and so of hat, is zero.
    """
    shrink = 1.0 / max(worst, 1.0)
    spread, value, trivial = 0.0, 0.0, 0.0
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            spread += n[i] * hat[i, c] ** 2
            value += n[i] * (shrink * hat[i, c] - h[i, c]) ** 2
            trivial += n[i] * h[i, c] ** 2
    gap = 0.5 * (1.0 - shrink) ** 2 * spread
    for e in range(lam.size):
        gap += lam[e] * w[e] * abs(rho[e] - shrink * w[e])
    return gap / (0.5 * max(value, OBJECTIVE_FLOOR * trivial))


@subroutine
def _join(
    phi: Float64,
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    s: Float64,
    omega: Float64,
    work: Int64,
    m: int,
    force: float,
) -> int:
    """Let the violated pairs that are not yet worked on join; return how many are now."""
    for e in range(rho.size):
        if s[e] == 0.0:
            x, y = phi[first[e]], phi[second[e]]
            total = 0.0
            for c in range(x.size):
                total += (x[c] - y[c]) ** 2
            if total > rho[e] ** 2:
                work[m] = e
                m += 1
                lam[e] = 1e-4 * force / rho[e]
                s[e] = 1e-2 * rho[e] ** 2
                omega[e] = 1e-3 * force * rho[e]
    return m


@subroutine
def _linearise(
    phi: Float64,
    hat: Float64,
    M: Float64,
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    s: Float64,
    work: Int64,
    target: Float64,
    diagonal: Float64,
    coupled: Int64,
) -> int:
    """Fill the linearised slack at dlam = 0 and the Hessian's diagonal; list coupled pairs."""
    na = 0
    for k in range(work.size):
        e = work[k]
        i, j = first[e], second[e]
        x, y, xh, yh = phi[i], phi[j], hat[i], hat[j]
        vv, vhat = 0.0, 0.0
        for c in range(x.size):
            v = x[c] - y[c]
            vv += v * v
            vhat += v * (xh[c] - yh[c])
        target[e] = 0.5 * (rho[e] ** 2 + vv) - vhat
        curvature = (M[i, i] + M[j, j] - 2.0 * M[i, j]) * vv
        diagonal[e] = curvature + s[e] / lam[e]
        if lam[e] * curvature > _DIAGONAL * s[e]:
            coupled[na] = e
            na += 1
    return na


@subroutine
def _hessian(
    phi: Float64,
    M: Float64,
    first: Int64,
    second: Int64,
    lam: Float64,
    s: Float64,
    coupled: Int64,
    ridge: float,
) -> Float64:
    """Return (b_e' M b_f)(v_e . v_f) + diag(s / lam) over the coupled pairs, upper triangle.

    Both factors are differences of rows, of X = M B and of Y = phi v', so that an entry costs
    three operations instead of q.
    """
    K, q = phi.shape
    m = coupled.size
    X, Y, V = np.empty((K, m)), np.zeros((K, m)), np.empty((q, m))
    for k in range(m):
        i, j = first[coupled[k]], second[coupled[k]]
        for c in range(K):
            X[c, k] = M[i, c] - M[j, c]
        for c in range(q):
            V[c, k] = phi[i, c] - phi[j, c]
    for i in range(K):
        Yi = Y[i]
        for c in range(q):
            factor, Vc = phi[i, c], V[c]
            for k in range(m):
                Yi[k] += factor * Vc[k]
    H = np.empty((m, m))
    for k in range(m):
        e = coupled[k]
        Xi, Xj, Yi, Yj = X[first[e]], X[second[e]], Y[first[e]], Y[second[e]]
        Hk = H[k]
        for f in range(k, m):
            Hk[f] = (Xi[f] - Xj[f]) * (Yi[f] - Yj[f])
        # Dependent constraints leave H singular; the first ridge is below its rounding.
        Hk[k] = Hk[k] * (1.0 + ridge) + s[e] / lam[e]
    return H


@subroutine
def _direction(
    U: Float64,
    coupled: Int64,
    work: Int64,
    target: Float64,
    diagonal: Float64,
    lam: Float64,
    s: Float64,
    omega: Float64,
    dlam: Float64,
    ds: Float64,
) -> tuple[float, float]:
    """Fill dlam and ds by Mehrotra's predictor and corrector; return the two step lengths."""
    rhs = np.empty(coupled.size)
    mu, weight = 0.0, 0.0
    for k in range(work.size):
        mu += lam[work[k]] * s[work[k]]
        weight += omega[work[k]]
    mu /= weight
    tau, step_s, step_lam = 0.0, 1.0, 1.0
    for phase in range(2):
        for k in range(work.size):
            e = work[k]
            second_order = dlam[e] * ds[e] if phase == 1 else 0.0
            ds[e] = (tau * omega[e] - second_order) / lam[e]
            dlam[e] = (ds[e] - target[e]) / diagonal[e]
        for k in range(coupled.size):
            rhs[k] = ds[coupled[k]] - target[coupled[k]]
        substitute(U, rhs)
        for k in range(coupled.size):
            dlam[coupled[k]] = rhs[k]
        # As close to the boundary as the path allows: 0.9 far out, 1 - mu near the end.
        keep = max(0.9, 1.0 - mu) if phase == 1 else 1.0
        step_s, step_lam = 1.0, 1.0
        for k in range(work.size):
            e = work[k]
            ds[e] -= s[e] + s[e] / lam[e] * dlam[e]
            if ds[e] < 0.0:
                step_s = min(step_s, -keep * s[e] / ds[e])
            if dlam[e] < 0.0:
                step_lam = min(step_lam, -keep * lam[e] / dlam[e])
        if phase == 0:
            affine = 0.0
            for k in range(work.size):
                e = work[k]
                affine += (lam[e] + step_lam * dlam[e]) * (s[e] + step_s * ds[e])
            tau = max((affine / weight / mu) ** 3 * mu, 1e-16)
    return step_s, step_lam


@subroutine
def _primal_direction(
    phi: Float64,
    hat: Float64,
    M: Float64,
    first: Int64,
    second: Int64,
    work: Int64,
    dlam: Float64,
    dphi: Float64,
) -> None:
    """Fill dphi = hat - phi - M B (dlam v)."""
    K, q = phi.shape
    pull = np.zeros((K, q))
    for k in range(work.size):
        factor = dlam[work[k]]
        i, j = first[work[k]], second[work[k]]
        x, y, px, py = phi[i], phi[j], pull[i], pull[j]
        for c in range(q):
            v = factor * (x[c] - y[c])
            px[c] += v
            py[c] -= v
    for i in range(K):
        row, x, y = dphi[i], hat[i], phi[i]
        for c in range(q):
            row[c] = x[c] - y[c]
        for j in range(K):
            factor, other = M[i, j], pull[j]
            for c in range(q):
                row[c] -= factor * other[c]


@subroutine
def _residual(
    phi: Float64, hat: Float64, first: Int64, second: Int64, rho: Float64, s: Float64, work: Int64
) -> float:
    """Return the worst relative error of the slacks and of phi against hat, over the pairs."""
    worst = 0.0
    for k in range(work.size):
        e = work[k]
        x, y, xh, yh = phi[first[e]], phi[second[e]], hat[first[e]], hat[second[e]]
        vv, off = 0.0, 0.0
        for c in range(x.size):
            v = x[c] - y[c]
            vv += v * v
            off += (v - xh[c] + yh[c]) ** 2
        bound = rho[e]
        worst = max(worst, abs(s[e] - 0.5 * (bound**2 - vv)) / bound**2, np.sqrt(off) / bound)
    return worst
