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

All but `inverse_bounds` is one compiled function, which compiles in half the time that its parts
would take. It begins with a problem, with a window, or with an observation and a window that has
not taken it yet: then a step of a stream is one call. Of symmetric tables it uses the part below
the diagonal; nodes are eliminated from the last to the first, so that every inner loop runs over
the beginning of a row and vectorises.
"""

import math
from typing import TypeAlias

import numpy as np

from coco_denoiser._jit import kernel, sweep
from coco_denoiser.problem import COINCIDENT, NONE, ROUNDING, WITHIN, Problem
from coco_denoiser.typing import Float64

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
# What the multipliers at hand are: none yet, those of a multiplicative round, the ones of its
# pairs near their bounds, those of a step, and the best of all.
_NONE, _ROUND, _TRIAL, _STEP, _BEST = 0, 1, 2, 3, 4


# Point, gradient, room for the denoised gradient, noise variance and limit, as in `solve_fast`.
Observation: TypeAlias = tuple[Float64, Float64, Float64, float, float]
# Where there is none to take, and where there is not even a window.
NOTHING: Observation = np.empty(0), np.empty(0), np.empty(0), 1.0, np.inf
NO_WINDOW = np.empty((0, 0, 0)), np.empty(0), NONE, NONE, 0, *NOTHING, 0.0, 0.0, 0.0


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations."""
    h, bounds, n = problem.residuals, problem.bounds, problem.precisions
    W, phi, lam = np.empty_like(bounds), np.empty_like(h), np.empty_like(bounds)
    _, steps, _ = solve_fast(*NO_WINDOW, tol, max_iter, WITHIN, h, bounds, n, W, phi, lam)
    return lam, steps


@kernel
def inverse_bounds(bounds: Float64) -> tuple[Float64, bool]:
    """Return 1 / rho, zero for pairs that are not constrained; and whether no points coincide.

    A pair whose bound a third point implies, rho_mp + rho_pl <= rho_ml, both shorter, is left out.
    """
    K = bounds.shape[0]
    inverse, distinct = np.empty((K, K)), True
    for i in range(K):
        inverse[i, i] = 0.0
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
            inverse[i, j] = inverse[j, i] = 1.0 / rho if third == 0 else 0.0
    return inverse, distinct


@sweep
def solve_fast(  # noqa: C901, PLR0912, PLR0915
    tables: Float64,
    variances: Float64,
    points: Float64,
    residuals: Float64,
    slot: int,
    x: Float64,
    g: Float64,
    theta: Float64,
    variance: float,
    limit: float,
    centre: float,
    shift: float,
    radius: float,
    tol: float,
    max_iter: int,
    within: float,
    h: Float64,
    bounds: Float64,
    n: Float64,
    M: Float64,
    hat: Float64,
    multipliers: Float64,
) -> tuple[int, int, int]:
    """Take an observation into a window, reduce it to a problem, solve that, and average.

    Args:
        tables: (3, slots, slots), as in `Window`; those of K observations are used. NO_WINDOW
            stands for this and the next 12 where the problem is given, in h, bounds and n.
        variances: (slots,), relative noise variances.
        points: (slots, d), or NONE if the tables must do. Vectors are more accurate where d < K.
        residuals: (slots, d), or NONE.
        slot: of the newest observation.
        x: (d,), its point; empty if it is in the window already.
        g: (d,), its gradient.
        theta: (d,), filled with its denoised gradient.
        variance: its relative noise variance.
        limit: the largest entry that can be stored.
        centre: c of the residuals g - c x that are stored.
        shift: from that centre to the one of the problem. Cancellation is harmless while it is
            not much larger than the radius of the bounds.
        radius: how far apart residuals may be, relative to their points.
        tol: relative gap to reach.
        max_iter: limit on the steps; below zero, the window is only reduced.
        within: phi breaks its bounds by no more than this, relative to them.
        h: (K, q or more), residuals, as in `Problem`; filled, as all that follow.
        bounds: (K, K).
        n: (K,), precisions.
        M: (K, K), W. If nothing needs to change, it is the identity.
        hat: like h, phi = W h.
        multipliers: (K, K), the best ones.

    Returns:
        q; the number of steps, -1 where points coincide, which is for others, -2 if the
        observation cannot be taken like this, and nothing has changed; and how many pairs are at
        their bounds.
    """
    K, q = bounds.shape[0], h.shape[1]
    if x.size > 0:
        bad, total, worst = 0, 0.0, 0.0
        for j in range(x.size):
            theta[j] = g[j] - centre * x[j]
            # NaN fails every comparison.
            fine = (abs(x[j]) <= limit) & (abs(g[j]) <= limit) & (abs(theta[j]) <= limit)
            bad += 0 if fine else 1
        for i in range(K):
            p, r = points[i], residuals[i]
            a, b, e = 0.0, 0.0, 0.0
            if i != slot:
                for j in range(x.size):
                    f, u = p[j] - x[j], r[j] - theta[j]
                    a, b, e = a + f * f, b + f * u, e + u * u
            h[i, 0], M[i, 0], hat[i, 0] = a, b, e
            total, worst = max(total, a), max(worst, e)
        # Squares that overflow or vanish need other units.
        if bad > 0 or (K > 1 and not (1e-200 < total < 1e250 and 1e-200 < worst < 1e250)):
            return q, -2, 0
        for i in range(K):
            if i != slot:
                a, e = math.sqrt(h[i, 0]), math.sqrt(hat[i, 0])
                b = min(1.0, max(-1.0, M[i, 0] / (a * e))) if a * e > 0.0 else 0.0
                tables[0, i, slot] = tables[0, slot, i] = a
                tables[1, i, slot] = tables[1, slot, i] = b
                tables[2, i, slot] = tables[2, slot, i] = e
        variances[slot] = variance
        p, r = points[slot], residuals[slot]
        for j in range(x.size):
            p[j], r[j] = x[j], theta[j]
        for j in range(x.size):
            theta[j] = g[j]
    if tables.size > 0:
        scale, central, nearest, least = 0.0, 0, np.inf, np.inf
        for i in range(K):
            total = 0.0
            for j in range(K):
                f, e = tables[2, i, j], shift * tables[0, i, j]
                top = max(f, abs(e))
                if shift != 0.0 and top > 0.0:
                    # As a sum of squares that are not negative, in units that cannot overflow.
                    a, b = f / top, e / top
                    e = (a - b) * (a - b) + 2.0 * a * b * (1.0 - tables[1, i, j])
                    f = top * math.sqrt(max(e, 0.0))
                M[i, j] = f
                total += f
                scale = max(scale, f)
            least = min(least, variances[i])
            if total < nearest:  # to the others overall: the origin
                central, nearest = i, total
        if scale == 0.0:
            scale = 1.0
        for i in range(K):
            n[i] = least / variances[i]
            for j in range(K):
                bounds[i, j] = radius * tables[0, i, j] / scale
        q = points.shape[1] if points.shape[1] < K else 0
        for i in range(K):
            for c in range(q):
                e = shift * (points[i, c] - points[central, c])
                h[i, c] = ((residuals[i, c] - residuals[central, c]) - e) / scale
        if q == 0:
            # Residuals with these distances: the columns of a pivoted Cholesky factor of the Gram
            # matrix. Pivots below the rounding of the largest are noise, not a further dimension.
            row = multipliers[0]
            for i in range(K):
                for j in range(K):
                    M[i, j] = (M[i, j] / scale) * (M[i, j] / scale)
                row[i] = M[i, central]
            for i in range(K):
                for j in range(K):
                    M[i, j] = 0.5 * (row[i] + row[j] - M[i, j])
            while q < K:
                c = 0
                for i in range(K):
                    if M[i, i] > M[c, c]:
                        c = i
                if q > 0 and M[c, c] <= 1e-15 * K:
                    break
                e = 1.0 / math.sqrt(M[c, c]) if M[c, c] > 0.0 else 0.0
                p = M[c]
                for i in range(K):
                    h[i, q] = row[i] = p[i] * e
                for i in range(K):
                    p, e = M[i], row[i]
                    for j in range(K):
                        p[j] -= e * row[j]
                q += 1
    if max_iter < 0:
        return q, -1, 0
    pairs = K * (K - 1) // 2
    for i in range(K):
        for j in range(K):
            M[i, j] = multipliers[i, j] = 0.0
        M[i, i] = 1.0
    table, distinct = inverse_bounds(bounds)
    if not distinct:
        return q, -1, 0
    A, columns = np.empty((K, q + 1 + K)), np.empty((q, K))
    pivot, size, near = np.empty(K), np.empty(K), np.empty(K)
    of_pairs, index = np.empty((11, pairs)), np.empty((4, pairs), np.int64)
    free, space = np.empty(pairs, np.bool_), np.empty((0, 0))  # the latter grows when needed
    first, second = index[0], index[1]  # the two points of a pair
    listed, at = index[2], index[3]  # pairs that take part in a step; which of them are free
    lam, best_lam, old_lam = of_pairs[0], of_pairs[1], of_pairs[2]
    rho, inverse, lost = of_pairs[3], of_pairs[4], of_pairs[5]
    w, old_w, last = of_pairs[6], of_pairs[7], of_pairs[8]
    y, slope = of_pairs[9], of_pairs[10]
    m = 0
    for i in range(K):
        for j in range(i):
            first[m], second[m] = i, j
            rho[m], inverse[m] = bounds[i, j], table[i, j]
            m += 1
    limit, left = min(max_iter, STEPS), _ALLOWED * max(K, 16) ** 3
    kind, rounds, iterations, halvings = _NONE, 0, 0, 0
    gap, best, highest = np.inf, np.inf, -np.inf
    while True:
        if kind == _BEST:
            for e in range(pairs):
                lam[e] = best_lam[e]
        # hat = (N + Laplacian(lam))^-1 N h. Nodes are eliminated one by one, as Grassmann, Taksar
        # and Heyman do for Markov chains: every number stays non-negative and is only added to, so
        # tight clusters lose no digits. A row of A holds N h, precision and multipliers.
        # At first, without multipliers, hat is h.
        e, m = pairs, K if kind != _NONE else 0
        for i in range(m - 1, -1, -1):
            row, width = A[i], q + 1 + i
            for c in range(q):
                row[c] = n[i] * h[i, c]
            row[q] = n[i]
            e -= i
            for j in range(i):
                row[q + 1 + j] = lam[e + j]
            for k in range(K - 1, i, -2):  # two at once: the row is read half as often
                o = max(k - 1, i + 1)
                p, r = A[k], A[o]
                f, b = p[width] * pivot[k], 0.0
                if o < k:
                    b = r[width] * pivot[o]
                for j in range(width):
                    row[j] += f * p[j] + b * r[j]
            total = 0.0
            for j in range(q, width):
                total += row[j]
            pivot[i] = 1.0 / total
        for i in range(K):
            out, row = hat[i], A[i]
            for c in range(q):
                out[c] = row[c]
            for k in range(min(i, m)):
                p, f = hat[k], row[q + 1 + k]
                for c in range(q):
                    out[c] += f * p[c]
            total = 0.0
            for c in range(q):
                out[c] = h[i, c] if kind == _NONE else out[c] * pivot[i]
                columns[c, i] = out[c]
                total += abs(out[c]) + abs(out[c] - h[i, c])
            size[i] = ROUNDING * total  # how well it is known
        e, worst = 0, 0.0
        for i in range(K):
            for j in range(i):
                near[j] = 0.0
            for c in range(q):
                p, f = columns[c], columns[c, i]
                for j in range(i):
                    near[j] += (p[j] - f) * (p[j] - f)
            for j in range(i):
                w[e], lost[e] = math.sqrt(near[j]), min(ROUNDING, size[i] + size[j])
                worst = max(worst, (w[e] - lost[e]) * inverse[e])
                e += 1

        if kind == _NONE:  # these are the distances of the observations themselves
            excess, broken = 0.0, 0
            for e in range(pairs):
                over = w[e] - rho[e]
                if over > rho[e] * WITHIN + lost[e]:
                    broken += 1
                if inverse[e] > 0.0:
                    excess = max(excess, over)
            if broken == 0:  # exactly, so that observations stay the same to the last bit
                return q, 0, 0
            for e in range(pairs):
                # What would be right if all pairs were alike: by the precision with which the two
                # know their difference.
                f, b = n[first[e]], n[second[e]]
                ratio = w[e] * inverse[e] - 1.0
                if inverse[e] > 0.0 and K > 2:
                    ratio = max(ratio, min(0.01, excess * inverse[e])) * 2.0 / K
                lam[e] = best_lam[e] = max(ratio, 0.0) * f * b / (f + b)
                last[e] = 1.0
            kind = _ROUND if K > 2 else _BEST
            continue

        if kind == _ROUND and rounds < ROUNDS and worst <= READY:
            for e in range(pairs):
                old_lam[e], old_w[e] = lam[e], w[e]
                if w[e] * inverse[e] <= NEAR:
                    lam[e] = 0.0
            kind = _TRIAL
            continue
        if kind == _TRIAL and worst > CARRY:
            for e in range(pairs):
                lam[e], w[e] = old_lam[e], old_w[e]
            kind = _ROUND
        if kind == _ROUND and rounds < ROUNDS:
            for e in range(pairs):
                # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but swings to
                # and fro on such a pair, and is given up there.
                ratio = max(w[e] * inverse[e], 0.1)
                f = ratio * ratio if (ratio - 1.0) * (last[e] - 1.0) >= 0.0 else ratio
                lam[e] *= f
                last[e] = ratio
            rounds += 1
            continue

        dual = 0.0
        if kind != _BEST:
            # The relative gap of hat, shrunk until every pair fits, and the dual.
            kind, gap, spread, value = _STEP, 0.0, 0.0, 0.0
            shrink = 1.0 / max(worst, 1.0)
            for i in range(K):
                for c in range(q):
                    f, b = hat[i, c], h[i, c]
                    dual += 0.5 * n[i] * (f - b) * (f - b)
                    value += 0.5 * n[i] * (shrink * f - b) * (shrink * f - b)
                    spread += 0.5 * n[i] * f * f
            for e in range(pairs):
                slack = max(abs(rho[e] - shrink * w[e]) - 0.5 * lost[e], 0.0)
                if lam[e] > 0.0:
                    gap += lam[e] * w[e] * slack
                    dual += 0.5 * lam[e] * (w[e] - rho[e]) * (w[e] + rho[e])
            gap = (gap + (1.0 - shrink) * (1.0 - shrink) * spread) / value
            if gap < best:
                best = gap
                for e in range(pairs):
                    best_lam[e] = lam[e]
            if not gap < np.inf:
                kind = _BEST
                continue
            # Half the tolerance: the certificate is computed after a last rounding.
            if gap > 0.5 * tol and dual < highest * (1.0 - 1e-13) and halvings < HALVINGS:
                halvings += 1
                for e in range(pairs):
                    lam[e] = 0.5 * (lam[e] + old_lam[e])
                continue

        # M = (N + Laplacian(lam))^-1, from the elimination.
        for i in range(K - 1, -1, -1):
            row = M[i]
            for j in range(K):
                row[j] = 0.0
            row[i] = 1.0
            for k in range(i + 1, K):
                p, f = M[k], A[k, q + 1 + i] * pivot[k]
                for j in range(K):
                    row[j] += f * p[j]
        for i in range(K):
            row = M[i]
            for k in range(i):
                p, f = M[k], A[i, q + 1 + k]
                for j in range(K):
                    row[j] += f * p[j]
            for j in range(K):
                row[j] *= pivot[i]
        if kind == _BEST or gap <= 0.5 * tol:
            break

        m = 0
        for e in range(pairs):
            old_lam[e] = lam[e]
            if lam[e] > 0.0 or w[e] * inverse[e] > 1.0:
                listed[m] = e
                m += 1
        highest, halvings = dual, 0
        left -= m * m * (m / 24.0 + 3.0)
        if left < 0.0 or iterations >= limit:
            kind = _BEST
            continue
        # H = (b_e' M b_f)(v_e . v_f). Both factors are differences of rows, of X = M B and of
        # Y = hat v', so that an entry costs three operations instead of q. The ridge, relative to
        # the diagonal, grows with what such a difference has lost.
        ridge = 1e-12
        if m > CROWDED * (K - 1) * q:
            ridge = min(RIDGE, gap)
        if space.shape[1] <= m:
            space = np.empty((2 * K + 2 * m + 1, m + 1))
        X, Y, H, R = space[:K], space[K : 2 * K], space[2 * K :], space[2 * K + m + 1 :]
        target = H[m]
        for i in range(K):
            p, out = M[i], X[i]
            for k in range(m):
                e = listed[k]
                out[k] = p[first[e]] - p[second[e]]
                target[k] = Y[i, k] = 0.0
        for c in range(q):
            p = columns[c]
            for k in range(m):
                e = listed[k]
                slope[k] = p[first[e]] - p[second[e]]
            for i in range(K):
                out, f = Y[i], p[i]
                for k in range(m):
                    out[k] += f * slope[k]
        for k in range(m):
            e, row = listed[k], H[k]
            p, r = X[first[e]], X[second[e]]
            s, t = Y[first[e]], Y[second[e]]
            for j in range(m):
                row[j] = (p[j] - r[j]) * (s[j] - t[j])
            row[k] *= 1.0 + ridge + 1e-15 * inverse[e]
            f, b = lam[e], w[e] * w[e] * (w[e] * inverse[e] - 1.0)
            for j in range(m):
                target[j] += f * row[j]
            target[k] += b
            # At first as if there were no others, and twice as far; then as before.
            free[k] = f > 0.0 if iterations > 0 else f + 2.0 * b / row[k] > 0.0
        # The y >= 0 that minimises 1/2 <y, H y> - <y, target>. All entries whose sign is wrong
        # change sides at once, a few times at most.
        count = 0
        for _ in range(PIVOTS):
            count, wrong = 0, 0
            for k in range(m):
                slope[k] = target[k]
                if free[k]:
                    at[count] = k
                    count += 1
            for i in range(count - 1, -1, -1):  # Cholesky of H beside target, from the last row on
                row, p = R[i], H[at[i]]
                row[0] = target[at[i]]
                for j in range(i + 1):
                    row[j + 1] = p[at[j]]
                k = count - 1
                while k > i + 3:  # four finished rows at once: fewer numbers are read
                    p, r = R[k], R[k - 1]
                    s, t = R[k - 2], R[k - 3]
                    f, u = p[i + 1], r[i + 1]
                    a, b = s[i + 1], t[i + 1]
                    for j in range(i + 2):
                        row[j] -= (f * p[j] + u * r[j]) + (a * s[j] + b * t[j])
                    k -= 4
                while k > i:
                    p, f = R[k], R[k, i + 1]
                    for j in range(i + 2):
                        row[j] -= f * p[j]
                    k -= 1
                if not row[i + 1] > 0.0:
                    kind = _BEST
                f = 1.0 / math.sqrt(row[i + 1])
                for j in range(i + 2):
                    row[j] *= f
                row[i + 1] = f
            for i in range(count):
                row, p = R[i], H[at[i]]
                f = row[0]
                for j in range(i):
                    f -= row[j + 1] * y[j]
                f *= row[i + 1]
                y[i] = f
                for k in range(m):
                    slope[k] -= f * p[k]
            i = 0
            for k in range(m):
                f = slope[k]
                if free[k]:
                    f = y[i]
                    i += 1
                if f < 0.0 if free[k] else f > 0.0:
                    free[k] = not free[k]
                    wrong += 1
            if wrong == 0 or kind == _BEST:
                break
        for k in range(m):
            lam[listed[k]] = 0.0
        for i in range(count):
            lam[listed[at[i]]] = max(y[i], 0.0)
        iterations += 1

    # W = M N, drawn towards the centroid with hat until every pair fits.
    shrink, total, m = 1.0, 0.0, 0
    for i in range(K):
        total += n[i]
    for e in range(pairs):
        i, j = first[e], second[e]
        multipliers[i, j] = multipliers[j, i] = best_lam[e]
        m += 1 if best_lam[e] > 0.0 else 0
        if w[e] - lost[e] > rho[e] * (1.0 + within):
            shrink = min(shrink, rho[e] / (w[e] - lost[e]))
    for i in range(K):
        for j in range(K):
            M[i, j] = (shrink * M[i, j] + (1.0 - shrink) / total) * n[j]
    if shrink < 1.0:
        for c in range(q):
            mean = 0.0
            for i in range(K):
                mean += n[i] * hat[i, c] / total
            for i in range(K):
                hat[i, c] = mean + shrink * (hat[i, c] - mean)
    if x.size > 0 and M[slot, slot] != 1.0:
        r = residuals[slot]
        for i in range(K):
            p, s, f = points[i], residuals[i], M[slot, i]
            for j in range(x.size):
                theta[j] += f * ((s[j] - r[j]) - shift * (p[j] - x[j]))
    return q, iterations, m
