"""Denoising onto the gradients of one function: the tight set, `constraints="interpolation"`.

    solve(problem, phi, multipliers, tol=, max_iter=) -> phi (K, q), E (K,), multipliers, iterations

The methods are listed and chosen here, and their answers certified. A method sees distinct
points only, whose residuals belong to no function, and the answer under the pairs' bounds.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from coco_denoiser import geometry
from coco_denoiser._linalg import solve_laplacian
from coco_denoiser.interpolation import conic, interior_point
from coco_denoiser.interpolation import problem as problems
from coco_denoiser.interpolation.certificate import certify, violation
from coco_denoiser.interpolation.problem import Problem
from coco_denoiser.solution import Solution, Status
from coco_denoiser.solvers import answer
from coco_denoiser.typing import Float64


class Method(NamedTuple):
    """A solver and the number of iterations it is given unless the caller says otherwise."""

    solve: Callable[..., tuple[Float64, Float64, Float64, int]]
    max_iter: int


METHODS = {
    "interior-point": Method(interior_point.solve, 200),
    "conic": Method(conic.solve, 200),
}


def solve(
    points: Float64,
    gradients: Float64,
    *,
    L: float,
    mu: float,
    variances: Float64,
    values: tuple[Float64, Float64] | None,
    method: str,
    tol: float,
    max_iter: int | None,
) -> Solution:
    """Return the nearest gradients, and values, that one function can have, with a certificate.

    Args:
        points: (K, d).
        gradients: (K, d).
        L: upper bound on the curvature.
        mu: lower bound on the curvature.
        variances: (K,), of the gradients' noise.
        values: observed values and their noise variances, (K,) each, or None.
        method: a name in METHODS, or "auto": the first, and where it falls short the second.
        tol: relative duality gap and relative violation to reach.
        max_iter: limit on the iterations; None leaves it to the method.
    """
    every, frame, window = problems.observe(points, gradients, L, mu, variances, values)
    # Points that coincide have one gradient and one value.
    labels = geometry.coincident(window.bounds)
    merged = geometry.merge(window, labels)
    K, count = labels.size, merged.precisions.size
    distinct = every if count == K else problems.merge(every, labels)
    first = np.unique(labels, return_index=True)[1]
    unit = 4.0 * geometry.centre_and_radius(L, mu)[1] / variances.min()

    def certified(unknowns: Sequence[Float64], iterations: int, limit: int, name: str) -> Solution:
        phi, E, a = unknowns
        phi, E = problems.drawn_in(distinct, phi, E)
        gap = certify(distinct, phi, E, a)
        W = _weights(distinct, a)
        if count < K:
            offsets = every.points - distinct.points[labels]
            phi, E = phi[labels], E[labels] + 4.0 * np.sum(phi[labels] * offsets, axis=1)
            share = every.precisions / distinct.precisions[labels]
            W = W[np.ix_(labels, labels)] * share
            full = np.where(labels[:, None] == labels, np.inf, 0.0)
            np.fill_diagonal(full, 0.0)
            full[np.ix_(first, first)] = a
            a = full
        worst = violation(every, phi, E)
        unchanged, exhausted = np.array_equal(phi, every.residuals), 0 < limit <= iterations
        status = Status.of(gap, worst, tol, unchanged=unchanged, exhausted=exhausted)
        theta = gradients if unchanged else gradients + frame.move(phi)
        f = frame.value(E, observed=every.observed)
        return Solution(W, unit * a, gap, worst, iterations, name, status, theta.copy(), f)

    names = list(METHODS) if method == "auto" else [method]
    E = problems.consistent_values(distinct, distinct.residuals)
    if E is not None:
        unmoved = certified((distinct.residuals, E, np.zeros((count, count))), 0, 0, names[0])
        if unmoved.status.success:
            return unmoved
    # The pairs' bounds are necessary: if their answer belongs to a function, it is the answer.
    pairs = answer(merged, tol=tol)
    phi = pairs.weights @ distinct.residuals
    E = problems.consistent_values(distinct, phi)
    if E is not None and not every.observed and pairs.status.success and method == "auto":
        unknowns = (phi, E, 0.25 * pairs.multipliers)
        loose = certified(unknowns, pairs.iterations, 0, pairs.method)
        if loose.status.success:
            return loose
    found = []
    for name in names:
        limit = METHODS[name].max_iter if max_iter is None else max_iter
        *found_here, iterations = METHODS[name].solve(
            distinct, phi, pairs.multipliers, tol=tol, max_iter=limit
        )
        found.append(certified(found_here, iterations, limit, name))
        if found[-1].status.success:
            break
    return min(found, key=lambda solution: (not solution.status.success, solution.gap))


def _weights(problem: Problem, multipliers: Float64) -> Float64:
    """Return W (K, K), what every residual has of the others."""
    W = np.eye(len(multipliers))
    if multipliers.any():
        solve_laplacian(2.0 * (multipliers + multipliers.T), problem.precisions.copy(), W, 0)
        W *= problem.precisions
    return W
