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

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser.solution import Answer, Solution, Status
from coco_denoiser.typing import Float64, Int64

# What they are: `_core/constants.h`.
COINCIDENT: float = kernels.CONSTANTS["COINCIDENT"]
ROUNDING: float = kernels.CONSTANTS["ROUNDING"]
WITHIN: float = kernels.CONSTANTS["WITHIN"]
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
        isotropic: whether all of these are 1.
        start: (K, K), multipliers to start from, for methods that can; None for zero.
    """

    residuals: Float64
    bounds: Float64
    precisions: Float64
    coordinate_precisions: Float64
    isotropic: bool = True
    start: Float64 | None = None

    @property
    def table(self) -> Float64:
        """The precision of every coordinate of every residual, (K, q)."""
        return self.precisions[:, None] * self.coordinate_precisions

    def is_feasible(self, within: float = WITHIN) -> bool:
        """Return whether every pair obeys its bound, up to rounding and this share of it."""
        h = self.residuals
        return worst_ratio(h, h, self.bounds, 1.0) <= 1.0 + within


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
        """Return an answer in the units and the coordinates of the observations.

        Pairs that break their bounds there, by digits that the problem does not have, are drawn
        together; if that fails, the status says so.
        """
        status, h, phi, move = answer.status, self.residuals, answer.phi, None
        if status is not Status.UNCHANGED:
            if phi.shape != h.shape:  # solved in fewer coordinates
                phi = answer.weights @ h
            move = self.batch.scale * (phi - h)
            move = move if self.axes is None else move @ self.axes.T
        gradients = self.batch.gradients
        theta = gradients.copy() if move is None else gradients + move
        moved, worst = kernels.repair(self.batch, theta, tol)
        if worst > 0.0 and status.success:
            status = Status.STALLED
        elif moved and status is Status.UNCHANGED:
            status = Status.SOLVED
        answer = answer._replace(violation=max(answer.violation, worst), status=status)
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
    problem = Problem(h, bounds, n, shares, bool(shares.min() == 1.0))
    return problem, Units(batch, h, 1.0 / (batch.least * spread), axes)


def merge(problem: Problem, labels: Int64) -> Problem:
    """Join points with the same label into one, with their mean and their added precision."""
    count = int(labels.max()) + 1
    if count == labels.size:
        return problem
    n, sums = problem.precisions, np.zeros((count, problem.residuals.shape[1]))
    np.add.at(sums, labels, n[:, None] * problem.residuals)
    total = np.bincount(labels, n).astype(np.float64)
    bounds = np.full((count, count), np.inf)
    np.minimum.at(bounds, (labels[:, None], labels[None, :]), problem.bounds)
    np.fill_diagonal(bounds, 0.0)
    residuals = sums / total[:, None]
    return replace(problem, residuals=residuals, bounds=bounds, precisions=total, start=None)


def expand_multipliers(multipliers: Float64, problem: Problem, labels: Int64) -> Float64:
    """Return multipliers of all K points from those of the groups, none of them inside one.

    What pulls two groups together acts on the pair of members with the smallest bound.
    """
    full = np.zeros((labels.size, labels.size))
    members = [np.flatnonzero(labels == a) for a in range(len(multipliers))]
    for a, b in np.argwhere(np.tril(multipliers)):
        mine, theirs = members[a], members[b]
        block = problem.bounds[np.ix_(mine, theirs)]
        i, j = divmod(int(block.argmin()), theirs.size)
        full[mine[i], theirs[j]] = full[theirs[j], mine[i]] = multipliers[a, b]
    return full


def subproblem(problem: Problem, members: Int64, pull: Float64) -> Problem:
    """Return the problem of some points alone, on which the others pull with forces, (m, q).

    It has a scale of its own, in which bounds too small for the whole problem are not too small;
    its multipliers are relative to the largest precision of the members.
    """
    n = problem.precisions[members]
    residuals = problem.residuals[members] - problem.residuals[members[0]]
    residuals += pull / problem.table[members]
    scale = kernels.standardise(residuals)
    bounds = problem.bounds[np.ix_(members, members)] / scale
    n = n / n.max()
    return replace(problem, residuals=residuals, bounds=bounds, precisions=n, start=None)


def stationary(multipliers: Float64, problem: Problem) -> Float64:
    """Return phi (K, q), where these multipliers, all finite, balance the observations."""
    return response(multipliers, problem, problem.table * problem.residuals)


def response(multipliers: Float64, problem: Problem, forces: Float64) -> Float64:
    """Return (s_c N + Laplacian)^-1 forces, (K, q), coordinate by coordinate."""
    n, s, out = problem.precisions, problem.coordinate_precisions, np.empty_like(forces)
    for share in np.unique(s):
        part = np.ascontiguousarray(forces[:, s == share] / share)
        kernels.solve_laplacian(multipliers / share, n, part)
        out[:, s == share] = part
    return out


def average(
    multipliers: Float64, problem: Problem, within: float = WITHIN
) -> tuple[Float64, Float64]:
    """Return W (K, K), which is NaN with a covariance, and phi (K, q), which is feasible.

    For the best multipliers phi is optimal. If others break a bound by more than this share of it,
    the points that multipliers connect are drawn towards their centroid until every pair fits, and
    all points if that is not enough. Points that infinite multipliers hold together share one phi.
    """
    h, bounds, n = problem.residuals, problem.bounds, problem.precisions
    K = n.size
    if np.isinf(multipliers).any():
        labels = coincident(1.0 / np.maximum(multipliers, 1.0), 0.0)
        merged = merge(problem, labels)
        between = np.zeros_like(merged.bounds)
        apart = labels[:, None] != labels
        np.add.at(between, tuple(labels[np.argwhere(apart)].T), multipliers[apart])
        W, phi = average(between, merged, within)
        return W[np.ix_(labels, labels)] * (n / merged.precisions[labels]), phi[labels]
    if not multipliers.any():
        # Nothing to average: exactly, so that observations stay the same to the last bit.
        return np.eye(K), h
    if problem.isotropic:
        W, phi = np.empty((K, K)), n[:, None] * h
        kernels.solve_laplacian(np.ascontiguousarray(multipliers), n, phi, W)
        W *= n
    else:
        W, phi = np.full((K, K), np.nan), stationary(multipliers, problem)
    connected = coincident(np.where(multipliers > 0.0, 0.0, 1.0), 0.0)
    for labels in (connected, np.zeros_like(connected)):
        if worst_ratio(phi, h, bounds, 1.5) <= 1.0 + within:
            break
        for members in (np.flatnonzero(labels == a) for a in range(labels.max() + 1)):
            inside, share = np.ix_(members, members), n[members] / n[members].sum()
            # Half of a rounding is left for the last sum.
            worst = worst_ratio(phi[members], h[members], bounds[inside], 1.5)
            if worst > 1.0 + within:
                centroid = share @ phi[members]
                W[inside] = W[inside] / worst + (1.0 - 1.0 / worst) * share
                phi[members] = centroid + (phi[members] - centroid) / worst
    return W, phi


def worst_ratio(phi: Float64, h: Float64, bounds: Float64, roundings: float) -> float:
    """Return the largest ratio of distance to bound, some roundings of phi forgiven."""
    phi, h, bounds = map(np.ascontiguousarray, (phi, h, bounds))
    return kernels.worst_ratio(phi, h, bounds, roundings)


def roundings_of_pairs(phi: Float64, h: Float64) -> Float64:
    """Return how well the distance of each pair is known, (K, K).

    That is relative to the two residuals, and to how far they have moved. Not to the largest of
    all: next to one that is far away, the others still have all their digits.
    """
    size = np.sum(np.abs(phi) + np.abs(h - phi), axis=1)
    return np.asarray(ROUNDING * np.minimum(1.0, size[:, None] + size))


def coincident(bounds: Float64, limit: float = COINCIDENT) -> Int64:
    """Number the groups of points no further apart than this, in the order of first members."""
    labels = np.empty(len(bounds), np.intp)
    kernels.coincident(np.ascontiguousarray(bounds), limit, labels)
    return labels
