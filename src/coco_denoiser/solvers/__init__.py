"""The methods; and how a problem is solved, and its answer certified.

    solve(problem, tol=, max_iter=) -> multipliers (K, K), iterations

is what a method of your own looks like. It sees distinct points only, whose residuals break at
least one bound. The answer phi and its certificate are computed from the multipliers, by code that
all methods share. The others are compiled: `_core/solve.pxi` chooses among them.
"""

from collections.abc import Callable
from dataclasses import replace

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.solution import Answer
from coco_denoiser.solvers import fdpg
from coco_denoiser.typing import Float64

Function = Callable[..., tuple[Float64, int]]
# The function of a method; None if it is compiled.
METHODS: dict[str, Function | None] = {
    "closed-form": None,
    "newton": None,
    "barrier": None,
    "line": None,
    "fdpg": fdpg.solve,
}
ITERATIONS = 100_000  # of such a function, unless the caller says otherwise


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
    if method == "line" and problem.residuals.shape[1] > 1:
        raise _refusal(method, f"one dimension, got {problem.residuals.shape[1]}")
    way: kernels.Way = method
    function = METHODS.get(method)
    if function is not None:
        max_iter = max_iter or ITERATIONS
        way = _asking(function, problem, tol, max_iter)
    answer = kernels.solve(problem, tol, max_iter, way)
    if method == "closed-form" and answer.method != method:
        raise _refusal(method, f"two distinct points, got {len(problem.precisions)}")
    return answer if method == "auto" else answer._replace(method=method)


def _refusal(method: str, cases: str) -> ValueError:
    able = ", ".join(repr(name) for name in METHODS if name not in ("closed-form", "line"))
    return ValueError(f"method={method!r} is for {cases}. Use method='auto', or one of {able}.")


def _asking(
    function: Function, problem: Problem, tol: float, max_iter: int
) -> Callable[[Float64, Float64, Float64], tuple[Float64, int]]:
    """Return a method as the core calls it, with points that coincide made one."""

    def ask(h: Float64, bounds: Float64, n: Float64) -> tuple[Float64, int]:
        start = problem.start if len(n) == len(problem.precisions) else None
        distinct = replace(problem, residuals=h, bounds=bounds, precisions=n, start=start)
        return function(distinct, tol=tol, max_iter=max_iter)

    return ask
