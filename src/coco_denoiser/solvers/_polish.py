"""Multipliers made sharp, where rounding has stopped a solver short of the end.

Newton's method on the pairs at their bounds. Distances are computed with a few digits more than
float64 has, where the machine has them: next to a point that is far away, float64 leaves the others
too few.
"""

import numpy as np
from numpy.typing import NDArray

from coco_denoiser._linalg import solve_laplacian
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.typing import Float64, Int64

_STEPS = 10
_ACTIVE = 200  # pairs at their bounds with which it takes too long


def polish(window: Window, multipliers: Float64, tol: float) -> Float64:
    """Return better multipliers, (K, K), or these.

    Pairs whose multiplier would turn negative leave, violated ones join.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return _polished(window, multipliers, tol)


def _polished(window: Window, multipliers: Float64, tol: float) -> Float64:
    K = window.precisions.size
    first, second = window.pairs()
    rho, lam = window.bounds[first, second], multipliers[first, second]
    edges = np.zeros((K, rho.size))
    edges[first, np.arange(rho.size)], edges[second, np.arange(rho.size)] = 1.0, -1.0
    best, best_gap = lam, np.inf
    for step in range(_STEPS):
        pull, M = np.zeros((K, K)), np.eye(K)
        pull[first, second] = lam
        solve_laplacian(pull, window.precisions.copy(), M, 0)
        hat = _stationary(window, M, edges, lam)
        apart = hat[first] - hat[second]
        over = (np.sqrt(np.sum(apart * apart, axis=1)) - rho).astype(np.float64)
        v, w = apart.astype(np.float64), rho + over
        gap = _gap(window, hat.astype(np.float64), first, second, lam, over)
        if not np.isfinite(gap):  # it runs away
            break
        if gap < best_gap:
            best, best_gap = lam, gap
        if gap <= 0.1 * tol:
            break
        force = (lam * rho).max()
        if step == 0:  # a pair is active if its multiplier is larger than its slack
            lam = np.where(lam * rho > -force * over / rho, lam, 0.0)
        active = (lam > 0.0) | (over > 0.0)
        if np.count_nonzero(active) > _ACTIVE:
            break
        part = edges[:, active]
        H = (part.T @ M @ part) * (v[active] @ v[active].T)
        # Scaled to a unit diagonal: bounds, and so multipliers, may differ by many orders.
        unit = 1.0 / np.sqrt(np.maximum(np.diag(H), ROUNDING**2))
        excess = w[active] ** 2 * (over[active] / rho[active])
        move = np.linalg.lstsq(unit[:, None] * H * unit, unit * excess, rcond=1e-13)[0]
        lam = lam.copy()
        lam[active] = np.maximum(lam[active] + unit * move, 0.0)
    out = np.zeros_like(multipliers)
    out[first, second] = out[second, first] = best
    return out


def _stationary(window: Window, M: Float64, edges: Float64, lam: Float64) -> NDArray[np.longdouble]:
    """Return the residuals that are stationary for lam: M makes up for what it gets wrong."""
    n, h = window.precisions[:, None], window.residuals.astype(np.longdouble)
    part, pull = edges[:, lam > 0.0], lam[lam > 0.0, None]
    hat = (M @ (n * window.residuals)).astype(np.longdouble)
    for _ in range(2):
        rest = n * (h - hat) - part @ (pull * (part.T @ hat))
        hat += M @ rest.astype(np.float64)
    return hat


def _gap(
    window: Window, hat: Float64, first: Int64, second: Int64, lam: Float64, over: Float64
) -> float:
    """Return the gap of hat, shrunk until every pair fits, relative to the objective there."""
    n, h, rho = window.precisions[:, None], window.residuals, window.bounds[first, second]
    size = (np.abs(hat) + np.abs(h - hat)).sum(axis=1)
    lost = ROUNDING * np.minimum(1.0, size[first] + size[second])
    shrunk = 1.0 - 1.0 / (1.0 + max(float(np.max((over - lost) / rho)), 0.0))
    slack = np.abs(over - shrunk * (rho + over)) - 0.5 * lost
    gap = 0.5 * shrunk**2 * np.sum(n * hat**2) + (lam * (rho + over)) @ np.maximum(slack, 0.0)
    value = 0.5 * np.sum(n * (hat - h - shrunk * hat) ** 2)
    return float(gap / value) if value > 0.0 else np.inf
