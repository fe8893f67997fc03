"""The problem handed to Clarabel, a general conic interior-point solver.

An inequality ||v||^2 <= t is the cone ((t / u + u) / 2, (t / u - u) / 2, v), u being any length;
here v = phi_i - phi_j, t = u^2 - s_ij and u = ||X_i - X_j||, for every ordered pair.

Slower by an order of magnitude than the exact method, and independent of it: the safety net,
and a witness in the tests.
"""

import numpy as np

from coco_denoiser.interpolation.problem import Problem
from coco_denoiser.typing import Float64


def solve(
    problem: Problem, phi: Float64, multipliers: Float64, *, tol: float, max_iter: int
) -> tuple[Float64, Float64, Float64, int]:
    """Return phi (K, q), E (K,), the multipliers of the ordered pairs (K, K), and iterations.

    `phi` and `multipliers`, where another method would start, are not used.
    """
    del phi, multipliers
    # Imported here: both together cost more than the rest of the package.
    import clarabel  # noqa: PLC0415
    from scipy import sparse  # noqa: PLC0415

    K, q = problem.residuals.shape
    first, second = np.nonzero(~np.eye(K, dtype=bool))
    pairs = first.size
    D = problem.points[first] - problem.points[second]
    u = np.linalg.norm(D, axis=1)
    # Rows of a pair: the two of t, then those of v. Unknowns: phi, row by row, then E.
    top = (q + 2) * np.arange(pairs)
    entries: list[tuple[Float64, Float64, Float64]] = []
    half = 1.0 / (2.0 * u)
    for row in (top, top + 1):
        for points, sign in ((first, 1.0), (second, -1.0)):
            at = q * points[:, None] + np.arange(q)
            entries.append((np.repeat(row, q), at.ravel(), (2.0 * D * half[:, None]).ravel()))
            entries.append((row, K * q + points, -sign * half))
    for points, sign in ((first, -1.0), (second, 1.0)):
        rows = top[:, None] + 2 + np.arange(q)
        at = q * points[:, None] + np.arange(q)
        entries.append((rows.ravel(), at.ravel(), np.full(rows.size, sign)))
    rows, columns, numbers = (np.concatenate(part) for part in zip(*entries, strict=True))
    A = sparse.csc_matrix((numbers, (rows, columns)), shape=(pairs * (q + 2), K * (q + 1)))
    b = np.zeros(pairs * (q + 2))
    b[top] = u
    n = np.concatenate((np.repeat(problem.precisions, q), problem.value_precisions))
    observed = np.concatenate((problem.residuals.ravel(), problem.values))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = max_iter
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = max(1e-3 * tol, 1e-13)
    cones = [clarabel.SecondOrderConeT(q + 2)] * pairs
    quadratic = sparse.diags(n, format="csc")
    result = clarabel.DefaultSolver(quadratic, -n * observed, A, b, cones, settings).solve()
    found, dual = np.asarray(result.x), np.asarray(result.z)
    multipliers = np.zeros((K, K))
    multipliers[first, second] = np.maximum((dual[top] + dual[top + 1]) * half, 0.0)
    return found[: K * q].reshape(K, q), found[K * q :], multipliers, int(result.iterations)
