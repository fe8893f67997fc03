"""The Gaussian model: gradients of a field whose slope is random, averaged as `slope.py` says."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser.models.base import Bound, Limits, Model, now
from coco_denoiser.models.slope import Fit, fit
from coco_denoiser.solution import Solution, Status
from coco_denoiser.typing import Float64, Int64
from coco_denoiser.window import Estimate, Window


@dataclass
class Gaussian(Model):
    r"""Gradients of a field with a random slope, with as much of it as the window shows.

    $g_i = \theta_j + E (x_i - x_j) + n_i$ with Gaussian E and n, whose sizes are estimated from the
    observations; $\theta_j$ is then estimated by generalised least squares. It needs no L, and
    knows the standard error of what it returns.

    Args:
        L: a cap on the slope: a number, a function that returns one, or None.
        tol: relative residual of the linear system to reach.

    Examples:
        >>> from coco_denoiser import Gaussian, denoise
        >>> denoise([[0.0], [0.0]], [[1.0], [3.0]], model=Gaussian())
        array([[2.],
               [2.]])
    """

    name: ClassVar = "gaussian"
    window: ClassVar = 32  # was measured: docs/gaussian.md

    L: Bound | None = None
    tol: float = field(default=1e-9, kw_only=True)

    def __post_init__(self) -> None:
        self.tol = check.positive("tol", self.tol)
        self.fix(self.L)

    @property
    def settings(self) -> dict[str, object]:
        """Its name and its options."""
        return {"model": self.name, "L": self.L, "tol": self.tol}

    def ask(self) -> Limits:
        """Return the cap as it is now: a slope has either sign."""
        (L,) = now(self.L)
        cap = math.inf if L is None else check.positive("L", L)
        return Limits(cap, -cap, 0.0, math.nan)

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

    def batch(
        self, x: Float64, g: Float64, variances: Float64, covariance: Float64 | None
    ) -> Solution:
        """Return the estimates of the gradients at all points of a batch."""
        if covariance is not None:
            raise ValueError(
                "covariance is only supported by Cocoercive: the Gaussian model estimates the "
                "noise, the same in all directions."
            )
        check.in_range(x, g, 0.0)
        K, d = x.shape
        tables = kernels.distances(x), kernels.distances(g), 1.0 / variances
        return _solution(_fit(*tables, np.arange(K), d, self.limits(1.0)), g, d, self.tol)

    def fit(self, window: Window, limits: Limits, targets: Int64) -> Fit:
        """Average the gradients of a window at some of its points."""
        tables = window.point_distances, window.distances(0.0), 1.0 / window.variances
        return _fit(*tables, targets, window.d, limits)


def _fit(
    x: Float64, g: Float64, precisions: Float64, targets: Int64, d: int, limits: Limits
) -> Fit:
    L = limits.L if math.isfinite(limits.L) else None
    return fit(x, g, precisions, targets, d, L=L)


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
