"""The problem handed to Clarabel, a general conic interior-point solver.

    minimise  1/2 sum_i n_i ||phi_i||^2 - n_i <h_i, phi_i>
    subject to  (rho_ml, phi_m - phi_l) in the second-order cone, for every pair with a bound.

Slower by orders of magnitude than the exact methods: a witness in the tests, and the safety net
where the noise has a covariance.
"""

from typing import Any

import numpy as np

from coco_denoiser.geometry import Window
from coco_denoiser.solvers import active_pairs
from coco_denoiser.solvers._active_step import Allowance
from coco_denoiser.typing import Float64

_POLISH = 1e8  # multiplications that may be spent on better multipliers


def solve(window: Window, *, tol: float, max_iter: int) -> tuple[Any, ...]:
    """Return the multipliers, (K, K), the iterations, and phi where it does not follow."""
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
