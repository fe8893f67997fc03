"""Denoising where the noise of a gradient has a covariance of its own, common to all of them.

    argmin over theta of  sum_i <theta_i - g_i, Sigma^-1 (theta_i - g_i)> / v_i

over the same pairs of `geometry.py`: the estimator of the paper's appendix. In the directions
of Sigma's eigenvectors the objective is a sum over coordinates again, with the precision
n_ic = 1 / (v_i Sigma_c), while the pairs' bounds, being Euclidean, stay what they are. So there is
a matrix of weights for each eigenvalue, (N_c + Laplacian)^-1 N_c, all with one Laplacian, and
the sum of theta_i / v_i is that of g_i / v_i for any Sigma.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coco_denoiser import geometry
from coco_denoiser._linalg import solve_laplacian
from coco_denoiser.certificate import relative
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.solution import Solution, Status
from coco_denoiser.solvers import conic, fdpg, split
from coco_denoiser.typing import Float64


def _fdpg(window: Window, n: Float64, *, tol: float, max_iter: int) -> tuple[Float64, Float64, int]:
    forces, iterations, _ = fdpg.iterate(window, tol=tol, max_iter=max_iter, precisions=n)
    return window.residuals - _sums(forces, len(n)) / n, forces, iterations


class Method(NamedTuple):
    """A solver and the number of iterations it is given unless the caller says otherwise.

    It returns phi (K, d), the forces on the pairs (pairs, d), and the number of iterations.
    """

    solve: Callable[..., tuple[Float64, Float64, int]]
    max_iter: int


METHODS = {"fdpg": Method(_fdpg, 100_000), "conic": Method(conic.vectors, 200)}


def solve(
    points: Float64,
    gradients: Float64,
    *,
    L: float,
    mu: float,
    variances: Float64,
    covariance: Float64,
    method: str,
    tol: float,
    max_iter: int | None,
) -> Solution:
    """Return the most likely gradients under this covariance, with a certificate.

    Args:
        points: (K, d).
        gradients: (K, d).
        L: upper bound on the curvature.
        mu: lower bound on the curvature.
        variances: (K,), what the covariance of each observation is multiplied by.
        covariance: (d,), if it is diagonal, or (d, d).
        method: a name in METHODS, or "auto": the first, and where it falls short the second.
        tol: relative duality gap and relative violation to reach.
        max_iter: limit on the iterations; None leaves it to the method.
    """
    spread, axes, x, g = covariance, None, points, gradients
    if covariance.ndim == 2:
        spread, axes = np.linalg.eigh(covariance)
        x, g = points @ axes, gradients @ axes
    reduced, h, scale, exponent = geometry.observe(x, g, L, mu, variances)
    window = Window(h, reduced.bounds, reduced.precisions)
    labels = geometry.coincident(window.bounds)
    distinct = geometry.merge(window, labels)
    K, count = labels.size, distinct.precisions.size
    share = spread.min() / spread
    n = distinct.precisions[:, None] * share
    first, second = np.triu_indices(count, 1)

    def certified(
        phi: Float64, forces: Float64, iterations: int, limit: int, name: str
    ) -> Solution:
        phi = _drawn_in(distinct, phi)
        gap, violation = certify(distinct, n, phi, forces)
        unchanged, exhausted = count == K and not forces.any(), 0 < limit <= iterations
        status = Status.of(gap, violation, tol, unchanged=unchanged, exhausted=exhausted)
        lam = np.zeros((count, count))
        if forces.any():
            lam[first, second] = np.linalg.norm(forces, axis=1) / distinct.bounds[first, second]
            lam += lam.T
        kinds, which = np.unique(share, return_inverse=True)
        found = [_weights(lam, distinct.precisions * kind) for kind in kinds]
        if count < K:
            shares = window.precisions / distinct.precisions[labels]
            found = [W[np.ix_(labels, labels)] * shares for W in found]
            lam = split(lam, window, labels)
            lam[(labels[:, None] == labels) & ~np.eye(K, dtype=bool)] = np.inf
        move = scale * (phi[labels] - h)
        if axes is not None:
            move = move @ axes.T
        theta = gradients + np.ldexp(move, exponent)
        # The multipliers refer to the variances and the covariance as they were given.
        lam = lam / (variances.min() * spread.min())
        weights = np.stack(found)[which][np.argsort(spread, kind="stable")]
        return Solution(weights, lam, gap, violation, iterations, name, status, theta)

    names = list(METHODS) if method == "auto" else [method]
    if geometry.is_feasible(distinct):
        nothing = np.zeros((first.size, h.shape[1]))
        return certified(distinct.residuals, nothing, 0, 0, names[0])
    answers = []
    for name in names:
        limit = METHODS[name].max_iter if max_iter is None else max_iter
        phi, forces, iterations = METHODS[name].solve(distinct, n, tol=tol, max_iter=limit)
        answers.append(certified(phi, forces, iterations, limit, name))
        if answers[-1].status.success:
            break
    return min(answers, key=lambda answer: (not answer.status.success, answer.gap))


def certify(window: Window, n: Float64, phi: Float64, forces: Float64) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of phi.

    As in `certificate.py`, of which this is the case of a precision for each coordinate: any
    forces y on the pairs give a bound, 1/2 sum f^2 / n + sum_e (rho_e ||y_e|| - <y_e, v_e>), where
    f = n (h - phi) - sum of the forces.
    """
    first, second = np.triu_indices(len(n), 1)
    rho = window.bounds[first, second]
    v = phi[first] - phi[second]
    away = window.residuals - phi
    f = n * away - _sums(forces, len(n))
    strength, work = np.linalg.norm(forces, axis=1), np.einsum("ec,ec->e", forces, v)
    unbalanced = np.maximum(np.abs(rho * strength - work) - ROUNDING * strength, 0.0)
    f = np.where(np.abs(f) > ROUNDING * n, f, 0.0)
    gap = 0.5 * float(np.sum(f * f / n)) + float(unbalanced[strength > 0.0].sum())
    value = 0.5 * float(np.sum(n * away**2))
    excess = np.linalg.norm(v, axis=1) - rho
    over = np.where(excess > 2.0 * ROUNDING, excess / (rho + ROUNDING), 0.0)
    violation = float(over.max(initial=0.0))
    return relative(gap, value), violation


def _sums(forces: Float64, K: int) -> Float64:
    """Return the sum of the forces on every point: with its pairs' first, against the second."""
    first, second = np.triu_indices(K, 1)
    total = np.zeros((K, forces.shape[1]))
    np.add.at(total, first, forces)
    np.subtract.at(total, second, forces)
    return total


def _drawn_in(window: Window, phi: Float64) -> Float64:
    """Draw residuals towards their centroid, which is 0, until every pair fits."""
    first, second = np.triu_indices(len(phi), 1)
    apart = np.linalg.norm(phi[first] - phi[second], axis=1) - ROUNDING
    rho = window.bounds[first, second]
    over = apart > rho
    return phi * float((rho[over] / apart[over]).min(initial=1.0))


def _weights(multipliers: Float64, n: Float64) -> Float64:
    """Return W (K, K) of the coordinates with these precisions."""
    W = np.eye(len(n))
    if multipliers.any():
        solve_laplacian(multipliers.copy(), n.copy(), W, 0)
        W *= n
    return W
