"""Exact multipliers of an ordinary window by Newton's method on the pairs at their bounds.

For K residuals h_i, precisions n_i and bounds rho_ml,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Multipliers lam make hat = M N h stationary, with M = (N + Laplacian(lam))^-1; w are its distances.
For one pair, 1 / w is linear in its multiplier, so w(lam) = rho is solved as 1 / w = 1 / rho (as
More and Sorensen do in a trust region):

    H dlam = w^2 (w / rho - 1)    with H the Hessian of the dual, (b_e' M b_f)(v_e . v_f).

Which pairs are at their bounds is decided by the same model: multipliers lam + dlam that are
not negative, and zero where the model says that the pair is then inside its bound. From a few
multiplicative rounds, lam <- lam (w / rho)^2, this takes three to five steps. A step after which
the dual, which is concave, is lower than before was too long, and is halved. Where there are more
pairs than residuals have degrees of freedom, as in the plane, multipliers are not unique and H is
singular: a ridge that falls with the gap (Levenberg and Marquardt) keeps steps short without
slowing down the last ones. It may still fall short: the caller sees that by the gap, and tries
another method.

Everything is one compiled function on tables, (K, K) and symmetric.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser._linalg import cholesky, substitute
from coco_denoiser.problem import COINCIDENT, ROUNDING, WITHIN, Problem, rounding_sizes
from coco_denoiser.typing import Float64, Int64

STEPS = 15
PIVOTS = 12  # how often the pairs at their bounds are chosen anew in one step
HALVINGS = 4  # of a step
# The ridge is the relative gap, at most the first, from so many pairs per degree of freedom on.
RIDGE, CROWDED = 0.01, 0.6
# Rounds end when no pair exceeds its bound by more than READY, and those nearer to it than NEAR
# alone keep all others within CARRY; or after ROUNDS, with all pairs.
ROUNDS, READY, NEAR, CARRY = 60, 1.05, 0.9, 1.25
# Multiplications that a window of K points may cost, so many times K^3, or 16^3 if that is more.
_ALLOWED = 300.0


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations."""
    h, bounds, n = problem.residuals, problem.bounds, problem.precisions
    _, _, multipliers, iterations = solve_fast(h, bounds, n, tol, max_iter, WITHIN)
    return multipliers, iterations


@kernel
def solve_fast(
    h: Float64, bounds: Float64, n: Float64, tol: float, max_iter: int, within: float
) -> tuple[Float64, Float64, Float64, int]:
    """Return W (K, K), phi = W h, the best multipliers (K, K), and the number of steps.

    If nothing needs to change, W is the identity and phi is h. Otherwise phi breaks its bounds by
    no more than `within`, relative to them. Points that coincide are for others: -1 steps.
    """
    K, q = h.shape
    lam, best_lam, w, M = np.zeros((K, K)), np.zeros((K, K)), np.empty((K, K)), np.zeros((K, K))
    A, hat = np.empty((K, K + 2 + q)), np.empty((K, q))
    for i in range(K):
        M[i, i] = 1.0
    inverse, distinct = inverse_bounds(bounds)
    if not distinct:
        return M, h, best_lam, -1
    distances(h, inverse, w)
    if not start(bounds, inverse, n, h, w, lam):
        return M, h, best_lam, 0  # exactly, so that observations stay the same to the last bit
    iterations, last = 0, False
    if K == 2:
        best_lam[:] = lam
    else:
        multiplicative(n, h, inverse, lam, best_lam, A, hat, w, NEAR)
        iterations, last = _newton(
            bounds, inverse, n, h, lam, best_lam, A, hat, w, M, tol, max_iter
        )
    if not last:  # A, hat and w are those of a later step
        stationary(best_lam, n, h, inverse, A, hat, w)
    invert(A, M)
    _complete(bounds, n, h, hat, w, M, within)
    return M, hat, best_lam, iterations


@kernel
def inverse_bounds(bounds: Float64) -> tuple[Float64, bool]:
    """Return 1 / rho, zero for pairs that are not constrained; and whether no points coincide.

    A pair whose bound a third point implies, rho_mp + rho_pl <= rho_ml, both shorter, is left out.
    """
    K = bounds.shape[0]
    inverse, distinct = np.zeros((K, K)), True
    for i in range(K):
        for j in range(i):
            rho = bounds[i, j]
            distinct = distinct and rho > COINCIDENT
            # Without "both shorter", near-duplicates would imply each other away.
            shorter, reach, third = rho * (1.0 - 1e-14), rho * (1.0 + 2e-15), 0
            a, b = bounds[i], bounds[j]
            for p in range(K):
                # Counted, since a way out would keep it from vectorising.
                implies = (a[p] + b[p] <= reach) & (a[p] < shorter) & (b[p] < shorter)
                third += 1 if implies else 0
            if third == 0:
                inverse[i, j] = inverse[j, i] = 1.0 / rho
    return inverse, distinct


@subroutine
def start(
    bounds: Float64, inverse: Float64, n: Float64, h: Float64, w: Float64, lam: Float64
) -> bool:
    """Fill in what would be right if all pairs were alike; False if no bound is broken."""
    K, excess, broken, size = n.size, 0.0, 0.0, rounding_sizes(h, h)
    for i in range(K):
        for j in range(i):
            lost = ROUNDING * min(1.0, size[i] + size[j])
            broken = max(broken, w[i, j] - bounds[i, j] * (1.0 + WITHIN) - lost)
            if inverse[i, j] > 0.0:
                excess = max(excess, w[i, j] - bounds[i, j])
    for i in range(K):
        for j in range(i):
            if inverse[i, j] > 0.0:
                soft = 1.0 / (1.0 / n[i] + 1.0 / n[j])  # what the two know of their difference
                ratio = w[i, j] * inverse[i, j] - 1.0
                if K > 2:
                    soft *= 2.0 / K
                    ratio = max(ratio, min(0.01, excess * inverse[i, j]))
                lam[i, j] = lam[j, i] = soft * max(ratio, 0.0)
    return broken > 0.0


@subroutine
def stationary(
    lam: Float64,
    n: Float64,
    h: Float64,
    inverse: Float64,
    A: Float64,
    hat: Float64,
    w: Float64,
) -> float:
    """Fill hat = (N + Laplacian(lam))^-1 N h and its distances w; return the largest w / rho.

    Nodes are eliminated one by one, as Grassmann, Taksar and Heyman do for Markov chains: every
    number stays non-negative and is only added to, so tight clusters lose no digits. A, one row
    for each node, holds multipliers, precision, N h, and the inverse of the pivot.
    """
    K, q = h.shape
    width = K + 1 + q
    for i in range(K):
        row = A[i, i + 1 : width]
        for j in range(i + 1, K):
            A[i, j] = lam[i, j]
        A[i, K] = n[i]
        for c in range(q):
            A[i, K + 1 + c] = n[i] * h[i, c]
        for k in range(0, i, 2):  # two at once: what they are added to is read half as often
            o = min(k + 1, i - 1)
            p, r, f, g = A[k, i + 1 : width], A[o, i + 1 : width], A[k, i] * A[k, width], 0.0
            if k < o:
                g = A[o, i] * A[o, width]
            for j in range(row.size):
                row[j] += f * p[j] + g * r[j]
        total = A[i, K]
        for j in range(i + 1, K):
            total += A[i, j]
        A[i, width] = 1.0 / total
    for i in range(K - 1, -1, -1):
        out, rest, f = hat[i], A[i, K + 1 : width], A[i, width]
        for c in range(q):
            out[c] = rest[c]
        for k in range(i + 1, K - 1, 2):
            g, e, p, r = A[i, k], A[i, k + 1], hat[k], hat[k + 1]
            for c in range(q):
                out[c] += g * p[c] + e * r[c]
        if (K - i) % 2 == 0:
            g, p = A[i, K - 1], hat[K - 1]
            for c in range(q):
                out[c] += g * p[c]
        for c in range(q):
            out[c] *= f
    return distances(hat, inverse, w)


@subroutine
def distances(hat: Float64, inverse: Float64, w: Float64) -> float:
    """Fill w with the distances of residuals; return the largest w / rho."""
    K, q = hat.shape
    worst, whole = 0.0, q // 4 * 4
    for i in range(K):
        w[i, i] = 0.0
        p = hat[i]
        for j in range(i):
            r = hat[j]
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0  # each addition to a single sum waits for the last
            for c in range(0, whole, 4):
                e, f, g, v = (
                    p[c] - r[c],
                    p[c + 1] - r[c + 1],
                    p[c + 2] - r[c + 2],
                    p[c + 3] - r[c + 3],
                )
                s0 += e * e
                s1 += f * f
                s2 += g * g
                s3 += v * v
            for c in range(whole, q):
                e = p[c] - r[c]
                s0 += e * e
            w[i, j] = w[j, i] = np.sqrt((s0 + s1) + (s2 + s3))
            worst = max(worst, w[i, j] * inverse[i, j])
    return worst


@subroutine
def invert(A: Float64, M: Float64) -> None:
    """Overwrite M by (N + Laplacian)^-1, from an elimination."""
    K = M.shape[0]
    width = A.shape[1] - 1
    for i in range(K):
        row = M[i]
        for j in range(K):
            row[j] = 0.0
        row[i] = 1.0
        for k in range(i):
            p = M[k]
            f = A[k, i] * A[k, width]
            for j in range(K):
                row[j] += f * p[j]
    for i in range(K - 1, -1, -1):
        row = M[i]
        for k in range(i + 1, K):
            p = M[k]
            f = A[i, k]
            for j in range(K):
                row[j] += f * p[j]
        for j in range(K):
            row[j] *= A[i, width]


@subroutine
def multiplicative(
    n: Float64,
    h: Float64,
    inverse: Float64,
    lam: Float64,
    kept: Float64,
    A: Float64,
    hat: Float64,
    w: Float64,
    near: float,
) -> None:
    """Improve lam until the pairs near their bounds carry the rest; zero that of the others."""
    K = n.size
    last, reach = np.empty((K, K)), np.empty((K, K))
    for i in range(K):
        for j in range(K):
            last[i, j] = 1.0
    for rounds in range(ROUNDS + 1):
        worst = stationary(lam, n, h, inverse, A, hat, w)
        if rounds == ROUNDS:
            break
        if worst <= READY:
            for i in range(K):
                for j in range(K):
                    kept[i, j] = lam[i, j] if w[i, j] * inverse[i, j] > near else 0.0
            if stationary(kept, n, h, inverse, A, hat, reach) <= CARRY:
                lam[:] = kept
                w[:] = reach
                break
        for i in range(K):
            for j in range(K):
                # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but
                # swings to and fro on such a pair, and is given up there.
                x = max(w[i, j] * inverse[i, j], 0.1)
                lam[i, j] *= x * x if (x - 1.0) * (last[i, j] - 1.0) >= 0.0 else x
                last[i, j] = x


@subroutine
def _newton(
    bounds: Float64,
    inverse: Float64,
    n: Float64,
    h: Float64,
    lam: Float64,
    best_lam: Float64,
    A: Float64,
    hat: Float64,
    w: Float64,
    M: Float64,
    tol: float,
    max_iter: int,
) -> tuple[int, bool]:
    """Improve lam, whose hat and w are given, step by step, and keep the best.

    Returns:
        The number of steps, and whether the last is the best.
    """
    K, q = h.shape
    pairs = K * (K - 1) // 2
    before, first, second = np.empty((K, K)), np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    y, rhs = np.empty(pairs), np.empty(pairs)
    cube = max(K, 16) * max(K, 16) * max(K, 16)
    left = _ALLOWED * cube
    iterations, halvings, best, highest = 0, 0, np.inf, -np.inf
    while True:
        gap, dual = gap_and_dual(bounds, inverse, n, h, lam, hat, w)
        if not gap < np.inf:
            break
        if gap < best:
            best = gap
            best_lam[:] = lam
        # Half the tolerance: the certificate is computed after a last rounding.
        if best <= 0.5 * tol:
            break
        if dual < highest * (1.0 - 1e-13) and halvings < HALVINGS:
            halvings += 1
            for i in range(K):
                for j in range(K):
                    lam[i, j] = 0.5 * (lam[i, j] + before[i, j])
        else:
            highest, halvings = dual, 0
            before[:] = lam
            m = 0
            for i in range(K):
                for j in range(i + 1, K):
                    if lam[i, j] > 0.0 or w[i, j] * inverse[i, j] > 1.0:
                        first[m], second[m], y[m] = i, j, lam[i, j]
                        rhs[m] = w[i, j] * w[i, j] * (w[i, j] * inverse[i, j] - 1.0)
                        m += 1
            left -= m * m * (m / 24.0 + 3.0)
            if left < 0.0 or iterations >= min(max_iter, STEPS):
                break
            invert(A, M)
            ridge = min(RIDGE, gap) if m > CROWDED * (K - 1) * q else 1e-12
            H = hessian(first[:m], second[:m], inverse, hat, M, ridge)
            if not _nonnegative(H, rhs[:m], y[:m]):
                break
            for k in range(m):
                lam[first[k], second[k]] = lam[second[k], first[k]] = y[k]
            iterations += 1
        stationary(lam, n, h, inverse, A, hat, w)
    return iterations, gap == best


@subroutine
def gap_and_dual(
    bounds: Float64,
    inverse: Float64,
    n: Float64,
    h: Float64,
    lam: Float64,
    hat: Float64,
    w: Float64,
) -> tuple[float, float]:
    """Return the relative gap of hat, shrunk until every pair fits, and the dual at lam."""
    K, q = h.shape
    size, spread, value = rounding_sizes(hat, h), 0.0, 0.0
    dual, gap, worst = 0.0, 0.0, 1.0
    for i in range(K):
        for c in range(q):
            e = hat[i, c] - h[i, c]
            dual += 0.5 * n[i] * e * e
            spread += 0.5 * n[i] * hat[i, c] * hat[i, c]
    for i in range(K):
        for j in range(i):
            lost = ROUNDING * min(1.0, size[i] + size[j])
            worst = max(worst, (w[i, j] - lost) * inverse[i, j])
    shrink = 1.0 / worst
    for i in range(K):
        for c in range(q):
            e = shrink * hat[i, c] - h[i, c]
            value += 0.5 * n[i] * e * e
        for j in range(i):
            if lam[i, j] > 0.0:
                lost = ROUNDING * min(1.0, size[i] + size[j])
                slack = abs(bounds[i, j] - shrink * w[i, j]) - 0.5 * lost
                gap += lam[i, j] * w[i, j] * max(slack, 0.0)
                dual += 0.5 * lam[i, j] * (w[i, j] - bounds[i, j]) * (w[i, j] + bounds[i, j])
    return (gap + (1.0 - shrink) * (1.0 - shrink) * spread) / value, dual


@subroutine
def hessian(
    first: Int64, second: Int64, inverse: Float64, hat: Float64, M: Float64, ridge: float
) -> Float64:
    """Return (b_e' M b_f)(v_e . v_f) over some pairs, its diagonal a little larger.

    Both factors are differences of rows, of X = M B and of Y = hat v', so that an entry costs
    three operations instead of q. The ridge, relative to the diagonal, grows with what such a
    difference has lost.
    """
    K, q = hat.shape
    m = first.size
    X, Y, V, H = np.empty((K, m)), np.zeros((K, m)), np.empty((q, m)), np.empty((m, m))
    for c in range(K):
        p, out = M[c], X[c]
        for k in range(m):
            out[k] = p[first[k]] - p[second[k]]
    for c in range(q):
        out = V[c]
        for k in range(m):
            out[k] = hat[first[k], c] - hat[second[k], c]
    for i in range(K):
        out = Y[i]
        for c in range(q):
            f, p = hat[i, c], V[c]
            for k in range(m):
                out[k] += f * p[k]
    for k in range(m):
        i, j = first[k], second[k]
        a, b, c, d, out = X[i], X[j], Y[i], Y[j], H[k]
        for f in range(m):
            out[f] = (a[f] - b[f]) * (c[f] - d[f])
        out[k] *= 1.0 + ridge + 1e-15 * inverse[i, j]
    return H


@subroutine
def _nonnegative(H: Float64, rhs: Float64, y: Float64) -> bool:
    """Overwrite y by the y >= 0 that minimises 1/2 <y, H y> - <y, rhs + H y_before>.

    All entries whose sign is wrong change sides at once, a few times at most. False if singular.
    """
    m = y.size
    free, at, target = np.empty(m, np.bool_), np.empty(m, np.int64), np.empty(m)
    regular = True
    for k in range(m):
        # At first as if there were no others, and twice as far.
        free[k] = y[k] + 2.0 * rhs[k] / H[k, k] > 0.0
        target[k] = rhs[k] + _dot(H[k], y)
    for _ in range(PIVOTS):
        count = 0
        for k in range(m):
            y[k] = 0.0
            if free[k]:
                at[count] = k
                count += 1
        U, x = np.empty((count, count)), np.empty(count)
        for a in range(count):
            x[a] = target[at[a]]
            p, out = H[at[a]], U[a]
            for b in range(a, count):
                out[b] = p[at[b]]
        regular = cholesky(U)
        if not regular:
            break
        substitute(U, x)
        for a in range(count):
            y[at[a]] = x[a]
        wrong = 0
        for k in range(m):
            if y[k] < 0.0 if free[k] else target[k] > _dot(H[k], y):
                free[k] = not free[k]
                wrong += 1
        if wrong == 0:
            break
    for k in range(m):
        y[k] = max(y[k], 0.0)
    return regular


@subroutine
def _dot(x: Float64, y: Float64) -> float:
    """Return <x, y>, in four sums, since each addition to a single one would wait for the last."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = x.size // 4 * 4
    for j in range(0, whole, 4):
        s0 += x[j] * y[j]
        s1 += x[j + 1] * y[j + 1]
        s2 += x[j + 2] * y[j + 2]
        s3 += x[j + 3] * y[j + 3]
    for j in range(whole, x.size):
        s0 += x[j] * y[j]
    return (s0 + s1) + (s2 + s3)


@subroutine
def _complete(
    bounds: Float64,
    n: Float64,
    h: Float64,
    hat: Float64,
    w: Float64,
    W: Float64,
    within: float,
) -> None:
    """Turn M into W = M N, and draw it and hat towards the centroid until every pair fits."""
    K, q = hat.shape
    shrink, total, size = 1.0, 0.0, rounding_sizes(hat, h)
    for i in range(K):
        total += n[i]
        for j in range(i):
            apart = w[i, j] - ROUNDING * min(1.0, size[i] + size[j])
            if apart > bounds[i, j] * (1.0 + within):
                shrink = min(shrink, bounds[i, j] / apart)
    for i in range(K):
        for j in range(K):
            W[i, j] = (shrink * W[i, j] + (1.0 - shrink) / total) * n[j]
    if shrink < 1.0:
        for c in range(q):
            mean = 0.0
            for i in range(K):
                mean += n[i] * hat[i, c] / total
            for i in range(K):
                hat[i, c] = mean + shrink * (hat[i, c] - mean)
