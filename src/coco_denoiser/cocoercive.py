"""The paper's model: gradients of a function whose curvature lies between mu and L.

    argmin over theta of  sum_i ||theta_i - g_i||^2 / v_i
    subject to  ||theta_m - theta_l - c (x_m - x_l)|| <= r ||x_m - x_l||  for all pairs,

with c = (L + mu) / 2 and r = (L - mu) / 2. The newest theta is an average of residuals g - c x
whose weights are not negative.

A window knows, of every two observations, how far apart their points are and their residuals
h = g - c0 x, and the cosine between the two differences (`window.py`). `reduce` turns that into a
problem at any other centre c, by arithmetic on the three tables; Newton's method, which a batch
uses too, solves it; and the certificate says how good that is. These are three compiled calls,
whatever the vectors are: they need float64 and K by K numbers only. What Newton's method cannot
solve is handed to the loop over all methods, as the same problem.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import solvers
from coco_denoiser._jit import kernel
from coco_denoiser.certificate import certify_tables
from coco_denoiser.problem import NONE, Problem, centre_and_radius, ones
from coco_denoiser.solution import Solution
from coco_denoiser.solvers import closed_form, newton
from coco_denoiser.typing import Float64
from coco_denoiser.window import Estimate, Model, Window

Bound = float | Callable[[], float]


class CoCoercive(Model):
    """Projection onto the gradients that obey the curvature bounds pair by pair.

    Args:
        L: upper bound on the curvature, or a function that returns it.
        mu: lower bound, or a function.
        tol: relative duality gap to reach.
        method: "auto", or "fdpg" for the paper's Algorithm 1 with its warm start: the multipliers
            of the pairs that stay in the window, zero for the new ones.

    Attributes:
        bounds: L and mu of the last step; None before the first if one of them is a function.
        centre: c of the last step.
        radius: r of the last step.
    """

    def __init__(
        self, L: Bound, mu: Bound = 0.0, *, tol: float = 1e-9, method: str = "auto"
    ) -> None:
        self.L, self.mu = L, mu
        self.method = check.one_of("method", method, ("auto", "fdpg"))
        self._multipliers: Float64 | None = None  # of the last window, by slots
        self.tol = check.positive("tol", tol)
        self.bounds: tuple[float, float] | None = None
        self.radius = np.inf
        self._asked: tuple[Bound, Bound, float] | None = None
        if not (callable(L) or callable(mu)):
            self.begin(1.0)

    @property
    def settings(self) -> dict[str, object]:
        """What the model was made with, by name."""
        given = {"model": "cocoercive", "L": self.L, "mu": self.mu, "tol": self.tol}
        return {**given} if self.method == "auto" else {**given, "method": self.method}

    @property
    def reference(self) -> float:  # type: ignore[override]
        """The gradients themselves are stored where c may change, and with it by much."""
        return 0.0 if callable(self.L) or callable(self.mu) else self.centre

    def begin(self, sign: float) -> None:
        """Ask for the curvature bounds."""
        if self._asked == (self.L, self.mu, sign):  # numbers, as before
            return
        L, mu = _now(self.L), _now(self.mu)
        if self.bounds != (L, mu):
            self.bounds = check.curvature(L, mu)
        centre, self.radius = centre_and_radius(*self.bounds)
        self.centre = sign * centre
        changing = callable(self.L) or callable(self.mu)
        self._asked = None if changing else (self.L, self.mu, sign)

    def estimate(self, window: Window) -> Estimate:
        """Return the weights of the newest observation."""
        K, newest, c, tol = window.count, window.newest, self.centre, self.tol
        curvature = self.bounds[0] if self.bounds else math.nan
        if K == 2:
            v, u = window.variances.item(newest), window.variances.item(1 - newest)
            rho = self.radius * window.points.item(0, 1)
            weight = closed_form.pull(window.distances(c).item(0, 1), rho) * (v / (v + u))
            weights = np.full(2, weight)
            weights[newest] = 1.0 - weight
            self._multipliers = None
            return Estimate(weights, c, curvature=curvature, active=int(weight > 0.0))
        if self.method == "auto" and K < solvers.LARGE:
            h, bounds, n = self._reduced(window)
            within = min(0.1 * tol, solvers.FEASIBLE)
            W, phi, lam, steps = newton.solve_fast(h, bounds, n, tol, newton.STEPS, within)
            if steps >= 0:
                gap, violation = certify_tables(h, bounds, n, ones(h.shape[1]), phi, lam, NONE)
                if gap <= tol and violation <= tol:
                    nan, active = math.nan, int(np.count_nonzero(lam)) // 2
                    return Estimate(
                        W[newest], c, nan, nan, curvature, active, gap, violation, steps
                    )
        answer = self.solve(window, self._start(window))
        if self.method == "fdpg":
            self._multipliers = answer.multipliers / window.variances.min()
        shortfall, status = None, answer.status
        if not status.success:
            shortfall = f"{answer.method} {status}: relative gap {answer.gap:.1e}, tol={tol:.1e}."
        return Estimate(
            answer.weights[newest],
            c,
            curvature=curvature,
            active=int(np.count_nonzero(answer.multipliers)) // 2,
            gap=answer.gap,
            violation=answer.violation,
            iterations=answer.iterations,
            shortfall=shortfall,
        )

    def _start(self, window: Window) -> Float64 | None:
        """Return where to start from: the last window's multipliers, without the newest's."""
        if self._multipliers is None:
            return None
        known = min(len(self._multipliers), window.count)
        start = np.zeros((window.count, window.count))
        start[:known, :known] = self._multipliers[:known, :known]
        start[window.newest] = start[:, window.newest] = 0.0
        start[~np.isfinite(start)] = 0.0  # points that coincided
        start *= window.variances.min()
        return start

    def solve(self, window: Window, start: Float64 | None = None) -> Solution:
        """Solve the whole window, at the bounds of the last step; all is indexed by slots."""
        h, bounds, n = self._reduced(window)
        problem = Problem(h, bounds, n, ones(h.shape[1]))
        return solvers.solve(problem, method=self.method, tol=self.tol, start=start)

    def _reduced(self, window: Window) -> tuple[Float64, Float64, Float64]:
        """Return residuals, bounds and precisions of a window, as in `Problem`."""
        h = NONE if window.vectors is None else window.coordinates(self.centre)
        shift = self.centre - window.centre
        return reduce(window.tables, window.variances, h, shift, self.radius)


def _now(bound: Bound) -> Any:
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    if type(bound) is float:
        return bound
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value


@kernel
def reduce(  # noqa: C901, PLR0912
    tables: Float64, variances: Float64, vectors: Float64, shift: float, radius: float
) -> tuple[Float64, Float64, Float64]:
    """Return residuals, bounds and precisions, as in `Problem`.

    Args:
        tables: (3, slots, slots): ||dx||, cosines, and ||dh||; those of K observations are used.
        variances: (K,), relative noise variances.
        vectors: (K, d), residuals at the new centre, more accurate than what can be recovered
            from the tables; NONE if the tables must do.
        shift: from the centre of the tables to the new one. Cancellation is harmless while it is
            not much larger than the radius of the bounds.
        radius: how far apart residuals may be, relative to their points.
    """
    K = variances.size
    bounds, gram, factor = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    n, square = np.empty(K), np.empty(K)
    scale, central, nearest, least = 0.0, 0, np.inf, np.inf
    for i in range(K):
        total = 0.0
        for j in range(K):
            H, X = tables[2, i, j], shift * tables[0, i, j]
            top = max(H, abs(X))
            if shift != 0.0 and top > 0.0:
                # As a sum of squares that are not negative, in units that cannot overflow.
                a, b = H / top, X / top
                e = (a - b) * (a - b) + 2.0 * a * b * (1.0 - tables[1, i, j])
                H = top * math.sqrt(max(e, 0.0))
            gram[i, j] = H
            total += H
            scale = max(scale, H)
        least = min(least, variances[i])
        if total < nearest:  # to the others overall: the origin
            central, nearest = i, total
    if scale == 0.0:
        scale = 1.0
    for i in range(K):
        n[i] = least / variances[i]
        square[i] = (gram[i, central] / scale) ** 2
        for j in range(K):
            bounds[i, j] = radius * tables[0, i, j] / scale
    if vectors.size > 0:
        h = np.empty((K, vectors.shape[1]))
        for i in range(K):
            for c in range(h.shape[1]):
                h[i, c] = (vectors[i, c] - vectors[central, c]) / scale
        return h, bounds, n
    # Residuals with these distances: the columns of a pivoted Cholesky factor of the Gram matrix.
    # Pivots below the rounding of the largest are noise, not a further dimension.
    for i in range(K):
        for j in range(K):
            e = gram[i, j] / scale
            gram[i, j] = 0.5 * (square[i] + square[j] - e * e)
    rank = 0
    while rank < K:
        pivot = 0
        for i in range(K):
            if gram[i, i] > gram[pivot, pivot]:
                pivot = i
        if gram[pivot, pivot] <= 1e-15 * K:
            break
        e, column, row = 1.0 / math.sqrt(gram[pivot, pivot]), factor[rank], gram[pivot]
        for i in range(K):
            column[i] = row[i] * e
        for i in range(K):
            row, e = gram[i], column[i]
            for j in range(K):
                row[j] -= e * column[j]
        rank += 1
    h = np.empty((K, max(rank, 1)))
    for i in range(K):
        h[i, 0] = 0.0
        for c in range(rank):
            h[i, c] = factor[c, i]
    return h, bounds, n
