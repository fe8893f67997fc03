"""The Gaussian model: gradients of a field whose slope is random, averaged as `slope.py` says."""

import math

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser.models.bounds import Bound, Bounds, Limits
from coco_denoiser.models.slope import Fit, fit
from coco_denoiser.solution import Solution, Status
from coco_denoiser.typing import Float64, Int64
from coco_denoiser.window import Estimate, Window


class Gaussian:
    """A random slope, with as much of it as the window shows.

    Args:
        L: a cap on the slope: a number, a function that returns one, or None.
        tol: relative residual of the linear system to reach.
    """

    name = "gaussian"
    most = 0
    window = 32  # was measured: docs/gaussian.md
    folds = False

    def __init__(self, L: Bound | None = None, *, tol: float = 1e-9) -> None:
        self.tol = self.within = check.positive("tol", tol)
        self.settings: dict[str, object] = {"model": self.name, "L": L, "tol": tol}
        bounds = Bounds(_capped, L)
        self.fixed, self.limits = bounds.fixed, bounds.now

    def estimate(self, window: Window, limits: Limits, before: Estimate | None = None) -> Estimate:
        """Return the weights of the newest observation."""
        del before
        found = self.fit(window, limits, np.array([window.newest]))
        gap = found.gap.item()
        return Estimate(
            found.weights[0],
            std=found.std.item(),
            gap=gap,
            violation=math.nan,
            status=Status.ESTIMATED if gap <= self.tol else Status.STALLED,
            method=self.name,
        )

    def solution(
        self, window: Window, limits: Limits, found: Estimate | None, g: Float64, h: Float64
    ) -> Solution:
        """Return the estimates of all gradients, from the oldest to the newest."""
        del found, h
        fitted = self.fit(window, limits, window.order)
        fitted = fitted._replace(weights=fitted.weights[:, window.order])
        return _solution(fitted, g, window.d, self.tol)

    def fit(self, window: Window, limits: Limits, targets: Int64) -> Fit:
        """Average the gradients of a window at some of its points."""
        tables = window.point_distances, window.distances(0.0), 1.0 / window.variances
        return fit(*tables, targets, window.d, L=limits.L if math.isfinite(limits.L) else None)


def solution(
    x: Float64,
    g: Float64,
    variances: Float64,
    *,
    L: float | None = None,
    tol: float = 1e-9,
) -> Solution:
    """Estimate the gradients (K, d) at all points (K, d) of a window."""
    K, d = x.shape
    tables = kernels.distances(x), kernels.distances(g), 1.0 / variances
    found = fit(*tables, np.arange(K), d, L=L)
    return _solution(found, g, d, tol)


def _capped(L: float | None) -> Limits:
    cap = math.inf if L is None else check.positive("L", L)
    return Limits(cap, -cap, 0.0, math.nan)  # a slope has either sign


def _solution(found: Fit, g: Float64, d: int, tol: float) -> Solution:
    """Return what `solve` returns of a fit of all gradients (K, d)."""
    gap = float(found.gap.max())
    return Solution(
        gradients=g[0] + found.weights @ (g - g[0]),
        weights=found.weights,
        multipliers=np.full_like(found.weights, np.nan),
        gap=gap,
        violation=math.nan,
        iterations=0,
        method="gaussian",
        status=Status.ESTIMATED if gap <= tol else Status.STALLED,
        std=found.std,
        noise_std=float(found.noise_std),
        curvature=float(found.scale) * math.sqrt(d),
    )
