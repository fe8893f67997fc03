"""The paper's model: gradients of a function whose curvature lies between mu and L.

    argmin over theta of  sum_i ||theta_i - g_i||^2 / v_i
    subject to  ||theta_m - theta_l - c (x_m - x_l)|| <= r ||x_m - x_l||  for all pairs,

with c = (L + mu) / 2 and r = (L - mu) / 2. The newest theta is an average of residuals g - c x
whose weights are not negative.

A window knows, of every two observations, how far apart their points are and their residuals
h = g - c0 x, and the cosine between the two differences (`window.py`). From these, whatever the
vectors are, the core makes a problem at the present centre c and solves it, as it does that of a
batch; the certificate says how good that is. A method that is named, and a covariance, are left to
`solvers.solve`.
"""

import math
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.models.base import Bound, Limits, Model, now
from coco_denoiser.problem import Problem, centre_and_radius, from_observations, ones
from coco_denoiser.solution import Answer, Solution, Status
from coco_denoiser.typing import Float64
from coco_denoiser.window import Estimate, Window


@dataclass
class Cocoercive(Model):
    r"""The paper's model: a function whose curvature lies between mu and L.

    The gradients are projected onto those that obey, for every two points,

    $$\|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|,
    \qquad c = (L + \mu) / 2, \quad r = (L - \mu) / 2.$$

    `L=1.0` as an argument of `solve`, `Denoiser` or `CocoOptimizer` is short for
    `model=Cocoercive(1.0)`.

    Args:
        L: upper bound on the curvature of the objective, or a function that returns it, which is
            called once for every observation.
        mu: lower bound, or a function: 0 convex, > 0 strongly convex, -L merely smooth.
        tol: relative duality gap, and relative violation, to reach at every step.
        method: "auto", which chooses and names its choice in the solution; "fdpg", the paper's
            Algorithm 1, which in a stream starts from the multipliers of the window before; and
            for batches "closed-form" (two distinct points), "line" (one dimension), "newton"
            (ordinary problems) or "barrier" (hard ones).
        max_iter: limit on the iterations; None leaves it to the method.

    Examples:
        >>> from coco_denoiser import Cocoercive, Denoiser
        >>> denoiser = Denoiser(model=Cocoercive(1.0, mu=0.1, tol=1e-6))
        >>> denoiser.mu
        0.1
    """

    name: ClassVar = "cocoercive"
    folds: ClassVar = True

    L: Bound
    mu: Bound = 0.0
    tol: float = field(default=1e-9, kw_only=True)
    method: str = field(default="auto", kw_only=True)
    max_iter: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check.one_of("method", self.method, ("auto", *solvers.METHODS))
        self.max_iter = check.count("max_iter", self.max_iter, optional=True)
        self.tol = check.positive("tol", self.tol)
        self.compiled = self.method == "auto"
        self.fix(self.L, self.mu)

    @property
    def settings(self) -> dict[str, object]:
        """Its name and its options."""
        return {"model": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}

    def ask(self) -> Limits:
        """Return the curvature bounds as they are now."""
        L, mu = check.curvature(*now(self.L, self.mu))
        return Limits(L, mu, *centre_and_radius(L, mu))

    def estimate(self, window: Window, limits: Limits, before: Estimate | None = None) -> Estimate:
        """Return the weights of the newest observation."""
        room = kernels.workspace(window, limits, self)
        if self.compiled:
            room.solve()
            return window.found()
        start = None
        if self.method == "fdpg" and before is not None and isinstance(before.source, Answer):
            start = _start(before.source.multipliers, window)
        h, bounds, n = room.problem()
        problem = Problem(h, bounds, n, ones(h.shape[1]), start)
        answer = solvers.solve(problem, method=self.method, tol=self.tol, max_iter=self.max_iter)
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

    def batch(
        self, x: Float64, g: Float64, variances: Float64, covariance: Float64 | None
    ) -> Solution:
        """Return the answer for a batch of observations."""
        limits = self.limits(1.0)
        problem, units = from_observations(
            x, g, L=limits.L, mu=limits.mu, variances=variances, covariance=covariance
        )
        if self.compiled and covariance is None:
            gradients, answer = units.batch.solve(self.tol, self.max_iter)
            return units.finish(answer, gradients, self.tol)
        answer = solvers.solve(problem, method=self.method, tol=self.tol, max_iter=self.max_iter)
        return units.restore(answer, self.tol)


def _start(multipliers: Float64, window: Window) -> Float64:
    """Return where to start from: the last window's multipliers, without the newest's."""
    known = min(len(multipliers), window.count)
    start = np.zeros((window.count, window.count))
    start[:known, :known] = multipliers[:known, :known]
    start[window.newest] = start[:, window.newest] = 0.0
    start[~np.isfinite(start)] = 0.0  # points that coincided
    start *= window.variances.min()
    return start
