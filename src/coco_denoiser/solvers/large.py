"""Exact multipliers of a large problem: only pairs that matter enter, and no system is stored.

Problem, letters and steps are those of Newton's method (`_core/newton.pxi`). What differs is
how a step is computed, which is what counts from some hundred points on.

1. The multiplicative rounds run on whole tables. The pairs near their bounds make the list.
2. At every step all pairs are looked at, and violated ones join the list. So the end is an
   optimum over all pairs, although only a few times K of them were worked on.
3. The Newton system over the pairs of the list, (b_e' M b_f)(v_e . v_f), is solved by conjugate
   gradients. Once its diagonal is 1 it is well conditioned, and to apply it takes one product
   with M, K by K.

With a covariance every coordinate has an M of its own, and nothing else changes. Such problems of
any size begin here.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coco_denoiser._core import kernels
from coco_denoiser.problem import ROUNDING, Problem, roundings_of_pairs, stationary, worst_ratio
from coco_denoiser.solvers import newton
from coco_denoiser.solvers.newton import CARRY, READY, ROUNDS, needed_bounds
from coco_denoiser.typing import Float64, Int64

# Multiplications that a problem of K points may cost: a multiple of K^3, and more for small ones,
# between the third and the fourth number.
_ALLOWED, _ALLOWED_SMALL, _LEAST_SMALL, _MOST_SMALL = 1000.0, 8000.0, 1e8, 2e9
_ENOUGH = 1e-3  # how far conjugate gradients go, relative to where they start
_PRODUCTS = 400  # how many they may take
_PAIR = 16.0  # multiplications in whose time a product spreads and collects one pair
_STORED = 1000  # pairs up to which a system is stored, with a covariance
_HALVINGS = 6  # of a step along which the dual does not rise

Mask: TypeAlias = NDArray[np.bool_]


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps.
    """
    bounds = needed_bounds(problem.bounds)
    # What overflows is no answer, and its gap says so. Half the tolerance: the certificate is
    # computed after a last rounding.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        start = multiplicative(problem, bounds, newton.NEAR)
        table, iterations = _newton(problem, bounds, start, 0.5 * tol, max_iter)
    return table + table.T, iterations


def _newton(
    problem: Problem, bounds: Float64, table: Float64, tol: float, max_iter: int
) -> tuple[Float64, int]:
    """Run Newton's method from multipliers above the diagonal; return the best, and the steps."""
    cube = float(len(bounds)) ** 3
    small = min(max(_ALLOWED_SMALL * cube, _LEAST_SMALL), _MOST_SMALL)
    left = max(_ALLOWED * cube, small)
    iterations, halvings, best, top, kept, last = 0, 0, np.inf, -np.inf, table, table
    while True:
        system = System(problem, table)
        left -= system.elimination
        gap, value, dual = duality(problem, system, bounds, table)
        if gap < best * value:
            best, kept = gap / value, table
        if best <= tol or not gap < np.inf or left < 0.0:
            return kept, iterations
        if dual < top - 1e-13 * abs(top) and halvings < _HALVINGS:
            # The step was too long: the dual is concave, so that the way back leads upwards.
            table, halvings = 0.5 * (table + last), halvings + 1
            continue
        if iterations >= max_iter:
            return kept, iterations
        top, halvings, last = dual, 0, table
        ratio, _ = _ratios(system.hat, bounds)
        first, second = np.nonzero((table > 0.0) | (ratio > 1.0))
        system.list_pairs(first, second)
        ridge = min(newton.RIDGE, gap / value)
        lam = system.nonnegative(table[first, second], bounds[first, second], ridge)
        left -= system.spent
        table = np.zeros_like(table)
        table[first, second] = lam
        iterations += 1


class System:
    """The Newton system over pairs, applied and not stored: sum_c (b_e' M_c b_f) v_ec v_fc."""

    def __init__(self, problem: Problem, table: Float64) -> None:
        n, shares = problem.precisions, problem.coordinate_precisions
        K, q = problem.residuals.shape
        different = np.unique(shares)
        self.hat, self.M = np.empty((K, q)), np.empty((1 if different.size == 1 else q, K, K))
        for share in different:
            here = np.flatnonzero(shares == share)
            hat = np.ascontiguousarray(n[:, None] * problem.residuals[:, here])
            inverse = np.empty((K, K))
            kernels.solve_laplacian(table / share, n, hat, inverse)
            self.hat[:, here] = hat
            self.M[here if len(self.M) > 1 else slice(None)] = inverse / share
        self.elimination, self.spent = different.size * float(K * K * (K + q)), 0.0

    def list_pairs(self, first: Int64, second: Int64) -> None:
        """Set the pairs that a step works on."""
        self.first, self.second = map(np.ascontiguousarray, (first, second))
        self.v = self.hat[first] - self.hat[second]
        self.cost = self.hat.size * len(self.hat) + _PAIR * first.size

    def diagonal(self) -> Float64:
        """Return the diagonal of the system."""
        M, i, j = self.M, self.first, self.second
        own = M[:, i, i] + M[:, j, j] - 2.0 * M[:, i, j]
        return np.asarray(np.sum(own.T * self.v * self.v, axis=1))

    def product(self, x: Float64) -> Float64:
        """Return the matrix times x."""
        self.spent += self.cost
        pull, out = np.empty_like(self.hat), np.empty_like(x)
        kernels.spread(self.first, self.second, self.v, x, pull)
        moves = self.M[0] @ pull if len(self.M) == 1 else (self.M @ pull.T[:, :, None])[:, :, 0].T
        kernels.collect(self.first, self.second, self.v, np.ascontiguousarray(moves), out)
        return out

    def nonnegative(self, lam: Float64, rho: Float64, ridge: float) -> Float64:
        """Return the multipliers after a step of newton.py.

        Conjugate gradients go on where they were when pairs change sides. The system is stored
        where there are few pairs, and a covariance, which keeps newton.py from doing so.
        """
        w = np.linalg.norm(self.v, axis=1)
        diagonal, rest = self.diagonal(), w * w * (w / rho - 1.0)
        free = lam + 2.0 * rest / diagonal > 0.0
        if len(self.M) > 1 and lam.size <= _STORED:
            return self._stored(lam, rest, free, ridge)
        enough, left = _ENOUGH**2 * float(rest @ (rest / diagonal)), _PRODUCTS
        for _ in range(newton.PIVOTS):
            out = np.where(free, 0.0, -lam)
            lam, rest = lam + out, rest - self.product(out)
            move, rest, left = self._solve(rest, np.where(free, diagonal, np.inf), enough, left)
            lam = lam + move
            wrong = np.where(free, lam < 0.0, rest > 0.0)
            if left <= 0 or not wrong.any():
                break
            free = free != wrong
        return np.maximum(lam, 0.0)

    def _stored(self, lam: Float64, rest: Float64, free: Mask, ridge: float) -> Float64:
        """Return what `nonnegative` does, by factorisations.

        With a diagonal of 1: between near points the entries are smaller by many decades, and the
        pivots would be chosen by them.
        """
        i, j, H = self.first, self.second, np.zeros((lam.size, lam.size))
        for M, v in zip(self.M, self.v.T, strict=True):
            rows = v[:, None] * (M[i] - M[j])
            H += v * (rows[:, i] - rows[:, j])
        self.spent += H.size * (len(self.M) + lam.size / 6.0)
        unit = 1.0 / np.sqrt(np.diag(H))
        H *= unit[:, None] * unit
        lam, target = lam / unit, rest * unit
        np.fill_diagonal(H, 1.0 + ridge)
        target += H @ lam
        for _ in range(newton.PIVOTS):
            lam, inside = np.zeros_like(lam), np.flatnonzero(free)
            try:
                lam[inside] = np.linalg.solve(H[np.ix_(inside, inside)], target[inside])
            except np.linalg.LinAlgError:
                break
            wrong = np.where(free, lam < 0.0, target - H @ lam > 0.0)
            if not wrong.any():
                break
            free = free != wrong
        return np.maximum(lam * unit, 0.0)

    def _solve(
        self, rhs: Float64, diagonal: Float64, enough: float, most: int
    ) -> tuple[Float64, Float64, int]:
        """Solve by conjugate gradients, the diagonal scaled to 1.

        Entries whose diagonal is infinite stay zero. Returns the solution, what is left of the
        right-hand side, and how many of the products are left: none if they did not suffice.
        """
        x, r = np.zeros_like(rhs), rhs
        p = z = r / diagonal
        size = float(r @ z)
        while size > enough:
            change = self.product(p)
            bend = float(p @ change)
            if most <= 0 or not bend > 0.0:  # singular: the caller sees what that is worth
                return x, r, 0
            length = size / bend
            x, r = x + length * p, r - length * change
            z = r / diagonal
            size, before = float(r @ z), size
            p, most = z + (size / before) * p, most - 1
        return x, r, most


def duality(
    problem: Problem, system: System, bounds: Float64, table: Float64
) -> tuple[float, float, float]:
    """Return the duality gap of hat, shrunk until every pair fits, its objective, and the dual's.

    As in newton.py, over all pairs.
    """
    n, h, hat = problem.table, problem.residuals, system.hat
    first, second = np.nonzero(table)
    rho, lam = bounds[first, second], table[first, second]
    w = np.linalg.norm(hat[first] - hat[second], axis=1)
    lost = roundings_of_pairs(hat, h)[first, second]
    shrink = 1.0 / max(worst_ratio(hat, h, bounds, 1.0), 1.0)
    gap = 0.5 * (1.0 - shrink) ** 2 * float(np.sum(n * hat * hat))
    gap += float(np.sum(lam * w * np.maximum(np.abs(rho - shrink * w) - 0.5 * lost, 0.0)))
    dual = 0.5 * float(np.sum(n * (hat - h) ** 2) + np.sum(lam * (w - rho) * (w + rho)))
    return gap, 0.5 * float(np.sum(n * (shrink * hat - h) ** 2)), dual


def multiplicative(problem: Problem, bounds: Float64, near: float) -> Float64:
    """Return multipliers, (K, K) above the diagonal, of pairs that carry the rest.

    Those are the pairs whose distance exceeds this share of their bound.
    """
    (ratio, _), last, n = _ratios(problem.residuals, bounds), np.ones(1), problem.precisions
    soft = 2.0 * n[:, None] * n / (n[:, None] + n)
    excess = float(np.max((ratio - 1.0)[ratio > 1.0] * bounds[ratio > 1.0], initial=0.0))
    least = np.minimum(0.01, excess / bounds)
    lam = np.triu(np.maximum(ratio - 1.0, least) * soft / len(bounds), 1)
    for rounds in range(ROUNDS + 1):
        ratio, worst = _ratios(stationary(lam, problem), bounds)
        if worst <= READY or rounds == ROUNDS:
            kept = np.where(ratio > (near if rounds < ROUNDS else 0.0), lam, 0.0)
            carried = kept.any() and _ratios(stationary(kept, problem), bounds)[1] <= CARRY
            if rounds == ROUNDS or carried:
                break
        x = np.maximum(ratio, 0.1)
        lam *= np.where((x - 1.0) * (last - 1.0) >= 0.0, x * x, x)  # as in newton.py
        last = x
    return kept


def _ratios(phi: Float64, bounds: Float64) -> tuple[Float64, float]:
    """Return the ratios of distance to bound, above the diagonal, and the largest."""
    apart = kernels.distances(np.ascontiguousarray(phi))
    return np.triu(apart / bounds), float(np.max((apart - ROUNDING) / bounds))


def substitute(U: Float64, x: Float64) -> None:
    """Overwrite x by (U'U)^-1 x, for a Cholesky factor of NumPy's, which has no substitution."""
    for k in range(x.size):
        x[k] /= U[k, k]
        x[k + 1 :] -= x[k] * U[k, k + 1 :]
    for k in range(x.size - 1, -1, -1):
        x[k] = (x[k] - U[k, k + 1 :] @ x[k + 1 :]) / U[k, k]
