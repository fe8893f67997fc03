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
from coco_denoiser.models.base import Averaging, Model, Snapshot
from coco_denoiser.problem import NONE, centre_and_radius, from_tables
from coco_denoiser.solution import Solution
from coco_denoiser.solvers import closed_form, solve
from coco_denoiser.typing import Float64

Bound = float | Callable[[], float]


class CoCoercive(Model):
    """Projection onto the gradients that obey the curvature bounds pair by pair.

    Args:
        L: upper bound on the curvature, or a function that returns it.
        mu: lower bound, or a function.
        tol: relative duality gap to reach.

    Attributes:
        bounds: L and mu of the last step; None before the first if one of them is a function.
        centre: c of the last step.
        radius: r of the last step.
    """

    def __init__(self, L: Bound, mu: Bound, *, tol: float = 1e-9) -> None:
        self.L, self.mu = L, mu
        self.tol = check.positive("tol", tol)
        self.bounds: tuple[float, float] | None = None
        self.radius = np.inf
        if not (callable(L) or callable(mu)):
            self.begin(1.0)

    @property
    def settings(self) -> dict[str, object]:
        """What the model was made with, by name."""
        names = ("L", "mu", "tol")
        return {"model": "cocoercive", **{name: getattr(self, name) for name in names}}

    def begin(self, sign: float) -> None:
        """Ask for the curvature bounds."""
        L, mu = _now(self.L), _now(self.mu)
        if self.bounds != (L, mu):
            self.bounds = check.curvature(L, mu)
        centre, self.radius = centre_and_radius(*self.bounds)
        self.centre = sign * centre

    def average(self, window: Snapshot) -> Averaging:
        """Return the weights of the newest observation."""
        if window.variances.size == 2:
            return self._average_two(window)
        answer, trouble = self.solve(window), None
        if not answer.status.success:
            trouble = (
                f"{answer.method} {answer.status.value}: relative gap {answer.gap:.1e}, "
                f"tol={self.tol:.1e}."
            )
        return Averaging(
            answer.weights[window.newest],
            self.centre,
            int(np.count_nonzero(answer.multipliers)) // 2,
            answer.gap,
            answer.violation,
            trouble,
            None,
            None,
            self.bounds[0] if self.bounds else None,
        )

    def solve(self, window: Snapshot) -> Solution:
        """Solve the whole window, at the bounds of the last step; all is indexed by slots."""
        problem = from_tables(*self._tables(window))
        return solve(problem, tol=self.tol)

    def _tables(self, window: Snapshot) -> tuple[Float64, Float64, Float64, float, Float64]:
        """Return what `from_tables` needs."""
        h, distances = NONE, NONE
        if window.vectors is None:
            distances = np.ascontiguousarray(window.distances(self.centre))
        else:
            h = window.coordinates(self.centre)
        return np.ascontiguousarray(window.points), distances, h, self.radius, window.variances

    def _average_two(self, window: Snapshot) -> Averaging:
        """Use the closed form, with no more than its two numbers."""
        newest = window.newest
        apart = window.distances(self.centre).item(0, 1)
        pull = closed_form.pull(apart, self.radius * window.points.item(0, 1))
        v, u = window.variances.item(newest), window.variances.item(1 - newest)
        share = pull * (v / (v + u))
        weights = np.empty(2)
        weights[newest], weights[1 - newest] = 1.0 - share, share
        return Averaging(
            weights,
            self.centre,
            int(pull > 0.0),
            curvature=self.bounds[0] if self.bounds else None,
        )


def _now(bound: Bound) -> Any:
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    if type(bound) is float:
        return bound
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value
