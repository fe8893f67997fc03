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
from dataclasses import replace
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem, centre_and_radius, ones
from coco_denoiser.solution import Answer, Status
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
        self._workspace: kernels.Workspace | None = None
        # The last answer; where there is none, the workspace holds it if that is of its size.
        self.answered: Answer | None = None
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

    def workspace(self, K: int, centre: float) -> kernels.Workspace:
        """Return room for a window of K observations whose residuals have a centre."""
        room = self._workspace
        if room is None or room.K != K:
            self._workspace = room = kernels.Workspace(K, K)
        room.tol, room.within = self.tol, min(0.1 * self.tol, solvers.FEASIBLE)
        room.shift, room.radius = self.centre - centre, self.radius
        return room

    def reset(self) -> None:
        """Forget the last answer."""
        self._workspace = self.answered = self._multipliers = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workspace": None}  # it holds C memory

    def estimate(self, window: Window) -> Estimate:
        """Return the weights of the newest observation."""
        if self.method == "auto" and window.count < solvers.LARGE:
            room = self.workspace(window.count, window.centre)
            room.reduce(window, *(window.vectors or (None, None)))
            if room.solve() and room.gap <= self.tol and room.violation <= self.tol:
                self.answered = None
                return self.estimate_of(room, window)
        return self.estimate_hard(window)

    def estimate_of(self, room: kernels.Workspace, window: Window) -> Estimate:
        """Return the weights of the newest observation, as they were found in a workspace."""
        return Estimate(
            room.weights(window.newest),
            self.centre,
            curvature=self.bounds[0],
            active=room.active,
            gap=room.gap,
            violation=room.violation,
            iterations=room.steps,
            status=Status.SOLVED if room.active else Status.UNCHANGED,
        )

    def estimate_hard(self, window: Window) -> Estimate:
        """Return the weights of the newest observation, by all methods."""
        answer = self.solve(window, self._start(window))
        if self.method == "fdpg":
            self._multipliers = answer.multipliers / window.variances.min()
        self.answered = answer
        return Estimate(
            answer.weights[window.newest],
            self.centre,
            curvature=self.bounds[0],
            active=int(np.count_nonzero(answer.multipliers)) // 2,
            gap=answer.gap,
            violation=answer.violation,
            iterations=answer.iterations,
            status=answer.status,
            method=answer.method,
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

    def solution(self, window: Window) -> Answer:
        """Return the answer of the last step, or solve the window if it is not at hand."""
        room, K = self._workspace, window.count
        if self.answered is not None:
            return self.answered
        if room is None or room.K != K:
            return self.solve(window)
        weights, phi, multipliers = np.empty((K, K)), np.empty((K, room.q)), np.empty((K, K))
        room.answer(weights, phi, multipliers)
        name = "newton" if K > 2 else "closed-form"
        status = Status.SOLVED if room.active else Status.UNCHANGED
        found = room.gap, room.violation, room.steps
        return Answer(phi, weights, multipliers, *found, name, status)

    def solve(self, window: Window, start: Float64 | None = None) -> Answer:
        """Solve the whole window, at the bounds of the last step; all is indexed by slots."""
        problem = replace(self.problem(window), start=start)
        return solvers.solve(problem, method=self.method, tol=self.tol)

    def problem(self, window: Window) -> Problem:
        """Reduce a window, at the bounds of the last step."""
        K = window.count
        room = kernels.Workspace(K, K)
        room.shift, room.radius = self.centre - window.centre, self.radius
        room.reduce(window, *(window.vectors or (None, None)))
        h, bounds, n = np.empty((K, room.q)), np.empty((K, K)), np.empty(K)
        room.problem(h, bounds, n)
        return Problem(h, bounds, n, ones(room.q))


def _now(bound: Bound) -> Any:
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    if type(bound) is float:
        return bound
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value
