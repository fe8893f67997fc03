"""The exact method: a primal-dual interior-point method in gradients, values and multipliers.

Pair e = (i, j), i < j, has two inequalities, w_e + s_e <= rho_e^2 and w_e - s_e <= rho_e^2, with
w_e = ||phi_i - phi_j||^2, s_e = 2 <phi_i + phi_j, D_e> - (E_i - E_j), D_e = X_i - X_j and
rho_e = ||D_e||, multipliers a_e (two columns) and slacks z_e. The start is the answer under the
pairs' bounds alone, a little inside of them: its multipliers have the right order, which
differs much from pair to pair, and so does the path, a_e z_e = tau omega_e, tau -> 0.

Each iteration solves one linear system in (phi, E), of K (q + 1) unknowns, twice: for the
direction to the solution and, after Mehrotra, for one back to the path that makes up for what
the first left out.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser._linalg import cholesky, solve_laplacian, substitute
from coco_denoiser.interpolation.problem import Problem, excess
from coco_denoiser.typing import Float64

_INSIDE = 0.9  # how far inside the bounds it starts
_FLOOR = 0.2  # a step may double the error, or lift it to this


def solve(
    problem: Problem, phi: Float64, multipliers: Float64, *, tol: float, max_iter: int
) -> tuple[Float64, Float64, Float64, int]:
    """Return phi (K, q), E (K,), the multipliers of the ordered pairs (K, K), and iterations.

    Args:
        problem: residuals, points and perhaps values; no two points coincide.
        phi: (K, q), residuals that obey the pairs' bounds: where to start.
        multipliers: (K, K), those of the pairs' bounds, symmetric.
        tol: relative duality gap to reach.
        max_iter: limit on the iterations.
    """
    K = len(problem.precisions)
    first, second = np.triu_indices(K, 1)
    inside = _INSIDE * phi
    phi, E, a, iterations = _iterate(
        problem.residuals,
        problem.points,
        problem.precisions,
        problem.values,
        problem.value_precisions,
        np.column_stack((inside, _fitted(problem, inside))),
        multipliers[first, second],
        0.1 * tol,
        max_iter,
    )
    ordered = np.zeros((K, K))
    ordered[first, second], ordered[second, first] = a[:, 0], a[:, 1]
    return phi, E, ordered, iterations


def _fitted(problem: Problem, phi: Float64) -> Float64:
    """Return values that make the trapezoidal errors small, relative to the pairs' bounds."""
    _, s, bound = excess(problem, phi, np.zeros(len(phi)))
    weight = np.divide(1.0, bound**2, out=np.zeros_like(bound), where=bound > 0.0)
    E = (weight * s).sum(axis=1, keepdims=True)
    least = 1e-9 * weight.max(axis=1).min()  # only differences count; this fixes the mean
    solve_laplacian(weight, np.full(len(phi), least), E, 1)
    m = problem.value_precisions
    return np.asarray(E[:, 0] - m @ E[:, 0] / m.sum() if problem.observed else E[:, 0])


@kernel
def _iterate(
    h: Float64,
    X: Float64,
    n: Float64,
    Y: Float64,
    m: Float64,
    start: Float64,
    lam: Float64,
    tol: float,
    max_iter: int,
) -> tuple[Float64, Float64, Float64, int]:
    K, q = h.shape
    pairs = lam.size
    u, D, rho = start.copy(), np.empty((pairs, q)), np.empty(pairs)
    a, z, omega = np.empty((pairs, 2)), np.empty((pairs, 2)), np.empty(pairs)
    H, gradient = np.empty((K * (q + 1), K * (q + 1))), np.empty((K, q + 1))
    w, s = np.empty(pairs), np.empty(pairs)
    off, target = np.empty((pairs, 2)), np.empty((pairs, 2))
    da, dz = np.empty((pairs, 2)), np.empty((pairs, 2))
    _enter(X, lam, u, D, rho, a, z, omega)
    best, best_a, best_merit = u.copy(), a.copy(), np.inf
    iteration = 0
    value, gap, error = _residuals(u, h, n, Y, m, a, z, D, rho, w, s, gradient, off)
    while True:
        merit = gap / max(value, 1e-12) + error
        if merit < best_merit:
            best_merit = merit
            best[:], best_a[:] = u, a
        if (gap <= tol * value and error <= 1e-2 * np.sqrt(tol * value)) or iteration == max_iter:
            break
        ridge = 1e-15
        _matrix(u, n, m, a, z, D, H, ridge)
        while not cholesky(H) and ridge < 1e-6:
            ridge *= 30.0
            _matrix(u, n, m, a, z, D, H, ridge)
        total = 0.0
        for e in range(pairs):
            total += 2.0 * omega[e]
            for side in range(2):
                target[e, side] = a[e, side] * z[e, side]
        du = _direction(H, u, D, gradient, a, z, off, target, da, dz)
        step = _longest(a, z, da, dz, 1.0)
        after = 0.0
        for e in range(pairs):
            for side in range(2):
                after += (a[e, side] + step * da[e, side]) * (z[e, side] + step * dz[e, side])
        tau = gap / total * (after / gap) ** 3
        _evaluate(du, D, w, s)
        for e in range(pairs):
            for side in range(2):
                target[e, side] += da[e, side] * dz[e, side] - tau * omega[e]
                off[e, side] += w[e]
        du = _direction(H, u, D, gradient, a, z, off, target, da, dz)
        step = _longest(a, z, da, dz, 0.99)
        before = error
        for attempt in range(8):
            if attempt > 0:  # the step was too long: go back half of it
                step *= 0.5
            move = step if attempt == 0 else -step
            for i in range(K):
                for c in range(q + 1):
                    u[i, c] += move * du[i, c]
            for e in range(pairs):
                for side in range(2):
                    a[e, side] += move * da[e, side]
                    z[e, side] += move * dz[e, side]
            value, gap, error = _residuals(u, h, n, Y, m, a, z, D, rho, w, s, gradient, off)
            if error <= max(2.0 * before, _FLOOR):
                break
        iteration += 1
        if not error < np.inf:
            break
    return best[:, :q].copy(), best[:, q].copy(), best_a, iteration


@subroutine
def _enter(
    X: Float64,
    lam: Float64,
    u: Float64,
    D: Float64,
    rho: Float64,
    a: Float64,
    z: Float64,
    omega: Float64,
) -> None:
    """Fill what does not change, and where multipliers and slacks start."""
    K, q = X.shape
    force, e = 0.0, 0
    for i in range(K):
        for j in range(i + 1, K):
            squared = 0.0
            for c in range(q):
                D[e, c] = X[i, c] - X[j, c]
                squared += D[e, c] ** 2
            rho[e] = np.sqrt(squared)
            force = max(force, lam[e] * rho[e])
            e += 1
    e = 0
    for i in range(K):
        for j in range(i + 1, K):
            w, s = 0.0, u[j, q] - u[i, q]
            for c in range(q):
                w += (u[i, c] - u[j, c]) ** 2
                s += 2.0 * (u[i, c] + u[j, c]) * D[e, c]
            pull = max(0.25 * lam[e], 1e-3 * force / rho[e])
            for side in range(2):
                a[e, side] = pull
                slack = rho[e] ** 2 - w - (1.0 - 2.0 * side) * s
                z[e, side] = max(slack, 0.1 * rho[e] ** 2)
            omega[e] = rho[e] * max(pull * rho[e], 1e-2 * force)
            e += 1


@subroutine
def _residuals(
    u: Float64,
    h: Float64,
    n: Float64,
    Y: Float64,
    m: Float64,
    a: Float64,
    z: Float64,
    D: Float64,
    rho: Float64,
    w: Float64,
    s: Float64,
    gradient: Float64,
    off: Float64,
) -> tuple[float, float, float]:
    """Fill the residuals of the first two equations; return objective, gap and their size."""
    _evaluate(u, D, w, s)
    value = _gradient(u, h, n, Y, m, a, D, gradient)
    gap, error, rest = 0.0, 0.0, 0.0
    for e in range(rho.size):
        for side in range(2):
            off[e, side] = w[e] + (1.0 - 2.0 * side) * s[e] - rho[e] ** 2 + z[e, side]
            gap += a[e, side] * z[e, side]
            error = max(error, abs(off[e, side]) / rho[e] ** 2)
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            rest += gradient[i, c] ** 2 / n[i]
    return value, gap, error + np.sqrt(rest)


@subroutine
def _evaluate(u: Float64, D: Float64, w: Float64, s: Float64) -> None:
    """Fill w and s of every pair."""
    K, q = u.shape[0], u.shape[1] - 1
    e = 0
    for i in range(K):
        for j in range(i + 1, K):
            w[e], s[e] = 0.0, u[j, q] - u[i, q]
            for c in range(q):
                w[e] += (u[i, c] - u[j, c]) ** 2
                s[e] += 2.0 * (u[i, c] + u[j, c]) * D[e, c]
            e += 1


@subroutine
def _gradient(
    u: Float64,
    h: Float64,
    n: Float64,
    Y: Float64,
    m: Float64,
    a: Float64,
    D: Float64,
    out: Float64,
) -> float:
    """Fill the gradient of the Lagrangian; return the objective."""
    K, q = h.shape
    value = 0.0
    for i in range(K):
        for c in range(q):
            out[i, c] = n[i] * (u[i, c] - h[i, c])
            value += 0.5 * n[i] * (u[i, c] - h[i, c]) ** 2
        out[i, q] = m[i] * (u[i, q] - Y[i])
        value += 0.5 * m[i] * (u[i, q] - Y[i]) ** 2
    _add_transpose(u, D, a, out)
    return value


@subroutine
def _add_transpose(u: Float64, D: Float64, v: Float64, out: Float64) -> None:
    """Add J'v, where J is the derivative of the inequalities at u."""
    K, q = u.shape[0], u.shape[1] - 1
    e = 0
    for i in range(K):
        for j in range(i + 1, K):
            both, flow = 2.0 * (v[e, 0] + v[e, 1]), v[e, 0] - v[e, 1]
            for c in range(q):
                pull, push = both * (u[i, c] - u[j, c]), 2.0 * flow * D[e, c]
                out[i, c] += pull + push
                out[j, c] += push - pull
            out[i, q] -= flow
            out[j, q] += flow
            e += 1


@subroutine
def _matrix(
    u: Float64,
    n: Float64,
    m: Float64,
    a: Float64,
    z: Float64,
    D: Float64,
    H: Float64,
    ridge: float,
) -> None:
    """Fill the upper triangle of the Lagrangian's second derivative plus J' diag(a / z) J."""
    K, q = u.shape[0], u.shape[1] - 1
    b = q + 1
    H[:] = 0.0
    free = True
    for i in range(K):
        for c in range(q):
            H[i * b + c, i * b + c] = n[i]
        H[i * b + q, i * b + q] = m[i]
        free = free and m[i] == 0.0
    if free:  # only differences of values count: the first one stays
        H[q, q] = 1.0
    p, t = np.zeros(b), np.empty(b)
    e = 0
    for i in range(K):
        for j in range(i + 1, K):
            one, two = a[e, 0] / z[e, 0], a[e, 1] / z[e, 1]
            even, odd, pull = one + two, one - two, 2.0 * (a[e, 0] + a[e, 1])
            for c in range(q):
                p[c], t[c] = 2.0 * (u[i, c] - u[j, c]), 2.0 * D[e, c]
            # Derivatives: of w, p and -p; of s, (t, -1) and (t, 1), for points i and j.
            for c in range(b):
                ti, tj = (t[c], t[c]) if c < q else (-1.0, 1.0)
                ip, it = even * p[c] + odd * ti, even * ti + odd * p[c]
                jp, jt = -even * p[c] + odd * tj, even * tj - odd * p[c]
                left, right = H[i * b + c], H[j * b + c]
                for k in range(q):
                    left[i * b + k] += ip * p[k] + it * t[k]
                    left[j * b + k] += it * t[k] - ip * p[k]
                    right[j * b + k] += jt * t[k] - jp * p[k]
                left[i * b + q] -= it
                left[j * b + q] += it
                right[j * b + q] += jt
                if c < q:
                    left[i * b + c] += pull
                    left[j * b + c] -= pull
                    right[j * b + c] += pull
            e += 1
    for k in range(K * b):
        H[k, k] *= 1.0 + ridge


@subroutine
def _direction(
    H: Float64,
    u: Float64,
    D: Float64,
    gradient: Float64,
    a: Float64,
    z: Float64,
    off: Float64,
    target: Float64,
    da: Float64,
    dz: Float64,
) -> Float64:
    """Return the direction in (phi, E), and fill those of multipliers and slacks."""
    K, q = u.shape[0], u.shape[1] - 1
    for e in range(a.shape[0]):
        for side in range(2):
            da[e, side] = (a[e, side] * off[e, side] - target[e, side]) / z[e, side]
    du = gradient.copy()
    _add_transpose(u, D, da, du)
    flat = du.reshape(du.size)
    for k in range(flat.size):
        flat[k] = -flat[k]
    substitute(H, flat)
    e = 0
    for i in range(K):
        for j in range(i + 1, K):
            w, s = 0.0, du[j, q] - du[i, q]
            for c in range(q):
                w += 2.0 * (u[i, c] - u[j, c]) * (du[i, c] - du[j, c])
                s += 2.0 * (du[i, c] + du[j, c]) * D[e, c]
            for side in range(2):
                change = w + (1.0 - 2.0 * side) * s
                dz[e, side] = -off[e, side] - change
                da[e, side] += a[e, side] / z[e, side] * change
            e += 1
    return du


@subroutine
def _longest(a: Float64, z: Float64, da: Float64, dz: Float64, share: float) -> float:
    """Return the longest step, at most 1, that uses up no more than a share of what is left."""
    step = 1.0
    for e in range(a.shape[0]):
        for side in range(2):
            if da[e, side] < 0.0:
                step = min(step, -share * a[e, side] / da[e, side])
            if dz[e, side] < 0.0:
                step = min(step, -share * z[e, side] / dz[e, side])
    return step
