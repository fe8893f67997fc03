"""Exact multipliers of a hard window: Newton's method on a barrier, from inside the bounds.

Letters are those of `_core/barrier.pxi`, compiled code for problems without a
covariance. For tau -> 0, this method minimises

    F(phi) = 1/2 sum_i n_i ||phi_i - h_i||^2 - tau sum_e log s_e,

which is convex and self-concordant: Newton's steps, halved while F does not fall, lead to its
minimum from everywhere. The multipliers are unknowns too (lam s = tau, linearised), so that tau
may fall to a tenth at once.

The choice of unknowns saves the digits: a point is its parent in a tree plus a difference of its
own, in units of their bound. So near points lose nothing to where they are. And a parent is known
at least as precisely as its children, so that no small force is added to a large one.

The linear system has K q unknowns, however many pairs there are.
"""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.solvers.large import substitute
from coco_denoiser.solvers.newton import needed_bounds
from coco_denoiser.typing import Float64

STEPS: int = kernels.CONSTANTS["PATH"]
_FALL = 0.1  # what is left of tau where F is near enough to its minimum
_NEAR, _AT = 0.25, 1e-6  # how near, in units of tau: on the way, and at the end
_SHORTEST = 2.0**-30  # of a step
_WIDEST = 1e4  # factor by which lam s may differ from tau


def multiplications(problem: Problem) -> float:
    """Return how many a step takes, about."""
    K, q = problem.residuals.shape
    if problem.isotropic:
        return float(K * min(K, q)) ** 3 / 6.0
    return 0.03 * float(K * K * q) ** 2  # matrix products, which are faster


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on Newton's steps.
    """
    if not problem.isotropic:
        return _solve_table(problem, tol, max_iter)
    h = problem.residuals
    if h.shape[1] > len(h):
        h = np.ascontiguousarray(np.asarray(np.linalg.qr(h.T, mode="r")).T)
    given = h, problem.bounds, problem.precisions, tol, max_iter, 0.1 * tol, "barrier"
    _, _, multipliers, steps, *_ = kernels.solve(*given)
    return multipliers, steps


def _solve_table(problem: Problem, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Solve, as `solve`, with a precision for every coordinate of every residual."""
    n, h = problem.table, problem.residuals
    first, second = np.nonzero(np.triu(needed_bounds(problem.bounds) < np.inf))
    rho, tree = problem.bounds[first, second], _tree(problem)
    edges = tree[first] - tree[second]
    masses = tree.T @ (problem.precisions[:, None] * tree)
    shares = problem.coordinate_precisions[: h.shape[1]]
    # u = phi - h and v start inside the bounds, as far as they are broken.
    v = h[first] - h[second]
    worst = float(np.max(np.linalg.norm(v, axis=1) / rho))
    shrink = 1.0 / (worst * (1.0 + min(0.1, worst - 1.0)))
    u, v = (shrink - 1.0) * (h - np.sum(n * h, axis=0) / n.sum(axis=0)), shrink * v
    w = np.linalg.norm(v, axis=1)
    s = 0.5 * (rho - w) * (rho + w)
    loss = 0.5 * float(np.sum(n * u * u))
    tau = loss / rho.size
    lam, steps = tau / s, 0
    while steps < max_iter:
        factor, unit = _factor(masses, shares, edges, lam, s, v)
        if factor is None:
            break
        pull, end = tree.T @ (n * u), 0.1 * tol * loss / rho.size
        step, fall = _newton(factor, unit, pull, edges, tau / s, v)
        if fall <= (_NEAR if tau > end else _AT) * tau:
            if tau <= end:
                break
            tau = max(_FALL * tau, 0.99 * end)
            step, fall = _newton(factor, unit, pull, edges, tau / s, v)
        du, dv = tree @ step, edges @ step
        along, square = np.sum(v * dv, axis=1), np.sum(dv * dv, axis=1)
        dlam = (tau + lam * along) / s - lam
        # At most to where the first pair breaks its bound, but for a hundredth.
        reach = 2.0 * s / np.maximum(along + np.sqrt(along**2 + 2.0 * square * s), 1e-300)
        length = min(1.0, 0.99 * float(reach.min()))
        rounding = 1e-13 * (loss + tau * rho.size)
        while True:
            # Not from v: where bounds are barely broken, that would leave it no digits.
            slack = s - length * (along + 0.5 * length * square)
            ahead = 0.5 * float(np.sum(n * (u + length * du) ** 2))
            change = ahead - loss - tau * float(np.sum(np.log(np.maximum(slack / s, 1e-300))))
            if change <= rounding - 1e-4 * length * fall or length < _SHORTEST:
                break
            length *= 0.5
        if length < _SHORTEST:
            break
        u, v, s, loss = u + length * du, v + length * dv, slack, ahead
        lam = lam + min(1.0, 0.99 / max(float(np.max(-dlam / lam)), 1e-300)) * dlam
        lam = np.clip(lam, tau / s / _WIDEST, tau / s * _WIDEST)
        steps += 1
    table = np.zeros_like(problem.bounds)
    table[first, second] = table[second, first] = lam
    return table, steps


def _tree(problem: Problem) -> Float64:
    """Return the points in terms of the unknowns, (K, K): phi = tree z.

    The parent of a point is the nearest of those known at least as precisely, if there is a bound.
    """
    order = np.argsort(-problem.precisions, kind="stable")
    tree = np.eye(order.size)
    for k, i in enumerate(order[1:], start=1):
        parent = order[problem.bounds[i, order[:k]].argmin()]
        if np.isfinite(problem.bounds[i, parent]):
            tree[i] = tree[parent]
            tree[i, i] = problem.bounds[i, parent]
    return tree


def _factor(
    masses: Float64, shares: Float64, edges: Float64, lam: Float64, s: Float64, v: Float64
) -> tuple[Float64 | None, Float64]:
    """Return the Cholesky factor of the Hessian with its diagonal scaled to 1, and the scale."""
    size, q = masses.shape[0] * v.shape[1], v.shape[1]
    H = np.kron(masses, np.diag(shares)) + np.kron(edges.T @ (lam[:, None] * edges), np.eye(q))
    stiff = np.sqrt(lam / s)[:, None] * v
    rows = (edges[:, :, None] * stiff[:, None, :]).reshape(-1, size)
    H += rows.T @ rows
    unit = 1.0 / np.sqrt(np.diag(H))
    H *= unit[:, None] * unit
    for ridge in (1e-15, 1e-13, 1e-11, 1e-9):
        try:
            factor = np.linalg.cholesky(H + ridge * np.eye(size), upper=True)
            return np.asarray(factor, np.float64), unit
        except np.linalg.LinAlgError:
            continue
    return None, unit


def _newton(
    factor: Float64, unit: Float64, pull: Float64, edges: Float64, force: Float64, v: Float64
) -> tuple[Float64, float]:
    """Return Newton's step, (K, q), and twice how far F falls along it."""
    gradient = (pull + edges.T @ (force[:, None] * v)).ravel()
    step = -unit * gradient
    substitute(factor, step)
    step *= unit
    return step.reshape(pull.shape), -float(gradient @ step)
