"""The paper's Algorithm 1: the fast dual proximal gradient method, matrix-free.

Minimises over one dual vector s_e for each pair e = (m, l)

    1/2 ||B s||^2 + sum_e (rho_e ||s_e|| - <s_e, h_m - h_l>),

where B s adds s_e to m and takes it from l, in the norm of the noise. With phi = h - B s, a
step is: go to u = y + phi_m - phi_l over K for each pair, then shorten u by rho / K. K is the
largest eigenvalue of the dual's quadratic form, the pairs being a complete graph's edges.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser.problem import ROUNDING, Problem, stationary
from coco_denoiser.typing import Float64

_CHECK_EVERY = 10


def solve(
    problem: Problem, *, tol: float, max_iter: int, start: Float64 | None = None
) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the iterations.
        start: multipliers to start from, of which the dual vectors are lam (phi_m - phi_l).
    """
    multipliers, dual = np.zeros_like(problem.bounds), None
    first, second = np.triu_indices(len(multipliers), 1)
    if start is not None:
        phi = stationary(start, problem)
        dual = start[first, second, None] * (phi[first] - phi[second])
    # The multipliers are one step behind the dual vectors: aim lower.
    s, iterations, _ = iterate(problem, tol=0.02 * tol, max_iter=max_iter, dual=dual)
    multipliers[first, second] = np.linalg.norm(s, axis=1) / problem.bounds[first, second]
    return multipliers + multipliers.T, iterations


def iterate(
    problem: Problem,
    *,
    tol: float,
    max_iter: int,
    dual: Float64 | None = None,
    restart: bool = True,
) -> tuple[Float64, int, Float64]:
    """Run the method; return the dual vectors, the iterations, and the dual objective at each.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach; 0 runs all iterations.
        max_iter: limit on the iterations.
        dual: (pairs, q), where to start, in the order of `numpy.triu_indices(K, 1)`; zero if
            None. The paper's warm start passes what the last window ended with.
        restart: drop the momentum when it points uphill; False is the paper's method to the
            letter.
    """
    K, q = problem.residuals.shape
    s = np.zeros((K * (K - 1) // 2, q)) if dual is None else dual.copy()
    n, h = problem.table, np.ascontiguousarray(problem.residuals)
    history, iterations = _iterate(h, problem.bounds, n, s, tol, max_iter, int(restart))
    return s, iterations, history[: iterations + 1]


@kernel
def _iterate(
    h: Float64, bounds: Float64, n: Float64, s: Float64, tol: float, max_iter: int, restart: int
) -> tuple[Float64, int]:
    pairs, q = s.shape
    step = n.min() / h.shape[0]
    y, before = s.copy(), s.copy()
    phi = np.empty(h.shape)
    history = np.empty(max_iter + 1)
    t = 1.0
    iteration = 0
    while True:
        _primal(h, n, s, phi)
        history[iteration] = _objective(h, bounds, n, s, phi)
        if iteration == max_iter:
            break
        if tol > 0.0 and iteration % _CHECK_EVERY == 0 and _gap(h, bounds, n, s, phi) <= tol:
            break
        _primal(h, n, y, phi)
        uphill = 0.0
        e = 0
        for i in range(h.shape[0]):
            for j in range(i + 1, h.shape[0]):
                squared = 0.0
                for c in range(q):
                    before[e, c] = s[e, c]
                    s[e, c] = y[e, c] + step * (phi[i, c] - phi[j, c])
                    squared += s[e, c] ** 2
                length, bound = np.sqrt(squared), step * bounds[i, j]
                keep = 1.0 - bound / length if length > bound else 0.0
                for c in range(q):
                    s[e, c] *= keep
                    uphill += (y[e, c] - s[e, c]) * (s[e, c] - before[e, c])
                e += 1
        if restart == 1 and uphill > 0.0:
            t = 1.0
        new = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        momentum = (t - 1.0) / new
        t = new
        for e in range(pairs):
            for c in range(q):
                y[e, c] = s[e, c] + momentum * (s[e, c] - before[e, c])
        iteration += 1
    return history, iteration


@kernel
def _primal(h: Float64, n: Float64, s: Float64, phi: Float64) -> None:
    """Fill phi = h - N^-1 B s."""
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            phi[i, c] = 0.0
    e = 0
    for i in range(h.shape[0]):
        for j in range(i + 1, h.shape[0]):
            for c in range(h.shape[1]):
                phi[i, c] -= s[e, c]
                phi[j, c] += s[e, c]
            e += 1
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            phi[i, c] = h[i, c] + phi[i, c] / n[i, c]


@subroutine
def _objective(h: Float64, bounds: Float64, n: Float64, s: Float64, phi: Float64) -> float:
    """Return the dual objective that the paper's Figure on warm starts shows."""
    total = 0.0
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            total += 0.5 * n[i, c] * (phi[i, c] - h[i, c]) ** 2
    e = 0
    for i in range(h.shape[0]):
        for j in range(i + 1, h.shape[0]):
            squared = 0.0
            for c in range(h.shape[1]):
                squared += s[e, c] ** 2
                total -= s[e, c] * (h[i, c] - h[j, c])
            if squared > 0.0:  # a free pair has no dual vector, and an infinite bound
                total += bounds[i, j] * np.sqrt(squared)
            e += 1
    return total


@subroutine
def _gap(h: Float64, bounds: Float64, n: Float64, s: Float64, phi: Float64) -> float:
    """Return the relative gap of phi, shrunk until every pair fits."""
    K, q = h.shape
    shrink = 1.0
    for i in range(K):
        for j in range(i):
            squared = 0.0
            for c in range(q):
                squared += (phi[i, c] - phi[j, c]) ** 2
            if squared > bounds[i, j] ** 2:
                shrink = min(shrink, bounds[i, j] / np.sqrt(squared))
    gap, value = 0.0, 0.0
    for i in range(K):
        for c in range(q):
            gap += 0.5 * n[i, c] * ((1.0 - shrink) * phi[i, c]) ** 2
            value += 0.5 * n[i, c] * (shrink * phi[i, c] - h[i, c]) ** 2
    e = 0
    for i in range(K):
        for j in range(i + 1, K):
            squared, work = 0.0, 0.0
            for c in range(q):
                squared += s[e, c] ** 2
                work += s[e, c] * shrink * (phi[i, c] - phi[j, c])
            if squared > 0.0:
                strength = np.sqrt(squared)
                gap += max(abs(bounds[i, j] * strength - work) - 0.5 * ROUNDING * strength, 0.0)
            e += 1
    return gap / value if gap > 0.0 else 0.0
