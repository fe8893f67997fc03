"""The reduced problem: K residuals, and how far apart each two of them may be.

A function whose curvature lies between mu and L has, with the centre c = (L + mu) / 2 and the
radius r = (L - mu) / 2, gradients theta that obey, for every two points,

    ||(theta_m - c x_m) - (theta_l - c x_l)|| <= r ||x_m - x_l||.

This is the only place where that inequality is written. With residuals h = g - c x and
phi = theta - c x, denoising is

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml,

where rho_ml = r ||x_m - x_l|| and n_i is the inverse noise variance of observation i. If the
noise has a covariance, the norm is weighted: coordinate c of the eigenvectors has the precisions
n_i s_c. For multipliers lam of the pairs the answer solves, coordinate by coordinate,

    (s_c N + Laplacian(lam)) phi = s_c N h,

so that phi = W h with W = (N + Laplacian)^-1 N if all s_c are 1.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser.solution import Answer, Solution, Status
from coco_denoiser.typing import Float64

ones = cache(np.ones)  # of a few sizes; nobody writes to them


@dataclass(frozen=True, slots=True)
class Problem:
    """K residuals and what is asked of them: all that a solver or the certificate sees.

    Attributes:
        residuals: (K, q), in any orthogonal coordinates, scaled so that the largest is about 1,
            and shifted so that the most central one is zero.
        bounds: (K, K), symmetric, in the same scale.
        precisions: (K,), inverse noise variances, the largest being 1.
        coordinate_precisions: (q,), what these are multiplied by in each coordinate, the largest
            being 1; all are 1 unless the noise has a covariance.
        start: (K, K), multipliers to start from, for methods that can; None for zero.
    """

    residuals: Float64
    bounds: Float64
    precisions: Float64
    coordinate_precisions: Float64
    start: Float64 | None = None


class Units(NamedTuple):
    """The way from a reduced answer back to the observations.

    Attributes:
        batch: the observations.
        residuals: (K, d), h in all coordinates, along `axes`.
        multiplier: what one unit of a multiplier is.
        axes: (d, d), the directions of the residuals' coordinates, as columns; None for the usual.
    """

    batch: kernels.Batch
    residuals: Float64
    multiplier: float
    axes: Float64 | None

    def restore(self, answer: Answer, tol: float) -> Solution:
        """Return an answer in the units and the coordinates of the observations."""
        h, phi, gradients = self.residuals, answer.phi, self.batch.gradients
        if answer.status is Status.UNCHANGED:
            return self.finish(answer, gradients.copy(), tol)
        if phi.shape != h.shape:  # solved in fewer coordinates
            phi = answer.weights @ h
        move = self.batch.scale * (phi - h)
        move = move if self.axes is None else move @ self.axes.T
        return self.finish(answer, gradients + move, tol)

    def finish(self, answer: Answer, theta: Float64, tol: float) -> Solution:
        """Return the solution with these gradients, of an answer.

        Pairs that break their bounds there, by digits that the problem does not have, are drawn
        together; if that fails, the status says so.
        """
        moved, worst = kernels.repair(self.batch, theta, tol)
        if worst > 0.0:
            status = Status.STALLED if answer.status.success else answer.status
            answer = answer._replace(violation=max(answer.violation, worst), status=status)
        elif moved and answer.status is Status.UNCHANGED:
            answer = answer._replace(status=Status.SOLVED)
        return answer.solution(theta, self.multiplier * answer.multipliers)


def centre_and_radius(L: float, mu: float) -> tuple[float, float]:
    """Return c and r; halved first, so that neither overflows."""
    return 0.5 * L + 0.5 * mu, 0.5 * L - 0.5 * mu


def from_observations(
    points: Float64,
    gradients: Float64,
    *,
    L: float,
    mu: float,
    variances: Float64,
    covariance: Float64 | None = None,
) -> tuple[Problem, Units]:
    """Reduce a batch, and return the way back.

    Args:
        points: (K, d).
        gradients: (K, d).
        L: upper bound on the curvature.
        mu: lower bound on the curvature.
        variances: (K,), of the gradients' noise.
        covariance: (d,) if it is diagonal, or (d, d); what the variances are multiplied by.
    """
    c, r = centre_and_radius(L, mu)
    check.in_range(points, gradients, c)
    batch = kernels.Batch(points, gradients, variances, c, r)
    h, bounds, n = batch.residuals, batch.bounds, batch.precisions
    if covariance is None:
        problem = Problem(batch.coordinates, bounds, n, ones(batch.coordinates.shape[1]))
        return problem, Units(batch, h, 1.0 / batch.least, None)
    eigenvalues, axes = covariance, None
    if covariance.ndim == 2:
        eigenvalues, axes = np.linalg.eigh(covariance)
        # Differences first: rotated points would lose the digits that a common shift takes.
        h = np.ascontiguousarray(h @ axes)
    spread = float(eigenvalues.min())
    shares = spread / eigenvalues
    return Problem(h, bounds, n, shares), Units(batch, h, 1.0 / (batch.least * spread), axes)
