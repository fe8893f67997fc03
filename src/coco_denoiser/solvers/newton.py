"""Exact multipliers of an ordinary window by Newton's method on the pairs at their bounds.

Problem and letters are those of interior_point.py. For one pair, 1 / w is linear in its multiplier,
so w(lam) = rho is solved as 1 / w = 1 / rho (as More and Sorensen do in a trust region):

    H dlam = w^2 (w / rho - 1)    with H the Hessian of the dual, (b_e' M b_f)(v_e . v_f).

Which pairs are at their bounds is decided by the same model: multipliers lam + dlam that are
not negative, and zero where the model says that the pair is then inside its bound. From a few
multiplicative rounds this takes three to five steps. Where pairs depend on each other it may run
away: the caller sees that by the gap, and follows the path of interior_point.py instead.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel
from coco_denoiser._linalg import cholesky, substitute
from coco_denoiser.geometry import Window
from coco_denoiser.solvers._interior_gap import duality_gap, rounded_ratio
from coco_denoiser.solvers._interior_step import hessian
from coco_denoiser.solvers.interior_point import irredundant, multiplicative, stationary
from coco_denoiser.typing import Float64

STEPS = 10
_NEAR = 0.9  # pairs nearer to their bounds than this are looked at first
_PIVOTS = 12  # how often the pairs at their bounds are chosen anew in one step
_WORSE = 10.0  # a step that makes the gap so many times larger is the last
# Multiplications that a window of K points may cost, so many times K^3, or 16^3 if that is more.
_ALLOWED = 300.0


def solve(window: Window, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations."""
    return multipliers_of(
        window.residuals, window.bounds, window.precisions, 0.5 * tol, min(max_iter, STEPS)
    )


@kernel
def multipliers_of(
    h: Float64, bounds: Float64, n: Float64, tol: float, max_iter: int
) -> tuple[Float64, int]:
    """Return the best multipliers, (K, K), and the number of steps."""
    K, q = h.shape
    first, second, rho, soft = irredundant(bounds, n)
    pairs = rho.size
    lam, w, lost = np.zeros(pairs), np.empty(pairs), np.empty(pairs)
    ones, zeros = np.ones(pairs), np.zeros(pairs)
    work, hat, both = np.empty(pairs, np.int64), np.empty((K, q)), np.empty((K, q + K))
    multiplicative(first, second, rho, soft, h, n, lam, w, hat, work, _NEAR)
    left = _ALLOWED * max(K, 16) ** 3
    iterations, best, kept = 0, np.inf, lam.copy()
    while True:
        stationary(first, second, lam, n, h, both)
        worst = rounded_ratio(first, second, rho, h, both, w, lost)
        gap, value, _ = duality_gap(h, n, rho, lam, w, lost, both, worst)
        if not gap < _WORSE * best * value:
            break
        if gap < best * value:
            best = gap / value
            for e in range(pairs):
                kept[e] = lam[e]
        if best <= tol or iterations >= max_iter:
            break
        m = 0
        for e in range(pairs):
            if lam[e] > 0.0 or w[e] > rho[e]:
                work[m] = e
                m += 1
        left -= m * m * (m / 24.0 + 3.0)
        if left < 0.0:
            break
        for i in range(K):
            for c in range(q):
                hat[i, c] = both[i, c]
        H = hessian(first, second, rho, ones, zeros, hat, both, work[:m], 1e-12)
        rhs, now = np.empty(m), np.empty(m)
        for k in range(m):
            e = work[k]
            rhs[k] = w[e] * w[e] * (w[e] / rho[e] - 1.0)
            now[k] = lam[e]
        if not _nonnegative(H, rhs, now):
            break
        for k in range(m):
            lam[work[k]] = now[k]
        iterations += 1
    table = np.zeros((K, K))
    for e in range(pairs):
        table[first[e], second[e]] = table[second[e], first[e]] = kept[e]
    return table, iterations


@fragment
def _nonnegative(H: Float64, rhs: Float64, y: Float64) -> bool:
    """Overwrite y by the y >= 0 that minimises 1/2 <y, H y> - <y, rhs + H y_before>.

    All entries whose sign is wrong change sides at once, a few times at most.
    """
    m = y.size
    free, at, target = np.empty(m, np.bool_), np.empty(m, np.int64), rhs.copy()
    for k in range(m):
        # At first as if there were no others, and twice as far.
        free[k] = y[k] + 2.0 * rhs[k] / H[k, k] > 0.0
    _add_product(H, y, 1.0, target)
    for _ in range(_PIVOTS):
        count = 0
        for k in range(m):
            if free[k]:
                at[count] = k
                count += 1
        U, x = np.empty((count, count)), np.empty(count)
        for a in range(count):
            x[a] = target[at[a]]
            for b in range(a, count):
                U[a, b] = H[at[a], at[b]]
        if not cholesky(U):
            return False
        substitute(U, x)
        for k in range(m):
            y[k] = 0.0
            rhs[k] = target[k]
        for a in range(count):
            y[at[a]] = x[a]
        _add_product(H, y, -1.0, rhs)
        wrong = 0
        for k in range(m):
            if y[k] < 0.0 if free[k] else rhs[k] > 0.0:
                free[k] = not free[k]
                wrong += 1
        if wrong == 0:
            break
    for k in range(m):
        y[k] = max(y[k], 0.0)
    return True


@fragment
def _add_product(H: Float64, y: Float64, sign: float, out: Float64) -> None:
    """Add sign H y to out; H is symmetric, and its upper triangle filled."""
    for k in range(y.size):
        total = sign * H[k, k] * y[k]
        for f in range(k + 1, y.size):
            total += sign * H[k, f] * y[f]
            out[f] += sign * H[k, f] * y[k]
        out[k] += total
