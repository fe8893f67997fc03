"""One method a file, one signature; here they are listed, chosen, and their answers certified.

    solve(window, tol=, max_iter=, start=) -> multipliers (K, K), iterations

A solver sees distinct points only, whose residuals break at least one bound.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.certificate import certify
from coco_denoiser.geometry import COINCIDENT, ROUNDING, Window
from coco_denoiser.solution import Answer, Status
from coco_denoiser.solvers import active_pairs, closed_form, conic, fdpg, interior_point
from coco_denoiser.typing import Float64, Int64


class Method(NamedTuple):
    """A solver and the number of iterations it is given unless the caller says otherwise."""

    solve: Callable[..., tuple[Float64, int]]
    max_iter: int


METHODS = {
    "closed-form": Method(closed_form.solve, 1),
    "interior-point": Method(interior_point.solve, 350),
    "active-pairs": Method(active_pairs.solve, 200),
    "fdpg": Method(fdpg.solve, 100_000),
    "conic": Method(conic.solve, 200),
}

# Distinct points from which on conjugate gradients are faster than a factorisation; general
# conic solvers are then out of the question. `python -m benchmarks large-windows` measures it.
LARGE = 256
# Rows of the cones that a conic solver is given where the exact method falls short. It takes 20 ms
# for as many and seconds for ten times as many, and no step of a stream may take seconds.
CONIC_ROWS = 1500


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
            interior-point method for more, and the conic solver where that falls short in a
            small window; for LARGE windows the method of active pairs, which alone has bounded
            memory.
        tol: relative duality gap and relative violation to reach.
        max_iter: limit on the iterations; None leaves it to the method.
    """
    count, finer = (
        int(geometry.coincident(window.bounds, limit).max()) + 1 for limit in (COINCIDENT, ROUNDING)
    )
    if method == "closed-form" and count > 2:
        raise ValueError(
            f"method='closed-form' is for two distinct points, got {count}. Use method='auto'."
        )
    attempts = [(method, COINCIDENT)]
    if method == "auto":
        attempts = [(_suited("auto", count), COINCIDENT)]
        if finer > count:  # it may take points that nearly coincide one by one after all
            attempts.append((_suited("auto", finer), ROUNDING))
        if count > 2 and count * (count - 1) // 2 * (window.residuals.shape[1] + 1) <= CONIC_ROWS:
            attempts.append(("conic", COINCIDENT))

    def certified(name: str, multipliers: Float64, iterations: int, *, exhausted: bool) -> Answer:
        W = geometry.weights(multipliers, window)
        gap, violation = certify(window, W, multipliers)
        unchanged = not multipliers.any()
        status = Status.of(gap, violation, tol, unchanged=unchanged, exhausted=exhausted)
        return Answer(W, multipliers, gap, violation, iterations, name, status)

    answers = []
    if geometry.is_feasible(window):
        answers.append(certified(attempts[0][0], np.zeros_like(window.bounds), 0, exhausted=False))
        if answers[0].status.success:
            return answers[0]
    for name, near in attempts:
        found, iterations, exhausted = _solved(window, name, near, tol, max_iter)
        answers.append(certified(name, found, iterations, exhausted=exhausted))
        if answers[-1].status.success:
            break
    return min(answers, key=lambda found: (not found.status.success, found.gap))


def _suited(name: str, count: int) -> str:
    """Return the method for so many distinct points, if it need not be this one."""
    if name in ("auto", "closed-form", "interior-point", "active-pairs"):
        return (
            "closed-form" if count <= 2 else "interior-point" if count < LARGE else "active-pairs"
        )
    return name


def _solved(
    window: Window, name: str, near: float, tol: float, max_iter: int | None
) -> tuple[Float64, int, bool]:
    """Return the multipliers, (K, K), of a window, the iterations, and if they were used up.

    Points with bounds up to `near` are one to the others. What holds them together is found
    after that, in a window of their own on which the others pull with the forces found before.
    """
    labels = geometry.coincident(window.bounds, near)
    distinct = geometry.merge(window, labels)
    count = len(distinct.bounds)
    multipliers, iterations = np.zeros_like(distinct.bounds), 0
    limit = METHODS[name].max_iter if max_iter is None else max_iter
    if not geometry.is_feasible(distinct):
        multipliers, iterations = METHODS[name].solve(distinct, tol=tol, max_iter=limit)
    exhausted = iterations >= limit
    if count == labels.size:
        return multipliers, iterations, exhausted
    full = split(multipliers, window, labels)
    phi = geometry.stationary(multipliers, distinct)[labels]
    pull = full @ phi - full.sum(axis=1)[:, None] * phi
    for members in (np.flatnonzero(labels == a) for a in range(count)):
        inside = np.ix_(members, members)
        if members.size == 1:
            continue
        if count == 1 or window.bounds[inside].max() <= ROUNDING:
            full[inside] = np.where(np.eye(members.size), 0.0, np.inf)
            continue
        own = _group(window, members, pull[members])
        if not geometry.is_feasible(own):
            found, more, stopped = _solved(own, _suited(name, members.size), near, tol, max_iter)
            full[inside] = found * window.precisions[members].max()
            iterations, exhausted = iterations + more, exhausted or stopped
    return full, iterations, exhausted


def split(multipliers: Float64, window: Window, labels: Int64) -> Float64:
    """Return multipliers of all K points from those of the groups, none of them inside one.

    What pulls two groups together acts on the pair of members whose bound is the least.
    """
    K = labels.size
    full = np.zeros((K, K))
    members = [np.flatnonzero(labels == a) for a in range(len(multipliers))]
    for a, b in np.argwhere(np.tril(multipliers)):
        mine, theirs = members[a], members[b]
        block = window.bounds[np.ix_(mine, theirs)]
        i, j = divmod(int(block.argmin()), theirs.size)
        full[mine[i], theirs[j]] = full[theirs[j], mine[i]] = multipliers[a, b]
    return full


def _group(window: Window, members: Int64, pull: Float64) -> Window:
    """Return the window of some points alone, on which the others pull with given forces, (m, q).

    Its scale is its own, so that bounds too small beside the whole window's are not beside it;
    its multipliers are relative to the largest precision of the members.
    """
    n = window.precisions[members]
    residuals = window.residuals[members] - window.residuals[members[0]] + pull / n[:, None]
    scale = geometry.standardise(residuals, n)
    return Window(residuals, window.bounds[np.ix_(members, members)] / scale, n / n.max())
