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
import sys
from dataclasses import replace

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.models.bounds import Bound, Bounds, Limits
from coco_denoiser.problem import Problem, centre_and_radius, ones
from coco_denoiser.solution import Answer, Solution, Status
from coco_denoiser.typing import Float64
from coco_denoiser.window import Estimate, Window


class Cocoercive:
    """Projection onto the gradients that obey the curvature bounds pair by pair.

    Args:
        L: upper bound on the curvature, or a function that returns it.
        mu: lower bound, or a function.
        tol: relative duality gap to reach.
        method: "auto", or "fdpg" for the paper's Algorithm 1 with its warm start: the multipliers
            of the pairs that stay in the window, zero for the new ones.
    """

    name = "cocoercive"
    window = 16
    folds = True

    def __init__(
        self, L: Bound, mu: Bound = 0.0, *, tol: float = 1e-9, method: str = "auto"
    ) -> None:
        self.method = check.one_of("method", method, ("auto", "fdpg"))
        self.tol = check.positive("tol", tol)
        self.within = solvers.allowed(self.tol)
        self.most = sys.maxsize if method == "auto" else 0
        bounds = Bounds(_limits, L, mu)
        self.fixed, self.limits = bounds.fixed, bounds.now
        self.settings: dict[str, object] = {"model": self.name, "L": L, "mu": mu, "tol": tol}
        if method != "auto":
            self.settings["method"] = method

    def estimate(self, window: Window, limits: Limits, before: Estimate | None = None) -> Estimate:
        """Return the weights of the newest observation."""
        room = kernels.workspace(window, limits, self)
        plain = window.count <= self.most
        if plain and room.solve():
            return window.found()
        start = None
        if self.method == "fdpg" and before is not None and isinstance(before.source, Answer):
            start = _start(before.source.multipliers, window)
        problem = replace(self.problem(window, limits), start=start)
        answer = solvers.solve(problem, method=self.method, tol=self.tol)
        answer = answer._replace(multipliers=answer.multipliers / window.variances.min())
        weights = np.ascontiguousarray(answer.weights[window.newest])
        return Estimate(weights, math.nan, *answer[3:], source=answer)

    def solution(
        self, window: Window, limits: Limits, found: Estimate | None, g: Float64, h: Float64
    ) -> Solution:
        """Return the answer of the last step for all gradients, from the oldest to the newest."""
        del limits
        found = found or Estimate(np.ones(1), status=Status.UNCHANGED, method="closed-form")
        order, whole = np.ix_(window.order, window.order), found.whole()
        W, multipliers = np.eye(len(g)), np.zeros((len(g), len(g)))
        if whole is not None and window.members == window.count:
            W, multipliers = whole.weights[order], whole.multipliers[order]
        phi = W @ h
        return Answer(phi, W, multipliers, *found[2:7]).solution(g + (phi - h), multipliers)

    def problem(self, window: Window, limits: Limits) -> Problem:
        """Reduce a window."""
        room, K = kernels.workspace(window, limits, self), window.count
        h, bounds, n = np.empty((K, room.q)), np.empty((K, K)), np.empty(K)
        room.problem(h, bounds, n)
        return Problem(h, bounds, n, ones(room.q))


def _limits(L: float, mu: float) -> Limits:
    L, mu = check.curvature(L, mu)
    return Limits(L, mu, *centre_and_radius(L, mu))


def _start(multipliers: Float64, window: Window) -> Float64:
    """Return where to start from: the last window's multipliers, without the newest's."""
    known = min(len(multipliers), window.count)
    start = np.zeros((window.count, window.count))
    start[:known, :known] = multipliers[:known, :known]
    start[window.newest] = start[:, window.newest] = 0.0
    start[~np.isfinite(start)] = 0.0  # points that coincided
    start *= window.variances.min()
    return start
