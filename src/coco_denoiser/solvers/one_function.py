"""Gradients of one function: an interior-point method in gradients, values and multipliers.

Pair e = (i, j), i < j, has two inequalities, w_e + s_e <= rho_e^2 and w_e - s_e <= rho_e^2, with
w_e = ||phi_i - phi_j||^2, s_e = 2 <phi_i + phi_j, D_e> - (E_i - E_j), D_e = X_i - X_j and
rho_e = ||D_e||, multipliers a_e (two columns) and slacks z_e. The start is the answer under the
pairs' bounds alone, a little inside of them: its multipliers have the right orders of magnitude,
which differ widely between pairs, and so does the path, a_e z_e = tau omega_e, tau -> 0.

Points much closer than the others are written as a leader plus a difference, in the unknowns as
in the linear system: what holds them together would otherwise drown what moves them together.

Each iteration solves one linear system in (phi, E), of K (q + 1) unknowns, twice: for the
direction to the solution and, after Mehrotra, for one back to the path that makes up for what
the first left out.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser._linalg import cholesky, solve_laplacian
from coco_denoiser.constraints.curves import excess
from coco_denoiser.geometry import Window
from coco_denoiser.solvers._one_function_step import (
    direction,
    evaluate,
    longest,
    matrix,
    residuals,
)
from coco_denoiser.typing import Float64, Int64

_INSIDE = 0.9  # how far inside the bounds the method starts
_FLOOR = 0.2  # a step may double the error, or lift it to this
_PATIENCE = 20  # iterations without any gain before it gives up
_CLOSE = 0.03  # points follow another that is nearer than this share of the largest distance


def solve(
    window: Window, start: tuple[Float64, Float64], *, tol: float, max_iter: int
) -> tuple[Float64, int, Float64, Float64]:
    """Return the multipliers of the ordered pairs (K, K), iterations, phi (K, q) and E (K,).

    Args:
        window: residuals and their curve; no two points coincide.
        start: phi (K, q) and multipliers (K, K), the answer under the pairs' bounds alone.
        tol: relative duality gap to reach.
        max_iter: limit on the iterations.
    """
    curve, K = window.one_function, len(window.precisions)
    first, second = window.pairs()
    inside = _INSIDE * start[0]
    fixed = np.zeros(0, np.int64)
    if not curve.observed:  # one value in each unconnected part
        fixed = np.unique(_parts(K, first, second))
    phi, E, a, iterations = _iterate(
        window.residuals,
        curve.points,
        window.table(),
        curve.values,
        curve.precisions,
        first,
        second,
        fixed,
        np.column_stack((inside, _fitted(window, inside))),
        start[1][first, second],
        0.1 * tol,
        max_iter,
    )
    ordered = np.zeros((K, K))
    ordered[first, second], ordered[second, first] = a[:, 0], a[:, 1]
    return ordered, iterations, phi, E


def _parts(K: int, first: Int64, second: Int64) -> Int64:
    """Return the first point of the part that each point is connected with by pairs."""
    part = np.arange(K)
    for _ in range(K):
        least = np.minimum(part[first], part[second])
        before = part.copy()
        np.minimum.at(part, first, least)
        np.minimum.at(part, second, least)
        if np.array_equal(part, before):
            break
    return part


def _fitted(window: Window, phi: Float64) -> Float64:
    """Return values that make the trapezoidal errors small, relative to the pairs' bounds."""
    _, s, bound = excess(window, phi, np.zeros(len(phi)))
    weight = np.divide(1.0, bound**2, out=np.zeros_like(bound), where=bound > 0.0)
    E = (weight * s).sum(axis=1, keepdims=True)
    least = 1e-9 * weight.max(axis=1).min()  # only differences count; this fixes the mean
    solve_laplacian(weight, np.full(len(phi), least), E, 1)
    curve = window.one_function
    m = curve.precisions
    return np.asarray(E[:, 0] - m @ E[:, 0] / m.sum() if curve.observed else E[:, 0])


@kernel
def _iterate(
    h: Float64,
    X: Float64,
    n: Float64,
    Y: Float64,
    m: Float64,
    first: Int64,
    second: Int64,
    fixed: Int64,
    start: Float64,
    lam: Float64,
    tol: float,
    max_iter: int,
) -> tuple[Float64, Float64, Float64, int]:
    K, q = h.shape
    pairs = lam.size
    D, rho = np.empty((pairs, q)), np.empty(pairs)
    _differences(X, first, second, D, rho)
    leader = _leaders(first, second, rho, K)
    base, own = start[leader], start - start[leader]  # of each point: (phi, E) is their sum
    a, z, omega = np.empty((pairs, 2)), np.empty((pairs, 2)), np.empty(pairs)
    H, gradient = np.empty((K * (q + 1), K * (q + 1))), np.empty((K, q + 1))
    w, s = np.empty(pairs), np.empty(pairs)
    off, target = np.empty((pairs, 2)), np.empty((pairs, 2))
    da, dz = np.empty((pairs, 2)), np.empty((pairs, 2))
    evaluate(base, own, first, second, D, w, s)
    _enter(lam, rho, w, s, a, z, omega)
    best, best_a, best_merit = start.copy(), a.copy(), np.inf
    iteration = best_iteration = 0
    value, gap, outside, rest = residuals(
        base, own, h, n, Y, m, a, z, first, second, D, rho, w, s, gradient, off
    )
    while True:
        error = outside + np.sqrt(rest)
        merit = (gap + rest) / max(value, 1e-12) + outside
        if merit < best_merit:
            best_merit, best_iteration = merit, iteration
            best[:], best_a[:] = base + own, a
        # What is outside its bounds is drawn in, which costs as much; rest is a square.
        solved = gap + rest <= tol * value and outside <= 0.1 * tol
        if solved or iteration == min(max_iter, best_iteration + _PATIENCE):
            break
        ridge = 1e-15
        matrix(base, own, leader, n, m, a, z, first, second, D, fixed, H, ridge)
        while not cholesky(H) and ridge < 1e-6:
            ridge *= 30.0
            matrix(base, own, leader, n, m, a, z, first, second, D, fixed, H, ridge)
        total = 0.0
        for e in range(pairs):
            total += 2.0 * omega[e]
            for side in range(2):
                target[e, side] = a[e, side] * z[e, side]
        dbase, down = direction(
            H, base, own, leader, first, second, D, gradient, a, z, off, target, da, dz, w, s
        )
        step = longest(a, z, da, dz, 1.0)
        after = 0.0
        for e in range(pairs):
            for side in range(2):
                after += (a[e, side] + step * da[e, side]) * (z[e, side] + step * dz[e, side])
        tau = gap / total * (after / gap) ** 3
        evaluate(dbase, down, first, second, D, w, s)
        for e in range(pairs):
            for side in range(2):
                target[e, side] += da[e, side] * dz[e, side] - tau * omega[e]
                off[e, side] += w[e]
        dbase, down = direction(
            H, base, own, leader, first, second, D, gradient, a, z, off, target, da, dz, w, s
        )
        step = longest(a, z, da, dz, 0.99)
        before = error
        for attempt in range(8):
            if attempt > 0:  # the step was too long: go back half of it
                step *= 0.5
            move = step if attempt == 0 else -step
            base += move * dbase
            own += move * down
            a += move * da
            z += move * dz
            value, gap, outside, rest = residuals(
                base, own, h, n, Y, m, a, z, first, second, D, rho, w, s, gradient, off
            )
            if outside + np.sqrt(rest) <= max(2.0 * before, _FLOOR):
                break
        iteration += 1
        if not outside + rest < np.inf:
            break
    return best[:, :q].copy(), best[:, q].copy(), best_a, iteration


@subroutine
def _differences(X: Float64, first: Int64, second: Int64, D: Float64, rho: Float64) -> None:
    """Fill X_i - X_j and its length for every pair."""
    for e in range(rho.size):
        squared = 0.0
        for c in range(X.shape[1]):
            D[e, c] = X[first[e], c] - X[second[e], c]
            squared += D[e, c] ** 2
        rho[e] = np.sqrt(squared)


@subroutine
def _leaders(first: Int64, second: Int64, rho: Float64, K: int) -> Int64:
    """Return whom each point follows: the first one, itself included, that is close enough."""
    leader = np.arange(K)
    close = _CLOSE * min(rho.max(), 1.0)
    for e in range(rho.size):
        i, j = first[e], second[e]
        if rho[e] <= close and leader[i] == i and leader[j] == j:
            leader[j] = i
    return leader


@subroutine
def _enter(
    lam: Float64, rho: Float64, w: Float64, s: Float64, a: Float64, z: Float64, omega: Float64
) -> None:
    """Fill where multipliers and slacks start, and their path."""
    force = (lam * rho).max()
    for e in range(rho.size):
        pull = max(0.25 * lam[e], 1e-3 * force / rho[e])
        for side in range(2):
            a[e, side] = pull
            slack = rho[e] ** 2 - w[e] - (1.0 - 2.0 * side) * s[e]
            z[e, side] = max(slack, 0.1 * rho[e] ** 2)
        omega[e] = rho[e] * max(pull * rho[e], 1e-2 * force)
