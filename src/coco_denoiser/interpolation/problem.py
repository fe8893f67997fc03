"""The set of gradients that a function with curvature between mu and L can have, all at once.

Such a function exists if and only if there are values f with, for every ordered pair and for
mu = 0 (Taylor, Hendrickx and Glineur, 2017),

    f_i >= f_j + <theta_j, x_i - x_j> + ||theta_i - theta_j||^2 / (2 L).

With the centre c and the radius r of the curvature, phi = theta - c x, X = r x and
E = 4 r (f - c ||x||^2 / 2), the two inequalities of a pair are one, for any mu < L:

    ||phi_i - phi_j||^2 + |s_ij| <= ||X_i - X_j||^2,
    s_ij = 2 <phi_i + phi_j, X_i - X_j> - (E_i - E_j).

Without s_ij it is the bound on every pair of `geometry.py`; s_ij is the error that the
trapezoidal rule makes in the value. Two points can always choose values that make it 0; three
can not, as the rule need not add up to 0 around a triangle. The problem is

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2 + 1/2 sum_i m_i (E_i - Y_i)^2,

where Y are the observed values, if any, and m_i = 0 otherwise.
"""

from dataclasses import dataclass

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.geometry import Window
from coco_denoiser.typing import Float64, Int64

_ROUNDING = 4e-15  # of a sum of products, relative to the largest of them


@dataclass(frozen=True, slots=True)
class Problem:
    """K residuals, where they were seen and, perhaps, values: all that a method sees.

    Attributes:
        residuals: (K, q), h, scaled so that the largest entry is 1, with a weighted mean of 0.
        points: (K, q), X, in the same coordinates and scale.
        precisions: (K,), n, the largest being 1.
        values: (K,), Y; zeros if none were observed.
        value_precisions: (K,), m; zeros if none were observed.
    """

    residuals: Float64
    points: Float64
    precisions: Float64
    values: Float64
    value_precisions: Float64

    @property
    def observed(self) -> bool:
        """Whether values were observed."""
        return bool(self.value_precisions.any())


@dataclass(frozen=True, slots=True)
class Frame:
    """The way from a problem's unknowns back to gradients and values.

    Attributes:
        residuals: (K, d), h in all coordinates.
        scale: what one unit of a residual is.
        basis: (d, q) with orthonormal columns, or None where q = d.
        offset: (K,), what to add to E scale^2 / (4 r) to get a value.
        unit: scale^2 / (4 r).
    """

    residuals: Float64
    scale: float
    basis: Float64 | None
    offset: Float64
    unit: float

    def move(self, phi: Float64) -> Float64:
        """Return theta - g, (K, d)."""
        wide = phi if self.basis is None else phi @ self.basis.T
        return self.scale * (wide - self.residuals)

    def value(self, E: Float64, *, observed: bool) -> Float64:
        """Return the values; without observed ones only differences count, and the mean is 0."""
        f = self.unit * E + self.offset
        return f if observed else f - f.mean()


def observe(
    points: Float64,
    gradients: Float64,
    L: float,
    mu: float,
    variances: Float64,
    values: tuple[Float64, Float64] | None,
) -> tuple[Problem, Frame, Window]:
    """Return the problem, the way back, and the window of the same observations.

    `values` are the observed ones and their variances.
    """
    window, h, scale, exponent = geometry.observe(points, gradients, L, mu, variances)
    if exponent:
        raise ValueError(
            "constraints='interpolation' needs points, gradients, L and mu between 1e-60 and "
            "1e60 in absolute value. Rescale them."
        )
    K, d = points.shape
    c, r = geometry.centre_and_radius(L, mu)
    n = window.precisions
    centred = points - points[0]
    centred -= (n / n.sum()) @ centred
    X = (r / scale) * centred
    basis = None
    if d > 2 * K:
        basis = np.linalg.qr(np.concatenate((h, X)).T)[0]
    # The gradient at the middle: what h lost when its mean became 0.
    middle = (n / n.sum()) @ gradients
    offset = centred @ middle + 0.5 * c * np.einsum("ij,ij->i", centred, centred)
    unit = scale * scale / (4.0 * r)
    Y, m = np.zeros(K), np.zeros(K)
    if values is not None:
        m = variances.min() * (unit / scale) ** 2 / values[1]
        Y = (values[0] - offset) / unit
        shift = m @ Y / m.sum()
        Y -= shift
        offset = offset + unit * shift
    problem = Problem(h if basis is None else h @ basis, X if basis is None else X @ basis, n, Y, m)
    return problem, Frame(h, scale, basis, offset, unit), window


def merge(problem: Problem, labels: Int64) -> Problem:
    """Join points that coincide into one, with their means and their added precision."""
    count = int(labels.max()) + 1

    def mean(table: Float64, weight: Float64) -> Float64:
        sums = np.zeros((count, table.shape[1]))
        np.add.at(sums, labels, weight[:, None] * table)
        total = np.bincount(labels, weight)
        return sums / np.where(total > 0.0, total, 1.0)[:, None]

    n, m = problem.precisions, problem.value_precisions
    return Problem(
        mean(problem.residuals, n),
        mean(problem.points, n),
        np.bincount(labels, n).astype(np.float64),
        mean(problem.values[:, None], m)[:, 0],
        np.bincount(labels, m).astype(np.float64),
    )


def excess(problem: Problem, phi: Float64, E: Float64) -> tuple[Float64, Float64, Float64]:
    """Return ||phi_i - phi_j||^2, s_ij and ||X_i - X_j||^2, (K, K) each; s is antisymmetric."""
    X = problem.points
    apart, D = phi[:, None] - phi[None], X[:, None] - X[None]
    s = 2.0 * np.einsum("ijc,ijc->ij", phi[:, None] + phi[None], D) - (E[:, None] - E[None])
    return (
        np.einsum("ijc,ijc->ij", apart, apart),
        s,
        np.einsum("ijc,ijc->ij", D, D),
    )


def rounding(problem: Problem, phi: Float64, E: Float64) -> Float64:
    """Return what of an excess, (K, K), may be rounding."""
    X = problem.points
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    size = np.linalg.norm(phi, axis=1)
    size = size[:, None] + size[None]
    return np.asarray(_ROUNDING * ((size + D) ** 2 + np.abs(E)[:, None] + np.abs(E)[None]))


def consistent_values(problem: Problem, phi: Float64) -> Float64 | None:
    """Return values E that go with the residuals phi, or None if there are none.

    The inequalities E_i - E_j >= C_ij have a solution if and only if no cycle has a positive
    sum; then the longest paths to and from a point bound E, and their mean is a solution.
    Observed values are not changed: they go with phi or they do not.
    """
    Y = problem.values
    squared, s, bound = excess(problem, phi, Y)
    C = squared + s - bound - 0.5 * rounding(problem, phi, Y)
    if problem.observed:
        return Y if bool((C <= 0.0).all()) else None
    for k in range(len(C)):
        C = np.maximum(C, C[:, k, None] + C[None, k])
    if bool((np.diag(C) > 0.0).any()):
        return None
    return np.asarray(0.5 * (C[:, 0] - C[0]))


def drawn_in(problem: Problem, phi: Float64, E: Float64) -> tuple[Float64, Float64]:
    """Draw gradients and values towards the mean residual and 0 until every pair fits."""
    squared, s, bound = excess(problem, phi, E)
    off = squared + np.abs(s) > bound + 0.5 * rounding(problem, phi, E)
    if not off.any():
        return phi, E
    a, b, rho2 = squared[off], np.abs(s[off]), bound[off]
    # The root of a t^2 + b t = rho^2, written without a subtraction.
    t = float((2.0 * rho2 / (b + np.sqrt(b * b + 4.0 * a * rho2))).min())
    return t * phi, t * E
