"""Gap, violation and stationarity of a solution, from its public fields, in extended precision.

Nothing here is shared with the library: the problem is taken as `coco_denoiser.denoise` states it,
and every number is a `numpy.longdouble`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import coco_denoiser as coco

Long = NDArray[np.longdouble]
_EPS = 2.3e-16


class Verdict(NamedTuple):
    """What a solution is worth.

    Attributes:
        gap: primal minus dual value, relative to the primal.
        rounding: how much of the gap the rounding of gradients and residuals can explain.
        violation: worst relative excess over a bound, beyond the rounding of the gradients.
        drift: what the multipliers' forces leave of (g - theta) / v, relative to the largest.
    """

    gap: float
    rounding: float
    violation: float
    drift: float


def long(values: ArrayLike) -> Long:
    return np.asarray(values, dtype=np.longdouble)


def eliminate(matrix: Long, right: Long) -> Long:
    """Solve a positive definite system; NumPy itself has no extended precision."""
    A, b = matrix.copy(), right.copy()
    for k in range(len(A)):
        factor = A[k + 1 :, k] / A[k, k]
        A[k + 1 :] -= factor[:, None] * A[k]
        b[k + 1 :] -= factor[:, None] * b[k]
    for k in range(len(A) - 1, -1, -1):
        b[k] = (b[k] - A[k, k + 1 :] @ b[k + 1 :]) / A[k, k]
    return b


def pairwise(
    points: ArrayLike,
    gradients: ArrayLike,
    solution: coco.Solution,
    *,
    L: float,
    mu: float = 0.0,
    noise_variance: ArrayLike | None = None,
    covariance: ArrayLike | None = None,
) -> Verdict:
    """Judge the answer of the problem of pairs; forces are multipliers times differences.

    Infinite multipliers hold points together with whatever force that takes.
    """
    x, g, theta = long(points), long(gradients), long(solution.gradients)
    K, d = x.shape
    v = np.ones(K) if noise_variance is None else np.asarray(noise_variance)
    sigma, axes = np.ones(d), np.eye(d)
    if covariance is not None:
        table = np.asarray(covariance, dtype=np.float64)
        sigma, axes = (table, axes) if table.ndim == 1 else np.linalg.eigh(table)
    c, r = (long(L) + long(mu)) / 2, (long(L) - long(mu)) / 2
    x, g, theta = (t @ long(axes) for t in (x - x[0], g - g[0], theta - long(gradients)[0]))
    n = 1 / (long(v)[:, None] * long(sigma))
    h, phi = g - c * x, theta - c * x
    first, second = np.nonzero(np.triu(solution.multipliers, 1))
    lam = long(solution.multipliers[first, second])
    held = np.isinf(lam)
    strong = np.where(held, 0, lam)[:, None]
    y = strong * (phi[first] - phi[second])
    force = n * (h - phi)

    def rest(y: Long) -> Long:
        out = force.copy()
        np.subtract.at(out, first, y)
        np.add.at(out, second, y)
        return np.asarray(out)

    # The forces lam (phi_m - phi_l), but for phi as the multipliers have it, not as it was rounded.
    pull = np.zeros((K, K), np.longdouble)
    pull[first, second] = strong[:, 0]
    pull += pull.T
    groups = [
        np.flatnonzero(np.isinf(row) | (np.arange(K) == i))
        for i, row in enumerate(solution.multipliers)
    ]
    leaders = sorted({int(group[0]) for group in groups})
    P = np.array([[float(k in groups[a]) for a in leaders] for k in range(K)], dtype=np.longdouble)
    laplacian = P.T @ (np.diag(pull.sum(axis=1)) - pull) @ P
    for _ in range(3):
        for axis in range(d):
            left = rest(y)[:, axis]
            moved = (
                P @ eliminate(np.diag(P.T @ n[:, axis]) + laplacian, (P.T @ left)[:, None])[:, 0]
            )
            y[:, axis] += strong[:, 0] * (moved[first] - moved[second])
    left = rest(y)
    for e in np.flatnonzero(held):
        y[e] = (left[first[e]] - left[second[e]]) / groups[first[e]].size
    left = rest(y)
    strength = np.sqrt((y * y).sum(axis=1))
    rho = r * np.sqrt(((x[first] - x[second]) ** 2).sum(axis=1))
    primal = (n * (theta - g) ** 2).sum() / 2
    pulled = force - left
    dual = (y * (h[first] - h[second])).sum() - (pulled**2 / n).sum() / 2 - (rho * strength).sum()
    size = float(max(np.abs(long(gradients)).max(), np.abs(h).max(), np.abs(c * x).max()))
    slip = 20 * _EPS * size
    rounding = slip * float(strength.sum() + (n * np.abs(theta - g)).sum())
    i, j = np.triu_indices(K, 1)
    bound = r * np.sqrt(((x[i] - x[j]) ** 2).sum(axis=1))
    excess = np.sqrt(((phi[i] - phi[j]) ** 2).sum(axis=1)) - bound - slip
    over = excess[excess > 0] / bound[excess > 0] if (excess > 0).any() else long([0])
    scale = float(max(primal, 1e-300))
    drift = float(np.abs(left).max() / max(np.abs(force).max(), np.longdouble(1e-300)))
    return Verdict(float(primal - dual) / scale, rounding / scale, float(over.max()), drift)
