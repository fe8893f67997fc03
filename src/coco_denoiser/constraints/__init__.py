"""What is asked of a batch, reduced to a window; and the way back from an answer to gradients.

`geometry.py` has the bound on every pair, `curves.py` what ties all points together,
`averages.py` what multipliers make of residuals. Every combination is one `Window`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.geometry import Curve, Window
from coco_denoiser.solution import Answer, Solution
from coco_denoiser.typing import Float64

_NO_WEIGHTS = {
    "shares": "the covariance gives every direction of the noise weights of its own",
    "curve": "gradients of one function are not averages of those observed: the points matter too",
}


class Frame(NamedTuple):
    """The way from an answer back to gradients and values.

    Attributes:
        gradients: (K, d), as they were observed.
        residuals: (K, d), h in all coordinates, along `axes`.
        scale: the size of one unit of a residual, apart from `exponent`.
        exponent: of the power of two that brought the input into range.
        axes: (d, d), the directions of the residuals' coordinates, as columns; None for the usual.
        basis: (d, q) with orthonormal columns that span what the window sees, for one function.
        unit: what one unit of a multiplier is.
        offset: (K,), what to add to E value_unit to get a value; None without values.
        value_unit: scale^2 / (4 r).
    """

    gradients: Float64
    residuals: Float64
    scale: float
    exponent: int
    unit: float
    axes: Float64 | None = None
    basis: Float64 | None = None
    offset: Float64 | None = None
    value_unit: float = 0.0

    def solution(self, found: Answer, window: Window) -> Solution:
        """Return the answer in the units and the coordinates of the observations."""
        g = self.gradients
        theta = g.copy() if found.unchanged else g + self._move(found, window)
        values, why = None, None
        if window.curve is not None and found.values is not None and self.offset is not None:
            values = self.value_unit * found.values + self.offset
            # Without observed values only differences count.
            values = values if window.curve.observed else values - values.mean()
        if found.average is None:
            why = _NO_WEIGHTS["shares" if window.curve is None else "curve"]
        return Solution(
            gradients=theta,
            weights=found.average,
            no_weights=why,
            multipliers=found.multipliers if self.unit == 1.0 else self.unit * found.multipliers,
            gap=found.gap,
            violation=found.violation,
            iterations=found.iterations,
            method=found.method,
            status=found.status,
            values=values,
        )

    def _move(self, found: Answer, window: Window) -> Float64:
        """Return theta - g, (K, d)."""
        if window.residuals is self.residuals:
            phi = found.phi
        elif self.basis is not None:
            phi = found.phi @ self.basis.T
        else:
            phi = found.weights @ self.residuals
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
    one_function: bool = False,
    values: tuple[Float64, Float64] | None = None,
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
        one_function: whether all gradients must belong to one function.
        values: observed values and their noise variances, (K,) each, for one function.
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
    if one_function:
        window, frame = _with_curve(window, frame, x, g, L, mu, least, values)
    if neighbors is not None:
        window = geometry.nearest(window, neighbors)
    return window, frame


def _with_curve(
    window: Window,
    frame: Frame,
    x: Float64,
    g: Float64,
    L: float,
    mu: float,
    least: float,
    observed: tuple[Float64, Float64] | None,
) -> tuple[Window, Frame]:
    if frame.exponent:
        raise ValueError(
            "constraints='interpolation' needs points, gradients, L and mu between 1e-60 and "
            "1e60 in absolute value. Rescale them."
        )
    K, d = x.shape
    c, r = geometry.centre_and_radius(L, mu)
    mean = window.precisions / window.precisions.sum()
    centred = x - x[0]
    centred -= mean @ centred
    residuals = frame.residuals - mean @ frame.residuals
    h, X, basis = residuals, (r / frame.scale) * centred, None
    if d > 2 * K and window.shares is None:
        basis = np.linalg.qr(np.concatenate((h, X)).T)[0]
        h, X = h @ basis, X @ basis
    # The gradient at the middle is what h lost when its mean became 0.
    offset = centred @ (mean @ g) + 0.5 * c * np.einsum("ij,ij->i", centred, centred)
    unit = frame.scale * frame.scale / (4.0 * r)
    Y, m = np.zeros(K), np.zeros(K)
    if observed is not None:
        m = least * (unit / frame.scale) ** 2 / observed[1]
        Y = (observed[0] - offset) / unit
        shift = m @ Y / m.sum()
        Y -= shift
        offset = offset + unit * shift
    # Multipliers are those of the inequalities as they are printed, in f.
    multiplier = 4.0 * r * frame.unit
    return (
        replace(window, residuals=h, curve=Curve(X, Y, m)),
        frame._replace(
            residuals=residuals, basis=basis, offset=offset, value_unit=unit, unit=multiplier
        ),
    )
