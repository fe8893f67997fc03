"""The paper's model: gradients of a function whose curvature lies between mu and L.

    argmin over theta of  sum_i ||theta_i - g_i||^2 / v_i
    subject to  ||theta_m - theta_l - c (x_m - x_l)|| <= r ||x_m - x_l||  for all pairs,

with c = (L + mu) / 2 and r = (L - mu) / 2. The newest theta is an average of residuals g - c x
whose weights are not negative.

A window knows, of every two observations, how far apart their points are and their residuals
h = g - c0 x, and the cosine between the two differences (`window.py`). From these, whatever the
vectors are, Newton's method makes a problem at the present centre c and solves it, in the compiled
function that a batch uses too; the certificate says how good that is. What the method cannot solve
is handed to the loop over all methods, as the same problem.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import solvers
from coco_denoiser.certificate import certify_tables
from coco_denoiser.problem import NONE, Problem, centre_and_radius, ones
from coco_denoiser.solution import Solution
from coco_denoiser.solvers import closed_form, newton
from coco_denoiser.solvers.newton import NOTHING
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
        bounds: L and mu of the last step; NaN before the first if one of them is a function.
        centre: c of the last step.
        radius: r of the last step.
    """

    def __init__(
        self, L: Bound, mu: Bound = 0.0, *, tol: float = 1e-9, method: str = "auto"
    ) -> None:
        self.L, self.mu = L, mu
        self.method = check.one_of("method", method, ("auto", "fdpg"))
        self._multipliers: Float64 | None = None  # of the last window, by slots
        self._space = _space(0)
        self.tol = check.positive("tol", tol)
        self.bounds = math.nan, math.nan
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
        K, newest, c = window.count, window.newest, self.centre
        if K == 2:
            v, u = window.variances.item(newest), window.variances.item(1 - newest)
            rho = self.radius * window.points.item(0, 1)
            weight = closed_form.pull(window.distances(c).item(0, 1), rho) * (v / (v + u))
            weights = np.full(2, weight)
            weights[newest] = 1.0 - weight
            self._multipliers = None
            return Estimate(weights, c, curvature=self.bounds[0], active=int(weight > 0.0))
        if self.method == "auto" and K < solvers.LARGE:
            given = K, newest, window.centre, *window.short(), NOTHING
            steps, active, gap, violation = self.step(window, *given)
            if steps >= 0:
                weights, nan = self._space[3][newest], math.nan
                return Estimate(weights, c, nan, nan, self.bounds[0], active, gap, violation, steps)
        return self.estimate_hard(window)

    def step(
        self,
        window: Window,
        K: int,
        newest: int,
        centre: float,
        points: Float64,
        residuals: Float64,
        new: newton.Observation,
    ) -> tuple[int, int, float, float]:
        """Solve an ordinary window of K observations by Newton's method, with a certificate.

        Args:
            window: its tables, and its variances.
            K: how many observations there are with the newest.
            newest: the slot of that.
            centre: c0 of the residuals.
            points: the vectors, or NONE.
            residuals: likewise.
            new: the observation, where it is not yet in the window; else NOTHING.

        Returns:
            The number of steps, the number of pairs at their bounds, gap and violation. There is
            an answer only if steps are not negative: with -1 the window is for `estimate_hard`,
            with -2 nothing has changed, and the observation is for the passes of `vectors.py`.
        """
        if len(self._space[0]) != K:
            self._space = _space(K)
        h, bounds, n, _, phi, lam = self._space
        tol = self.tol
        given = window.tables, window.all_variances, points, residuals, newest
        curvature = centre, self.centre - centre, self.radius
        limits = tol, newton.STEPS, min(0.1 * tol, solvers.FEASIBLE)
        q, steps, active = newton.solve_fast(*given, *new, *curvature, *limits, *self._space)
        if steps < 0:
            return steps, active, math.inf, math.inf
        gap, violation = certify_tables(h, bounds, n, ones(q), phi, lam, NONE)
        return steps if gap <= tol and violation <= tol else -1, active, gap, violation

    def estimate_hard(self, window: Window) -> Estimate:
        """Return the weights of the newest observation, by all methods."""
        answer = self.solve(window, self._start(window))
        if self.method == "fdpg":
            self._multipliers = answer.multipliers / window.variances.min()
        shortfall, status = None, answer.status
        if not status.success:
            reached = f"relative gap {answer.gap:.1e}, tol={self.tol:.1e}."
            shortfall = f"{answer.method} {status}: {reached}"
        return Estimate(
            answer.weights[window.newest],
            self.centre,
            curvature=self.bounds[0],
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
        problem = self.problem(window)
        return solvers.solve(problem, method=self.method, tol=self.tol, start=start)

    def problem(self, window: Window) -> Problem:
        """Reduce a window, at the bounds of the last step."""
        h, bounds, n, *_ = space = _space(window.count)
        given = window.tables, window.all_variances, *window.short(), window.newest, *NOTHING
        curvature = window.centre, self.centre - window.centre, self.radius
        q, _, _ = newton.solve_fast(*given, *curvature, self.tol, -1, 0.0, *space)
        return Problem(np.ascontiguousarray(h[:, :q]), bounds, n, ones(q))


def _space(K: int) -> tuple[Float64, ...]:
    """Return what `newton.solve_fast` fills: residuals, bounds, precisions, W, phi, multipliers."""
    table = np.zeros((5, K, K))
    return table[0], table[1], np.zeros(K), *table[2:]


def _now(bound: Bound) -> Any:
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    if type(bound) is float:
        return bound
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value
