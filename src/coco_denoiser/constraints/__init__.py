"""What is asked of a batch, reduced to a window; and the way back from an answer to gradients.

`geometry.py` has the bound on every pair, `averages.py` what multipliers make of residuals.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.geometry import Window
from coco_denoiser.solution import Answer, Solution
from coco_denoiser.typing import Float64

_NO_WEIGHTS = "the covariance gives every direction of the noise weights of its own"


class Frame(NamedTuple):
    """The way from an answer back to gradients.

    Attributes:
        gradients: (K, d), as they were observed.
        residuals: (K, d), h in all coordinates, along `axes`.
        scale: the size of one unit of a residual, apart from `exponent`.
        exponent: of the power of two that brought the input into range.
        axes: (d, d), the directions of the residuals' coordinates, as columns; None for the usual.
        unit: what one unit of a multiplier is.
    """

    gradients: Float64
    residuals: Float64
    scale: float
    exponent: int
    unit: float
    axes: Float64 | None = None

    def solution(self, found: Answer, window: Window) -> Solution:
        """Return the answer in the units and the coordinates of the observations."""
        g = self.gradients
        theta = g.copy() if found.unchanged else g + self._move(found, window)
        return Solution(
            gradients=theta,
            weights=found.average,
            no_weights=_NO_WEIGHTS if found.average is None else None,
            multipliers=found.multipliers if self.unit == 1.0 else self.unit * found.multipliers,
            gap=found.gap,
            violation=found.violation,
            iterations=found.iterations,
            method=found.method,
            status=found.status,
        )

    def _move(self, found: Answer, window: Window) -> Float64:
        """Return theta - g, (K, d)."""
        reduced = window.residuals is not self.residuals
        phi = found.weights @ self.residuals if reduced else found.phi
        move = phi - self.residuals
        move *= self.scale
        if self.axes is not None:
            move = move @ self.axes.T
        return np.ldexp(move, self.exponent) if self.exponent else move


def reduce(
    points: Float64,
    gradients: Float64,
    *,
    L: float,
    mu: float,
    variances: Float64,
    covariance: Float64 | None = None,
    neighbors: int | None = None,
) -> tuple[Window, Frame]:
    """Return the window of a batch and the way back.

    Args:
        points: (K, d).
        gradients: (K, d).
        L: upper bound on the curvature.
        mu: lower bound on the curvature.
        variances: (K,), of the gradients' noise.
        covariance: (d,) if it is diagonal, or (d, d); what the variances are multiplied by.
        neighbors: how many nearest points of each are constrained with it; None for all.
    """
    axes, shares, x, g = None, None, points, gradients
    least: float = min(variances.tolist())
    if covariance is not None:
        spread = covariance
        if covariance.ndim == 2:
            spread, axes = np.linalg.eigh(covariance)
            x, g = points @ axes, gradients @ axes
        least *= float(spread.min())
        shares = spread.min() / spread if np.ptp(spread) > 0.0 else None
    window, h, scale, exponent = geometry.batch_window(x, g, L, mu, variances)
    if shares is not None:
        window = replace(window, residuals=h, shares=shares)
    frame = Frame(gradients, h, scale, exponent, 1.0 / least, axes)
    if neighbors is not None:
        window = geometry.nearest(window, neighbors)
    return window, frame
