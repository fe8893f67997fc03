"""One method per file; here they are listed, chosen and tried, and their answers certified.

    solve(problem, tol=, max_iter=) -> multipliers (K, K), iterations

A method sees distinct points only, whose residuals break at least one bound. The answer phi and
its certificate are computed from the multipliers, by code that all methods share.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.certificate import certify
from coco_denoiser.problem import (
    COINCIDENT,
    ROUNDING,
    Problem,
    average,
    coincident,
    expand_multipliers,
    merge,
    stationary,
    subproblem,
)
from coco_denoiser.solution import Answer, Status
from coco_denoiser.solvers import barrier, closed_form, fdpg, interior_point, large, line, newton
from coco_denoiser.typing import Float64


class Method(NamedTuple):
    """A solver, and what it is for.

    Attributes:
        solve: the function.
        max_iter: the number of iterations it is given unless the caller says otherwise.
        covariance: whether noise may differ from coordinate to coordinate.
        most_points: how many distinct points it can take; 0 for any number.
        applies: what else a problem must be, as a function, and the same in words.
        near: bounds up to which points are one for it.
        inner: the name of the method that finds what holds such points together.
    """

    solve: Callable[..., tuple[Float64, int]]
    max_iter: int
    covariance: bool = False
    most_points: int = 0
    applies: tuple[Callable[[Problem], bool], str] | None = None
    near: float = COINCIDENT
    inner: str = "barrier"

    def refuses(self, problem: Problem, count: int) -> str | None:
        """Return why it cannot solve a problem of n distinct points; None if it can."""
        if 0 < self.most_points < count:
            return f"is for two distinct points, got {count}"
        if self.applies is not None and not self.applies[0](problem):
            return self.applies[1]
        if not (self.covariance or problem.isotropic):
            return "does not support a covariance"
        return None


_LINE = line.applies, "is for one dimension and all pairs"
METHODS = {
    "closed-form": Method(closed_form.solve, 1, covariance=True, most_points=2),
    "newton": Method(newton.solve, newton.STEPS),
    "barrier": Method(barrier.solve, barrier.STEPS, covariance=True),
    "line": Method(line.solve, 1, applies=_LINE, near=0.0, inner="line"),
    "interior-point": Method(interior_point.solve, 200),
    "large": Method(large.solve, 40, covariance=True),
    "fdpg": Method(fdpg.solve, 100_000, covariance=True),
}

# Distinct points from which on conjugate gradients are faster than a factorisation.
# `python -m benchmarks large-windows` measures it.
LARGE = 160
# Multiplications of a step of the barrier method, which takes 20 to 60 of them: a second or so in
# all, and ten of them.
_BARRIER, _MOST = 4e7, 4e8
# The most points, told apart by bounds below rounding, that the last resorts still take.
_FEW = 24

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
    """Try one method after another until the certificate is good enough, and return the best.

    Args:
        problem: residuals and what is asked of them.
        method: a name in METHODS, or "auto": the closed form for two distinct points, dynamic
            programming for points on a line, Newton's method and the barrier method for others;
            from LARGE points on, or with a covariance, `large` comes before these two. The
            interior-point method is next.
        tol: relative duality gap and relative violation to reach.
        max_iter: limit on the iterations; None leaves it to the method.

    Returns:
        The answer, in the units of the problem.

    Raises:
        ValueError: if the method cannot solve such a problem.
    """
    tried = []
    for answer in _answers(problem, method, tol, max_iter):
        if answer.status.success:
            return answer
        tried.append(answer)
    return min(tried, key=lambda answer: max(answer.gap, answer.violation))


def _answers(problem: Problem, method: str, tol: float, max_iter: int | None) -> Iterator[Answer]:
    fast = None
    if method == "auto" and len(problem.bounds) < LARGE and problem.isotropic:
        fast = solve_fast(problem, tol, max_iter)
        yield fast
    for name, near in _plan(problem, method, fast):
        yield _attempt(problem, name, near, tol, max_iter)


def solve_fast(problem: Problem, tol: float, max_iter: int | None = None) -> Answer:
    """Solve a problem with the same noise in all directions in one compiled call.

    By the closed form for two points, dynamic programming for points on a line, and Newton's method
    for others; where these fall short and the problem is small, by the barrier method.
    """
    h, bounds, n = problem.residuals, problem.bounds, problem.precisions
    weights, phi, multipliers, steps, moved, gap, violation, name = kernels.solve(
        h, bounds, n, None, tol, max_iter or -1, allowed(tol), "auto"
    )
    exhausted = steps >= (max_iter or METHODS[name].max_iter)
    status = _status(gap, violation, tol, moved=moved, exhausted=exhausted)
    return Answer(phi, weights, multipliers, gap, violation, steps, name, status)


def _status(gap: float, violation: float, tol: float, *, moved: bool, exhausted: bool) -> Status:
    if gap <= tol and violation <= tol:
        return Status.SOLVED if moved else Status.UNCHANGED
    return Status.ITERATION_LIMIT if exhausted else Status.STALLED


def _plan(problem: Problem, method: str, tried: Answer | None) -> Iterator[tuple[str, float]]:
    """Yield the methods to try, and up to which bound points count as one.

    Points that nearly coincide may have to be told apart after all.
    """
    count = int(coincident(problem.bounds).max()) + 1
    if method != "auto":
        reason = METHODS[method].refuses(problem, count)
        if reason is not None:
            able = ", ".join(repr(n) for n, m in METHODS.items() if not m.refuses(problem, count))
            raise ValueError(f"method={method!r} {reason}. Use method='auto', or one of {able}.")
        yield method, METHODS[method].near
        return
    finer, exact = (int(coincident(problem.bounds, near).max()) + 1 for near in (ROUNDING, 0.0))
    levels = (COINCIDENT, ROUNDING)[: 1 + (count < finer)]
    work = barrier.multiplications(problem)
    if tried is None and len(problem.bounds) > 2 and line.applies(problem):
        yield "line", 0.0
    if tried is None:
        yield "closed-form" if count <= 2 else "large", COINCIDENT
    if work <= _BARRIER and (tried is None or tried.method != "barrier"):
        yield from (("barrier", near) for near in levels)
    if problem.isotropic:
        yield from (("interior-point", near) for near in levels)
    if tried is not None:
        yield "large", COINCIDENT
    if _BARRIER < work <= _MOST:
        yield from (("barrier", near) for near in levels)
    if count < finer < _FEW:  # their bounds differ too much for the others
        yield "large", ROUNDING
        yield "fdpg", ROUNDING
    if finer < exact < _FEW:  # all that is here may be as small as these bounds
        yield "large", 0.0


def _attempt(problem: Problem, name: str, near: float, tol: float, max_iter: int | None) -> Answer:
    """Solve by one method, and certify the answer."""
    multipliers, iterations = np.zeros_like(problem.bounds), 0
    if not problem.is_feasible():
        multipliers, iterations = _multipliers(problem, name, near, tol, max_iter)
    weights, phi = average(multipliers, problem, allowed(tol))
    limit = METHODS[name].max_iter if max_iter is None else max_iter
    gap, violation = certify(problem, phi, multipliers)
    moved, exhausted = phi is not problem.residuals, iterations >= limit
    status = _status(gap, violation, tol, moved=moved, exhausted=exhausted)
    return Answer(phi, weights, multipliers, gap, violation, iterations, name, status)


def _multipliers(
    problem: Problem, name: str, near: float, tol: float, max_iter: int | None
) -> tuple[Float64, int]:
    """Return the multipliers of a problem some of whose points may coincide, and the iterations.

    Points with bounds up to `near` count as one for the others. What holds them together is found
    after that, in a problem of their own on which the others pull with the forces found before.
    """
    labels = coincident(problem.bounds, near)
    distinct = merge(problem, labels)
    count = len(distinct.bounds)
    multipliers, iterations = np.zeros_like(distinct.bounds), 0
    if not distinct.is_feasible():
        limit = METHODS[name].max_iter if max_iter is None else max_iter
        multipliers, iterations = METHODS[name].solve(distinct, tol=tol, max_iter=limit)
    if count == labels.size:
        return multipliers, iterations
    full = expand_multipliers(multipliers, problem, labels)
    phi = stationary(multipliers, distinct)[labels]
    pull = full @ phi - full.sum(axis=1)[:, None] * phi
    for members in (np.flatnonzero(labels == a) for a in range(count)):
        inside = np.ix_(members, members)
        if members.size == 1:
            continue
        size = min(1.0, float(np.abs(problem.residuals[members]).max()))
        if count == 1 or problem.bounds[inside].max() <= ROUNDING * size:
            full[inside] = np.where(np.eye(members.size), 0.0, np.inf)
            continue
        own = subproblem(problem, members, pull[members])
        if not own.is_feasible():
            held, steps = _multipliers(own, METHODS[name].inner, near, tol, max_iter)
            full[inside] = held * problem.precisions[members].max()
            iterations += steps
    return full, iterations
