"""Exact multipliers of an ordinary window by Newton's method on the pairs at their bounds.

Problem and letters are those of interior_point.py. For one pair, 1 / w is linear in its multiplier,
so w(lam) = rho is solved as 1 / w = 1 / rho (as More and Sorensen do in a trust region):

    H dlam = w^2 (w / rho - 1)    with H the Hessian of the dual, (b_e' M b_f)(v_e . v_f).

Which pairs are at their bounds is decided by the same model: multipliers lam + dlam that are
not negative, and zero where the model says that the pair is then inside its bound. From a few
multiplicative rounds this takes three to five steps. A step after which the dual, which is concave,
is lower than before was too long, and is halved. Where there are more pairs than residuals have
degrees of freedom, as in the plane, multipliers are not unique and H is singular: a ridge that
falls with the gap (Levenberg and Marquardt) keeps steps short without slowing down the last ones.
It may still fall short: the caller sees that by the gap, and uses interior_point.py instead.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel
from coco_denoiser._linalg import cholesky, substitute
from coco_denoiser.problem import COINCIDENT, Problem, worst_excess
from coco_denoiser.solvers.closed_form import multiplier
from coco_denoiser.solvers.interior_point import (
    duality_gap,
    hessian,
    irredundant,
    multiplicative,
    rounded_ratio,
    stationary,
)
from coco_denoiser.typing import Float64, Int64

STEPS = 15
NEAR = 0.9  # pairs nearer to their bounds than this are looked at first
PIVOTS = 12  # how often the pairs at their bounds are chosen anew in one step
HALVINGS = 4  # of a step
# The ridge is the relative gap, at most the first, from so many pairs per degree of freedom on.
RIDGE, CROWDED = 0.01, 0.6
# Multiplications that a window of K points may cost, so many times K^3, or 16^3 if that is more.
_ALLOWED = 300.0


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations."""
    return multipliers_of(problem.residuals, problem.bounds, problem.precisions, tol, max_iter)


@kernel
def multipliers_of(
    h: Float64, bounds: Float64, n: Float64, tol: float, max_iter: int
) -> tuple[Float64, int]:
    """Return the best multipliers, (K, K), and the number of steps.

    They are zero if nothing needs to change. Points that coincide are for others: -1 steps.
    """
    K, q = h.shape
    table = np.zeros((K, K))
    for i in range(K):
        for j in range(i):
            if bounds[i, j] <= COINCIDENT:
                return table, -1
    if worst_excess(h, bounds, 1e-12) <= 0.0:
        return table, 0
    if K == 2:
        table[0, 1] = table[1, 0] = multiplier(h, bounds, n)
        return table, 0
    first, second, rho, soft = irredundant(bounds, n)
    pairs = rho.size
    lam, w, lost, nothing = np.zeros(pairs), np.empty(pairs), np.empty(pairs), np.zeros(pairs)
    work, hat, both = np.empty(pairs, np.int64), np.empty((K, q)), np.empty((K, q + K))
    multiplicative(first, second, rho, soft, h, n, lam, w, hat, NEAR)
    cube = max(K, 16) * max(K, 16) * max(K, 16)
    left = _ALLOWED * cube
    iterations, halvings, best, highest = 0, 0, np.inf, -np.inf
    kept, before = lam.copy(), lam.copy()
    while True:
        stationary(first, second, lam, n, h, both)
        worst = rounded_ratio(first, second, rho, h, both, w, lost)
        gap, value, dual = duality_gap(h, n, rho, lam, w, lost, both, worst)
        if not gap < np.inf:
            break
        if gap < best * value:
            best = gap / value
            _copy(lam, kept)
        # Half the tolerance: the certificate is computed after a last rounding.
        if best <= 0.5 * tol:
            break
        dual += _work(rho, w, lam)
        if dual < highest * (1.0 - 1e-13) and halvings < HALVINGS:
            halvings += 1
            for e in range(pairs):
                lam[e] = 0.5 * (lam[e] + before[e])
            continue
        highest, halvings = dual, 0
        _copy(lam, before)
        if iterations >= min(max_iter, STEPS):
            break
        m = _listed(rho, w, lam, work)
        left -= m * m * (m / 24.0 + 3.0)
        ridge = min(RIDGE, gap / value) if m > CROWDED * (K - 1) * q else 1e-12
        if left < 0.0 or not _step(first, second, rho, w, lam, nothing, both, hat, work[:m], ridge):
            break
        iterations += 1
    for e in range(pairs):
        table[first[e], second[e]] = table[second[e], first[e]] = kept[e]
    return table, iterations


@fragment
def _copy(source: Float64, target: Float64) -> None:
    for e in range(source.size):
        target[e] = source[e]


@fragment
def _work(rho: Float64, w: Float64, lam: Float64) -> float:
    """Return what the multipliers add to the objective in the Lagrangian."""
    total = 0.0
    for e in range(lam.size):
        total += 0.5 * lam[e] * (w[e] - rho[e]) * (w[e] + rho[e])
    return total


@fragment
def _listed(rho: Float64, w: Float64, lam: Float64, work: Int64) -> int:
    """List the pairs that a step works on; return how many."""
    m = 0
    for e in range(rho.size):
        if lam[e] > 0.0 or w[e] > rho[e]:
            work[m] = e
            m += 1
    return m


@fragment
def _step(
    first: Int64,
    second: Int64,
    rho: Float64,
    w: Float64,
    lam: Float64,
    nothing: Float64,
    both: Float64,
    hat: Float64,
    work: Int64,
    ridge: float,
) -> bool:
    """Improve the multipliers of the pairs at work; False if their system is singular."""
    m = work.size
    for i in range(hat.shape[0]):
        for c in range(hat.shape[1]):
            hat[i, c] = both[i, c]
    H = hessian(first, second, rho, rho, nothing, hat, both, work, ridge)
    rhs, y = np.empty(m), np.empty(m)
    for k in range(m):
        e = work[k]
        rhs[k] = w[e] * w[e] * (w[e] / rho[e] - 1.0)
        y[k] = lam[e]
    if not _nonnegative(H, rhs, y):
        return False
    for k in range(m):
        lam[work[k]] = y[k]
    return True


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
    for _ in range(PIVOTS):
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
    """Add sign H y to out; H is symmetric."""
    for k in range(y.size):
        factor = sign * y[k]
        if factor != 0.0:
            for f in range(y.size):
                out[f] += factor * H[k, f]
