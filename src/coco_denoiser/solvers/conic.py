"""The problem handed to Clarabel, a general conic interior-point solver.

    minimise  1/2 sum_i n_i ||phi_i||^2 - n_i <h_i, phi_i>
    subject to  (rho_ml, phi_m - phi_l) in the second-order cone, for every pair with a bound.

Slower by orders of magnitude than the exact methods: a witness in the tests, and the safety net
where the noise has a covariance or all gradients belong to one function.
"""

from typing import Any

import numpy as np

from coco_denoiser.geometry import Window
from coco_denoiser.solvers import active_pairs
from coco_denoiser.solvers._active_step import Allowance
from coco_denoiser.typing import Float64

_POLISH = 1e8  # multiplications that may be spent on better multipliers


def solve(window: Window, *, tol: float, max_iter: int) -> tuple[Any, ...]:
    """Return the multipliers, (K, K), the iterations, and phi or E where they do not follow."""
    if window.curve is not None:
        return _one_function(window, tol=tol, max_iter=max_iter)
    K, q = window.residuals.shape
    first, second = window.pairs()
    rows = (q + 1) * np.arange(first.size)[:, None] + 1 + np.arange(q)
    entries = [
        (rows, q * nodes[:, None] + np.arange(q), np.full(rows.shape, sign))
        for nodes, sign in ((first, -1.0), (second, 1.0))
    ]
    rho = window.bounds[first, second]
    heads = np.insert(np.zeros((first.size, q)), 0, rho, axis=1)
    n = window.table().ravel()
    x, dual, iterations = _clarabel(n, window.residuals.ravel(), entries, heads, tol, max_iter)
    multipliers = np.zeros((K, K))
    multipliers[first, second] = np.linalg.norm(dual[:, 1:], axis=1) / rho
    multipliers += multipliers.T
    if window.shares is None:
        # The gap is quadratic in the error of a primal point but linear in that of the
        # multipliers, so a conic solver's are good to half the digits only.
        allowance = Allowance(_POLISH)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            better, *_ = active_pairs.improved(
                window, window.bounds, np.triu(multipliers), 0.5 * tol, max_iter, allowance
            )
        return better + better.T, iterations
    return multipliers, iterations, x.reshape(K, q)


def _one_function(
    window: Window, *, tol: float, max_iter: int
) -> tuple[Float64, int, Float64, Float64]:
    """Return the multipliers of the ordered pairs (K, K), iterations, phi (K, q) and E (K,).

    An inequality ||v||^2 <= t is the cone ((t / u + u) / 2, (t / u - u) / 2, v), u being any
    length; here v = phi_i - phi_j, t = u^2 - s_ij and u = ||X_i - X_j||.
    """
    curve = window.one_function
    K, q = window.residuals.shape
    one, two = window.pairs()
    first, second = np.concatenate((one, two)), np.concatenate((two, one))
    D = curve.points[first] - curve.points[second]
    u = np.linalg.norm(D, axis=1)
    # Rows of a pair: the two of t, then those of v. Unknowns: phi, row by row, then E.
    top = (q + 2) * np.arange(first.size)
    entries, half = [], 1.0 / (2.0 * u)
    for nodes, sign in ((first, 1.0), (second, -1.0)):
        at = q * nodes[:, None] + np.arange(q)
        for row in (top, top + 1):
            entries.append((row[:, None] + 0 * at, at, 2.0 * D * half[:, None]))
            entries.append((row, K * q + nodes, -sign * half))
        entries.append((top[:, None] + 2 + np.arange(q), at, np.full(at.shape, -sign)))
    heads = np.insert(np.zeros((first.size, q + 1)), 0, u, axis=1)
    n = np.concatenate((window.table().ravel(), curve.precisions))
    observed = np.concatenate((window.residuals.ravel(), curve.values))
    x, dual, iterations = _clarabel(n, observed, entries, heads, tol, max_iter)
    multipliers = np.zeros((K, K))
    multipliers[first, second] = np.maximum((dual[:, 0] + dual[:, 1]) * half, 0.0)
    return multipliers, iterations, x[: K * q].reshape(K, q), x[K * q :]


def _clarabel(
    n: Float64, observed: Float64, entries: list[Any], heads: Float64, tol: float, max_iter: int
) -> tuple[Float64, Float64, int]:
    """Minimise 1/2 sum n (x - observed)^2 over cones; return x, the dual vectors, iterations.

    `entries` are rows, columns and numbers of a matrix A, and `heads` (cones, size) a table b:
    every row of b - A x must be in the second-order cone.
    """
    # Imported here: both together cost more than the rest of the package.
    import clarabel  # noqa: PLC0415
    from scipy import sparse  # noqa: PLC0415

    rows, columns, numbers = (
        np.concatenate([part.ravel() for part in kind]) for kind in zip(*entries, strict=True)
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = max_iter
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = max(1e-3 * tol, 1e-13)
    result = clarabel.DefaultSolver(
        sparse.diags(n, format="csc"),
        -n * observed,
        sparse.csc_matrix((numbers, (rows, columns)), shape=(heads.size, n.size)),
        heads.ravel(),
        [clarabel.SecondOrderConeT(heads.shape[1])] * len(heads),
        settings,
    ).solve()
    dual = np.asarray(result.z).reshape(heads.shape)
    return np.asarray(result.x), dual, int(result.iterations)
