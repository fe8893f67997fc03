"""The part of a step that depends on K only: from the tables of a window to weights.

A window knows, of every two observations, how far apart their points are and their residuals
h = g - c0 x, and the cosine between the two differences (`window.py`). `reduce` turns that into a
problem at any other centre c, by arithmetic on the three tables; Newton's method, which a batch
uses too, solves it; and the certificate says how good that is. These are three compiled calls,
whatever the vectors are: they need float64 and K by K numbers only. What Newton's method cannot
solve is handed to the loop over all methods, as the same problem.
"""

import math
from functools import cache

import numpy as np

from coco_denoiser import solvers
from coco_denoiser._jit import kernel
from coco_denoiser.certificate import certify_tables
from coco_denoiser.problem import NONE, Problem
from coco_denoiser.solution import Solution
from coco_denoiser.solvers import newton
from coco_denoiser.typing import Float64
from coco_denoiser.window import Estimate, Window


def solve_step(
    window: Window, *, centre: float, radius: float, tol: float, curvature: float
) -> Estimate:
    """Return how the newest gradient of three or more is averaged.

    Args:
        window: the tables of the window.
        centre: c of the bounds.
        radius: r of the bounds.
        tol: relative duality gap and relative violation to reach.
        curvature: what the estimate is to call the curvature.
    """
    h, bounds, n = reduced_window(window, centre, radius)
    K, q = h.shape
    if K < solvers.LARGE:
        within = min(0.1 * tol, solvers.FEASIBLE)
        W, phi, lam, steps = newton.solve_fast(h, bounds, n, tol, newton.STEPS, within)
        if steps >= 0:
            gap, violation = certify_tables(h, bounds, n, _ones(q), phi, lam, NONE)
            if gap <= tol and violation <= tol:
                active = int(np.count_nonzero(lam)) // 2
                weights = W[window.newest]
                return Estimate(
                    weights, centre, np.nan, np.nan, curvature, active, gap, violation, steps
                )
    answer = solvers.solve(Problem(h, bounds, n, _ones(q)), tol=tol)
    return as_estimate(answer, window.newest, centre=centre, tol=tol, curvature=curvature)


_ones = cache(np.ones)  # of a few sizes, which nobody writes to


def as_estimate(
    answer: Solution, newest: int, *, centre: float, tol: float, curvature: float
) -> Estimate:
    """Return how the newest gradient is averaged, with a sentence if tol was not reached."""
    shortfall, status = None, answer.status
    if not status.success:
        shortfall = f"{answer.method} {status.value}: relative gap {answer.gap:.1e}, tol={tol:.1e}."
    return Estimate(
        answer.weights[newest],
        centre,
        curvature=curvature,
        active=int(np.count_nonzero(answer.multipliers)) // 2,
        gap=answer.gap,
        violation=answer.violation,
        iterations=answer.iterations,
        shortfall=shortfall,
    )


def reduced_window(
    window: Window, centre: float, radius: float
) -> tuple[Float64, Float64, Float64]:
    """Return residuals, bounds and precisions of a window at other bounds, as in `Problem`."""
    h = NONE if window.vectors is None else window.coordinates(centre)
    return reduce(window.tables, window.variances, h, centre - window.centre, radius)


@kernel
def reduce(  # noqa: C901, PLR0912
    tables: Float64, variances: Float64, vectors: Float64, shift: float, radius: float
) -> tuple[Float64, Float64, Float64]:
    """Return residuals, bounds and precisions, as in `Problem`.

    Args:
        tables: (3, slots, slots): ||dx||, cosines, and ||dh||; those of K observations are used.
        variances: (K,), relative noise variances.
        vectors: (K, d), residuals at the new centre, more accurate than what can be recovered
            from the tables; NONE if the tables must do.
        shift: from the centre of the tables to the new one. Cancellation is harmless while it is
            not much larger than the radius of the bounds.
        radius: how far apart residuals may be, relative to their points.
    """
    K = variances.size
    bounds, gram, factor = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    n, square = np.empty(K), np.empty(K)
    scale, central, nearest, least = 0.0, 0, np.inf, np.inf
    for i in range(K):
        total = 0.0
        for j in range(K):
            H, X = tables[2, i, j], shift * tables[0, i, j]
            top = max(H, abs(X))
            if shift != 0.0 and top > 0.0:
                # As a sum of squares that are not negative, in units that cannot overflow.
                a, b = H / top, X / top
                e = (a - b) * (a - b) + 2.0 * a * b * (1.0 - tables[1, i, j])
                H = top * math.sqrt(max(e, 0.0))
            gram[i, j] = H
            total += H
            scale = max(scale, H)
        least = min(least, variances[i])
        if total < nearest:  # to the others overall: the origin
            central, nearest = i, total
    if scale == 0.0:
        scale = 1.0
    for i in range(K):
        n[i] = least / variances[i]
        square[i] = (gram[i, central] / scale) ** 2
        for j in range(K):
            bounds[i, j] = radius * tables[0, i, j] / scale
    if vectors.size > 0:
        h = np.empty((K, vectors.shape[1]))
        for i in range(K):
            for c in range(h.shape[1]):
                h[i, c] = (vectors[i, c] - vectors[central, c]) / scale
        return h, bounds, n
    # Residuals with these distances: the columns of a pivoted Cholesky factor of the Gram matrix.
    # Pivots below the rounding of the largest are noise, not a further dimension.
    for i in range(K):
        for j in range(K):
            e = gram[i, j] / scale
            gram[i, j] = 0.5 * (square[i] + square[j] - e * e)
    rank = 0
    while rank < K:
        pivot = 0
        for i in range(K):
            if gram[i, i] > gram[pivot, pivot]:
                pivot = i
        if gram[pivot, pivot] <= 1e-15 * K:
            break
        e, column, row = 1.0 / math.sqrt(gram[pivot, pivot]), factor[rank], gram[pivot]
        for i in range(K):
            column[i] = row[i] * e
        for i in range(K):
            row, e = gram[i], column[i]
            for j in range(K):
                row[j] -= e * column[j]
        rank += 1
    h = np.empty((K, max(rank, 1)))
    for i in range(K):
        h[i, 0] = 0.0
        for c in range(rank):
            h[i, c] = factor[c, i]
    return h, bounds, n
