"""The peers: Clarabel and CVXPY on the problem as it stands, in all its d dimensions."""

from typing import Any

import clarabel
import cvxpy
import numpy as np
from scipy import sparse

from coco_denoiser.typing import Float64

cp: Any = cvxpy


def clarabel_seconds(
    points: Float64,
    gradients: Float64,
    *,
    one_thread: bool,
    tol: float | None = None,
    L: float = 1.0,
    mu: float = 0.0,
    noise_variance: Float64 | None = None,
) -> float:
    """Clarabel's own solve time, default tolerances unless given; its set-up is not counted.

    Its default lets it pick a factorisation and use all cores, which is slower here for large
    problems; with `one_thread` it gets whichever of its two factorisations is faster.
    """
    precisions = np.ones(len(points)) if noise_variance is None else 1.0 / noise_variance
    curvature = (L + mu) / 2.0, (L - mu) / 2.0
    given = points, gradients, np.repeat(precisions, points.shape[1]), curvature, tol
    if not one_thread:
        return _clarabel(*given, "auto", 0)
    return min(_clarabel(*given, method, 1) for method in ("qdldl", "faer"))


def _clarabel(
    points: Float64,
    gradients: Float64,
    precisions: Float64,
    curvature: tuple[float, float],
    tol: float | None,
    method: str,
    threads: int,
) -> float:
    K, d = points.shape
    c, r = curvature
    first, second = np.triu_indices(K, 1)
    pairs = first.size
    rows = ((d + 1) * np.arange(pairs)[:, None] + 1 + np.arange(d)).ravel()
    columns = [(d * nodes[:, None] + np.arange(d)).ravel() for nodes in (first, second)]
    ones = np.ones(rows.size)
    A = sparse.csc_matrix(
        (np.concatenate((-ones, ones)), (np.tile(rows, 2), np.concatenate(columns))),
        shape=(pairs * (d + 1), K * d),
    )
    b = np.zeros((pairs, d + 1))
    b[:, 0] = r * np.linalg.norm(points[first] - points[second], axis=1)
    b[:, 1:] = -c * (points[first] - points[second])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.direct_solve_method = method
    settings.max_threads = threads
    if tol is not None:
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
    solver = clarabel.DefaultSolver(
        sparse.diags(precisions, format="csc"),
        -precisions * gradients.ravel(),
        A,
        b.ravel(),
        [clarabel.SecondOrderConeT(d + 1)] * pairs,
        settings,
    )
    return float(solver.solve().solve_time)


def cvxpy_denoise(points: Float64, gradients: Float64) -> Float64:
    """What one would write first: the problem in CVXPY, solved by Clarabel, for L = 1."""
    K, d = points.shape
    theta = cp.Variable((K, d))
    constraints = [
        cp.norm(theta[i] - theta[j] - 0.5 * (points[i] - points[j]))
        <= 0.5 * np.linalg.norm(points[i] - points[j])
        for i in range(K)
        for j in range(i)
    ]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(theta - gradients)), constraints)
    problem.solve(solver=cp.CLARABEL)
    return np.asarray(theta.value)
