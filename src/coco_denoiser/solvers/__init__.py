"""The methods; and how a problem is solved, and its answer certified.

    solve(problem, tol=, max_iter=) -> multipliers (K, K), iterations

is what a method of your own looks like. It sees distinct points only, whose residuals break at
least one bound. The answer phi and its certificate are computed from the multipliers, by code that
all methods share. The others are compiled: `_core/solve.pxi` chooses among them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import COINCIDENT, Problem
from coco_denoiser.solution import Answer, Status
from coco_denoiser.solvers import fdpg
from coco_denoiser.typing import Float64


class Method(NamedTuple):
    """A solver, and what it is for.

    Attributes:
        solve: the function; None for a compiled method.
        max_iter: the number of iterations it is given unless the caller says otherwise.
        covariance: whether noise may differ from coordinate to coordinate.
        most_points: how many distinct points it can take; 0 for any number.
        most_coordinates: how many coordinates; 0 for any number.
    """

    solve: Callable[..., tuple[Float64, int]] | None
    max_iter: int
    covariance: bool = False
    most_points: int = 0
    most_coordinates: int = 0

    def refuses(self, problem: Problem) -> str | None:
        """Return why it cannot solve a problem; None if it can."""
        count = np.unique(np.argmax(problem.bounds <= COINCIDENT, axis=1)).size
        if 0 < self.most_points < count:
            return f"is for two distinct points, got {count}"
        if 0 < self.most_coordinates < problem.residuals.shape[1]:
            return "is for one dimension and all pairs"
        if not (self.covariance or problem.isotropic):
            return "does not support a covariance"
        return None


_STEPS: int = kernels.CONSTANTS["STEPS"]
METHODS = {
    "closed-form": Method(None, _STEPS, covariance=True, most_points=2),
    "newton": Method(None, _STEPS, covariance=True),
    "barrier": Method(None, kernels.CONSTANTS["PATH"], covariance=True),
    "line": Method(None, 1, most_coordinates=1),
    "fdpg": Method(fdpg.solve, 100_000, covariance=True),
}

# A pair of the answer may break its bound by this share of it, or a tenth of tol if that is less:
# drawing all points together costs far more than it mends where one of them is far away.
FEASIBLE = 1e-10


def allowed(tol: float) -> float:
    """Return by what share of it a pair of the answer may break its bound."""
    return min(0.1 * tol, FEASIBLE)


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    tol: float = 1e-9,
    max_iter: int | None = None,
) -> Answer:
    """Solve a problem, and certify the answer.

    Args:
        problem: residuals and what is asked of them.
        method: a name in METHODS, or "auto": dynamic programming for points on a line, Newton's
            method, which is the closed form for two distinct points, and the barrier method, one
            after the other until the certificate is good enough; the best, if it never is.
        tol: relative duality gap and relative violation to reach.
        max_iter: limit on the iterations; None leaves it to the method.

    Returns:
        The answer, in the units of the problem.

    Raises:
        ValueError: if the method cannot solve such a problem.
    """
    way: kernels.Way = method
    if method != "auto":
        reason = METHODS[method].refuses(problem)
        if reason is not None:
            able = ", ".join(repr(name) for name, m in METHODS.items() if not m.refuses(problem))
            raise ValueError(f"method={method!r} {reason}. Use method='auto', or one of {able}.")
        function = METHODS[method].solve
        if function is not None:
            way = _asking(function, problem, tol, max_iter or METHODS[method].max_iter)
    h, bounds, n = map(
        np.ascontiguousarray, (problem.residuals, problem.bounds, problem.precisions)
    )
    given = h, bounds, n, problem.coordinate_precisions, tol, max_iter or -1, allowed(tol), way
    weights, phi, multipliers, steps, moved, gap, violation, found = kernels.solve(*given)
    name = found if method == "auto" else method
    exhausted = steps >= (max_iter or METHODS[name].max_iter)
    status = _status(gap, violation, tol, moved=moved, exhausted=exhausted)
    return Answer(phi, weights, multipliers, gap, violation, steps, name, status)


def _asking(
    function: Callable[..., tuple[Float64, int]], problem: Problem, tol: float, max_iter: int
) -> Callable[[Float64, Float64, Float64], tuple[Float64, int]]:
    """Return a method as the core calls it, with points that coincide made one."""

    def ask(h: Float64, bounds: Float64, n: Float64) -> tuple[Float64, int]:
        start = problem.start if len(n) == len(problem.precisions) else None
        distinct = replace(problem, residuals=h, bounds=bounds, precisions=n, start=start)
        return function(distinct, tol=tol, max_iter=max_iter)

    return ask


def _status(gap: float, violation: float, tol: float, *, moved: bool, exhausted: bool) -> Status:
    if gap <= tol and violation <= tol:
        return Status.SOLVED if moved else Status.UNCHANGED
    return Status.ITERATION_LIMIT if exhausted else Status.STALLED
