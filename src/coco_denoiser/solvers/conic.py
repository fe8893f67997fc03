"""The problem handed to Clarabel, a general conic interior-point solver.

    minimise  1/2 sum_i n_i ||phi_i||^2 - n_i <h_i, phi_i>
    subject to  (rho_ml, phi_m - phi_l) in the second-order cone, for every pair with a bound.

Slower by orders of magnitude than the exact method, and independent of it: the safety net, and
a witness in the tests.
"""

import numpy as np

from coco_denoiser._linalg import solve_laplacian
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.typing import Float64, Int64

_POLISH = 10  # at most so many steps of Newton's method on Clarabel's multipliers


def solve(
    window: Window, *, tol: float, max_iter: int, start: Float64 | None = None
) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations."""
    del start
    K = window.precisions.size
    first, second = _pairs(window)
    _, forces, iterations = vectors(window, window.precisions[:, None], tol=tol, max_iter=max_iter)
    rho = window.bounds[first, second]
    lam = _polished(window, first, second, np.linalg.norm(forces, axis=1) / rho)
    multipliers = np.zeros((K, K))
    multipliers[first, second] = lam
    return multipliers + multipliers.T, iterations


def vectors(
    window: Window, precisions: Float64, *, tol: float, max_iter: int
) -> tuple[Float64, Float64, int]:
    """Return phi (K, q), the forces on the pairs (pairs, q), and the number of iterations.

    Args:
        window: residuals and bounds.
        precisions: (K, 1), or (K, q) where they differ from coordinate to coordinate too.
        tol: relative duality gap to reach.
        max_iter: limit on the iterations.
    """
    # Imported here: both together cost more than the rest of the package.
    import clarabel  # noqa: PLC0415
    from scipy import sparse  # noqa: PLC0415

    K, q = window.residuals.shape
    first, second = _pairs(window)
    pairs = first.size
    rows = ((q + 1) * np.arange(pairs)[:, None] + 1 + np.arange(q)).ravel()
    columns = [(q * nodes[:, None] + np.arange(q)).ravel() for nodes in (first, second)]
    ones = np.ones(rows.size)
    A = sparse.csc_matrix(
        (np.concatenate((-ones, ones)), (np.tile(rows, 2), np.concatenate(columns))),
        shape=(pairs * (q + 1), K * q),
    )
    b = np.zeros(pairs * (q + 1))
    b[:: q + 1] = window.bounds[first, second]
    n = np.broadcast_to(precisions, (K, q)).ravel()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = max_iter
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = max(1e-3 * tol, 1e-13)
    solver = clarabel.DefaultSolver(
        sparse.diags(n, format="csc"),
        -n * window.residuals.ravel(),
        A,
        b,
        [clarabel.SecondOrderConeT(q + 1)] * pairs,
        settings,
    )
    result = solver.solve()
    phi, dual = np.asarray(result.x).reshape(K, q), np.asarray(result.z).reshape(pairs, q + 1)
    return phi, -dual[:, 1:], int(result.iterations)


def _pairs(window: Window) -> tuple[Int64, Int64]:
    """Return the pairs that have a bound, as rows and columns."""
    first, second = np.nonzero(np.triu(np.isfinite(window.bounds), 1))
    return first, second


def _polished(window: Window, first: Int64, second: Int64, lam: Float64) -> Float64:
    """Sharpen multipliers by Newton's method on the pairs at their bounds.

    The gap is quadratic in the error of a primal point but linear in that of the multipliers,
    so a conic solver's are good to half the digits only. Pairs whose multiplier would turn
    negative leave, violated ones join.
    """
    K = window.precisions.size
    rho = window.bounds[first, second]
    edges = np.zeros((K, rho.size))
    edges[first, np.arange(rho.size)], edges[second, np.arange(rho.size)] = 1.0, -1.0
    best, best_gap = lam, np.inf
    for step in range(_POLISH):
        pull, M = np.zeros((K, K)), np.eye(K)
        pull[first, second] = lam
        solve_laplacian(pull, window.precisions.copy(), M, 0)
        v = edges.T @ (M @ (window.precisions[:, None] * window.residuals))
        w = np.linalg.norm(v, axis=1)
        shrink = min(1.0, float((rho / np.maximum(w, ROUNDING)).min()))
        gap = float(np.sum(lam * w * np.abs(rho - shrink * w)) + (1.0 - shrink) ** 2)
        if gap < best_gap:
            best, best_gap = lam, gap
        force = (lam * rho).max()
        if step == 0:  # a pair is active if its multiplier is larger than its slack
            lam = np.where(lam * rho > force * (1.0 - w / rho), lam, 0.0)
        active = (lam > 0.0) | (w > rho)
        part = edges[:, active]
        H = (part.T @ M @ part) * (v[active] @ v[active].T)
        # Scaled to a unit diagonal: bounds, and so multipliers, may differ by many orders.
        unit = 1.0 / np.sqrt(np.maximum(np.diag(H), ROUNDING**2))
        excess = w[active] ** 2 * (w[active] / rho[active] - 1.0)
        move = np.linalg.lstsq(unit[:, None] * H * unit, unit * excess, rcond=1e-13)[0]
        lam = lam.copy()
        lam[active] = np.maximum(lam[active] + unit * move, 0.0)
    return best
