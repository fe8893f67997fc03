"""One method a file, one signature; here they are listed, chosen, and their answers certified.

    solve(window, tol=, max_iter=, start=) -> multipliers (K, K), iterations

A solver sees distinct points only, whose residuals break at least one bound.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.certificate import certify
from coco_denoiser.geometry import Window
from coco_denoiser.solution import Answer, Status
from coco_denoiser.solvers import active_pairs, closed_form, conic, fdpg, interior_point
from coco_denoiser.typing import Float64


class Method(NamedTuple):
    """A solver and the number of iterations it is given unless the caller says otherwise."""

    solve: Callable[..., tuple[Float64, int]]
    max_iter: int


METHODS = {
    "closed-form": Method(closed_form.solve, 1),
    "interior-point": Method(interior_point.solve, 200),
    "active-pairs": Method(active_pairs.solve, 200),
    "fdpg": Method(fdpg.solve, 100_000),
    "conic": Method(conic.solve, 200),
}

# Distinct points from which on conjugate gradients are faster than a factorisation; general
# conic solvers are then out of the question. `python -m benchmarks large-windows` measures it.
LARGE = 256


def answer(
    window: Window,
    *,
    method: str = "auto",
    tol: float = 1e-9,
    max_iter: int | None = None,
) -> Answer:
    """Solve one window by the method asked for, and certify the answer.

    Args:
        window: residuals, bounds and precisions.
        method: a name in METHODS, or "auto": the closed form for two distinct points, the
            interior-point method for more, and the conic solver where that falls short; for
            LARGE windows the method of active pairs, which alone has bounded memory.
        tol: relative duality gap and relative violation to reach.
        max_iter: limit on the iterations; None leaves it to the method.
    """
    distinct, labels = geometry.merge(window)
    K, count = labels.size, distinct.precisions.size
    names = [method]
    if method == "auto":
        names = ["closed-form"] if count <= 2 else ["interior-point", "conic"]
        if count >= LARGE:
            names = ["active-pairs"]
    elif method == "closed-form" and count > 2:
        raise ValueError(
            f"method='closed-form' is for two distinct points, got {count}. Use method='auto'."
        )

    def certified(multipliers: Float64, status: Status, iterations: int, name: str) -> Answer:
        # Nothing to average: exactly, so that what is unchanged is so to the last bit.
        W = geometry.weights(multipliers, distinct) if multipliers.any() else np.eye(count)
        if count < K:
            multipliers, W = geometry.split(multipliers, W, window, labels)
        gap, violation = certify(window, W, multipliers)
        if max(gap, violation) <= tol:
            status = Status.UNCHANGED if status is Status.UNCHANGED else Status.SOLVED
        return Answer(W, multipliers, gap, violation, iterations, name, status)

    if geometry.is_feasible(distinct):
        status = Status.UNCHANGED if count == K else Status.SOLVED
        return certified(np.zeros((count, count)), status, 0, names[0])
    answers = []
    for name in names:
        limit = METHODS[name].max_iter if max_iter is None else max_iter
        multipliers, iterations = METHODS[name].solve(distinct, tol=tol, max_iter=limit)
        status = Status.ITERATION_LIMIT if iterations >= limit else Status.STALLED
        answers.append(certified(multipliers, status, iterations, name))
        if answers[-1].status.success:
            break
    return min(answers, key=lambda found: (not found.status.success, found.gap))
