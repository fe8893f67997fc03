"""The paper's model: gradients of a function whose curvature lies between mu and L.

    argmin over theta of  sum_i ||theta_i - g_i||^2 / v_i
    subject to  ||theta_m - theta_l - c (x_m - x_l)|| <= r ||x_m - x_l||  for all pairs,

with c = (L + mu) / 2 and r = (L - mu) / 2. The newest theta is an average of residuals g - c x
whose weights are not negative.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.problem import Problem, centre_and_radius
from coco_denoiser.solution import Solution
from coco_denoiser.solvers import closed_form, solve
from coco_denoiser.step import as_estimate, reduced_window, solve_step
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
        curvature = self.bounds[0] if self.bounds else np.nan
        if window.count == 2:
            weight = self.weight_of_other(window)
            weights = np.full(2, weight)
            weights[window.newest] = 1.0 - weight
            self._multipliers = None
            return Estimate(weights, self.centre, curvature=curvature, active=int(weight > 0.0))
        if self.method == "auto":
            return solve_step(
                window, centre=self.centre, radius=self.radius, tol=self.tol, curvature=curvature
            )
        answer = self.solve(window, self._start(window))
        if self.method == "fdpg":
            self._multipliers = answer.multipliers / window.variances.min()
        return as_estimate(
            answer, window.newest, centre=self.centre, tol=self.tol, curvature=curvature
        )

    def weight_of_other(self, window: Window) -> float:
        """Return the weight of the older of two observations, from the closed form."""
        apart = window.distances(self.centre).item(0, 1)
        v, u = (window.variances.item(slot) for slot in (window.newest, 1 - window.newest))
        return closed_form.pull(apart, self.radius * window.points.item(0, 1)) * (v / (v + u))

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
        h, bounds, n = reduced_window(window, self.centre, self.radius)
        problem = Problem(h, bounds, n, np.ones(h.shape[1]))
        return solve(problem, method=self.method, tol=self.tol, start=start)


def _now(bound: Bound) -> Any:
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    if type(bound) is float:
        return bound
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value
