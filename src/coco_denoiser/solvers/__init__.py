"""One method per file; here they are listed, chosen and tried, and their answers certified.

    solve(window, tol=, max_iter=) -> multipliers (K, K), iterations

A solver sees distinct points only, whose residuals break at least one bound. Where phi does not
follow from the multipliers, it returns it as a third.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.certificate import certify
from coco_denoiser.constraints import averages
from coco_denoiser.geometry import COINCIDENT, ROUNDING, Window
from coco_denoiser.solution import Answer, Status
from coco_denoiser.solvers import (
    active_pairs,
    barrier,
    closed_form,
    conic,
    fdpg,
    interior_point,
    newton,
    ordinary,
)
from coco_denoiser.typing import Float64


class Method(NamedTuple):
    """A solver, and what it is for.

    Attributes:
        solve: the function.
        max_iter: the number of iterations it is given unless the caller says otherwise.
        shares: whether noise may differ from coordinate to coordinate.
        two: whether it is for two distinct points only.
    """

    solve: Callable[..., tuple[Any, ...]]
    max_iter: int
    shares: bool = False
    two: bool = False

    def refuses(self, window: Window, count: int) -> str | None:
        """Return why it cannot solve a window of so many distinct points; None if it can."""
        if self.two and count > 2:
            return f"is for two distinct points, got {count}"
        if window.shares is not None and not self.shares:
            return "needs noise that is the same in all directions, not a covariance"
        return None


METHODS = {
    "closed-form": Method(closed_form.solve, 1, two=True),
    "newton": Method(newton.solve, newton.STEPS),
    "interior-point": Method(interior_point.solve, 80),  # a window in a hundred runs in circles
    "barrier": Method(barrier.solve, 200),
    "active-pairs": Method(active_pairs.solve, 200),
    "fdpg": Method(fdpg.solve, 100_000, shares=True),
    "conic": Method(conic.solve, 200, shares=True),
}

# Distinct points from which on conjugate gradients are faster than a factorisation; general
# conic solvers are then out of the question. `python -m benchmarks large-windows` measures it.
LARGE = 160
# From so many on they are tried where the exact method falls short: with nearly all pairs at their
# bounds, as where L is far too small, it is the system over those pairs that takes it too long.
MIDDLE = 24
# Multiplications of a step of the barrier method, which takes 40 to 80 of them, a second or two in
# all: enough for 48 points in 10 dimensions, or 32 in any number.
BARRIER = 6e8


class _Found(NamedTuple):
    """What a method found; phi where it does not follow from the multipliers."""

    multipliers: Float64
    iterations: int
    phi: Float64 | None = None
    exhausted: bool = False


def answer(
    window: Window,
    *,
    method: str = "auto",
    tol: float = 1e-9,
    max_iter: int | None = None,
) -> Answer:
    """Solve one window by the method asked for, certify the answer, and keep the best.

    Args:
        window: residuals and what is asked of them.
        method: a name in METHODS, or "auto", which takes what the window needs: the closed form
            for two distinct points, Newton's method for more, the method of active pairs for
            LARGE windows, which alone has bounded memory, the paper's where the noise has a
            covariance; and where that falls short the interior-point method, the barrier method,
            and that of active pairs for MIDDLE windows, or, with a covariance, the conic solver.
        tol: relative duality gap and relative violation to reach.
        max_iter: limit on the iterations; None leaves it to the method.

    Raises:
        ValueError: if the method cannot solve such a window.
    """
    if method == "auto" and window.plain and len(window.bounds) < LARGE:
        # The usual case, without the questions that only special windows ask.
        first = _ordinary(window, tol, max_iter)
        if first.status.success:
            return first
    return persist(window, method=method, tol=tol, max_iter=max_iter)


def persist(
    window: Window, *, method: str = "auto", tol: float = 1e-9, max_iter: int | None = None
) -> Answer:
    """Try one method after another, as `answer` does where Newton's method has fallen short."""
    answers = []
    for name, found in _attempts(window, method, tol, max_iter):
        answers.append(_certified(window, name, found, tol))
        if answers[-1].status.success:
            break
    return min(answers, key=lambda found: max(found.gap, found.violation))


def _ordinary(window: Window, tol: float, max_iter: int | None) -> Answer:
    name = "newton" if len(window.bounds) > 2 else "closed-form"
    limit = METHODS[name].max_iter if max_iter is None else max_iter
    W, phi, multipliers, gap, violation, iterations = ordinary.settle(
        window.residuals, window.bounds, window.precisions, tol, limit
    )
    unchanged = phi is window.residuals
    return Answer(
        average=W,
        phi=phi,
        multipliers=multipliers,
        gap=gap,
        violation=violation,
        iterations=iterations,
        method=name,
        status=Status.of(gap, violation, tol, unchanged=unchanged, exhausted=False),
        unchanged=unchanged,
    )


def _certified(window: Window, name: str, found: _Found, tol: float) -> Answer:
    """Complete an answer, and let the certificate say how good it is."""
    multipliers, phi = found.multipliers, found.phi
    unchanged = not multipliers.any()
    average = None
    if phi is None or window.shares is None or unchanged:
        average, phi = averages.average(multipliers, window)
    else:
        phi = averages.drawn_in(window, phi)
    gap, violation = certify(window, phi, multipliers)
    unchanged = unchanged and np.array_equal(phi, window.residuals)
    return Answer(
        average=average,
        phi=phi,
        multipliers=multipliers,
        gap=gap,
        violation=violation,
        iterations=found.iterations,
        method=name,
        status=Status.of(gap, violation, tol, unchanged=unchanged, exhausted=found.exhausted),
        unchanged=unchanged,
    )


def _attempts(
    window: Window, method: str, tol: float, max_iter: int | None
) -> Iterator[tuple[str, _Found]]:
    """Yield what the methods find, one after another, until the caller has enough."""
    count, finer = (
        int(averages.coincident(window.bounds, limit).max()) + 1 for limit in (COINCIDENT, ROUNDING)
    )
    if method == "auto":
        names = [_suited(window, count)]
        if names == ["interior-point"]:
            # Where no points coincide, Newton's method has been tried at this point.
            names = ["newton"] * (count < len(window.bounds)) + names
            names += ["barrier"] * (barrier.multiplications(window) <= BARRIER)
            names += ["active-pairs"] * (count >= MIDDLE)
        if window.shares is not None and 2 < count < LARGE:
            names.append("conic")
        elif names == ["active-pairs"] and count < 2 * LARGE:
            names.append("interior-point")
    else:
        names = [method]
        reason = METHODS[method].refuses(window, count)
        if reason is not None:
            able = ", ".join(repr(n) for n, m in METHODS.items() if not m.refuses(window, count))
            raise ValueError(f"method={method!r} {reason}. Use method='auto', or one of {able}.")
    nothing = np.zeros_like(window.bounds)
    if geometry.is_feasible(window):
        yield names[0], _Found(nothing, 0)
    yield names[0], _apart(window, names[0], COINCIDENT, tol, max_iter)
    if method == "auto" and finer > count:
        # It may take points that nearly coincide one by one after all.
        name = _suited(window, finer)
        yield name, _apart(window, name, ROUNDING, tol, max_iter)
    for name in names[1:]:
        yield name, _apart(window, name, COINCIDENT, tol, max_iter)


def _suited(window: Window, count: int) -> str:
    """Return the first method to try on a window of so many distinct points."""
    if window.shares is not None:
        return "fdpg"
    return "closed-form" if count <= 2 else "interior-point" if count < LARGE else "active-pairs"


def _run(window: Window, name: str, tol: float, max_iter: int | None) -> _Found:
    method = METHODS[name]
    limit = method.max_iter if max_iter is None else max_iter
    found = _Found(*method.solve(window, tol=tol, max_iter=limit))
    return found._replace(exhausted=found.iterations >= limit)


def _apart(window: Window, name: str, near: float, tol: float, max_iter: int | None) -> _Found:
    """Solve a window some of whose points may coincide.

    Points with bounds up to `near` count as one for the others. What holds them together is found
    after that, in a window of their own on which the others pull with the forces found before.
    """
    labels = averages.coincident(window.bounds, near)
    distinct = averages.merge(window, labels)
    count = len(distinct.bounds)
    found = _Found(np.zeros_like(distinct.bounds), 0)
    if not geometry.is_feasible(distinct, within=0.0):
        found = _run(distinct, name, tol, max_iter)
    if count == labels.size:
        return found
    full = averages.split(found.multipliers, window, labels)
    phi = averages.stationary(found.multipliers, distinct)[labels]
    pull = full @ phi - full.sum(axis=1)[:, None] * phi
    found = found._replace(multipliers=full, phi=None if found.phi is None else found.phi[labels])
    for members in (np.flatnonzero(labels == a) for a in range(count)):
        inside = np.ix_(members, members)
        if members.size == 1:
            continue
        size = min(1.0, float(np.abs(window.residuals[members]).max()))
        if count == 1 or window.bounds[inside].max() <= ROUNDING * size:
            full[inside] = np.where(np.eye(members.size), 0.0, np.inf)
            continue
        own = averages.alone(window, members, pull[members])
        if not geometry.is_feasible(own, within=0.0):
            inner = name if name in ("fdpg", "conic", "barrier") else _suited(own, members.size)
            held = _apart(own, inner, near, tol, max_iter)
            full[inside] = held.multipliers * window.precisions[members].max()
            found = found._replace(
                iterations=found.iterations + held.iterations,
                phi=None,  # it now follows from the multipliers only
                exhausted=found.exhausted or held.exhausted,
            )
    return found
