"""From observations to what a solver needs: K residuals, and how far apart each two may be.

A function whose curvature lies between mu and L has, with the centre c = (L + mu) / 2 and the
radius r = (L - mu) / 2, gradients theta that obey, for every two points,

    ||(theta_m - c x_m) - (theta_l - c x_l)|| <= r ||x_m - x_l||.

This is the only place where that inequality is written. With residuals h = g - c x and
phi = theta - c x, denoising is

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml,

where rho_ml = r ||x_m - x_l|| and n_i is the inverse noise variance of observation i.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from coco_denoiser._jit import fragment, kernel, subroutine, sweep
from coco_denoiser._linalg import squared_distance
from coco_denoiser.typing import Array, Float64, Int64

# Both relative to the largest residual coordinate. Points whose bound is below the first count as
# one for the others, and are then told apart in a window of their own. A distance is known up to
# the second, which is a few roundings.
COINCIDENT = 1e-11
ROUNDING = 2e-15
# Larger input, or smaller than its inverse, is scaled first, so that squares stay in range.
_LARGEST = 1e60
FEW = 32  # with so few coordinates, rotating into fewer does not pay
# Stands for vectors that are not at hand, or for a table that is not needed.
NONE = np.empty((0, 0))


@dataclass(frozen=True, slots=True)
class Window:
    """K residuals and what is asked of them: all that a solver or the certificate sees.

    Attributes:
        residuals: (K, q), in any orthogonal coordinates, scaled so that the largest is 1, and
            shifted so that the most central one is zero.
        bounds: (K, K), symmetric, in the same scale; infinite for a pair that is not constrained.
        precisions: (K,), inverse noise variances, the largest being 1.
        shares: (q,), what the precisions of each coordinate are multiplied by, the largest
            being 1; None where all are alike.
    """

    residuals: Float64
    bounds: Float64
    precisions: Float64
    shares: Float64 | None = None

    @property
    def plain(self) -> bool:
        """Whether the noise is the same in all directions."""
        return self.shares is None

    def pairs(self) -> tuple[Int64, Int64]:
        """Return the pairs that are constrained, as two lists of points."""
        first, second = np.nonzero(np.triu(np.isfinite(self.bounds), 1))
        return first, second

    def table(self) -> Float64:
        """Return the precisions of all coordinates, (K, q)."""
        alike = np.ones(self.residuals.shape[1]) if self.shares is None else self.shares
        return self.precisions[:, None] * alike


def centre_and_radius(L: float, mu: float) -> tuple[float, float]:
    """Return c and r; halved first, so that neither overflows."""
    return 0.5 * L + 0.5 * mu, 0.5 * L - 0.5 * mu


def batch_window(
    points: Float64, gradients: Float64, L: float, mu: float, variances: Float64
) -> tuple[Window, Float64, float, int]:
    """Return the window and, in all coordinates, its residuals (K, d) with their scale.

    A residual is `residuals * scale * 2**exponent`, up to a shift that all have in common.
    """
    K, d = points.shape
    c, r = centre_and_radius(L, mu)
    exponent, scale = 0, 0.0
    if min(L, abs(mu) or L) > 1.0 / _LARGEST and max(L, abs(mu)) < _LARGEST:
        h, bounds, precisions, scale = _batch_window(points, gradients, c, r, variances, _LARGEST)
    if scale == 0.0:
        points, gradients, c, r, exponent = _into_range(points, gradients, c, r)
        h, bounds, precisions, scale = _batch_window(points, gradients, c, r, variances, np.inf)
    coordinates = h
    if d > max(2 * K, FEW):
        # Rotated into K coordinates. From the vectors, not from the table of distances: close
        # residuals would lose half of their digits there.
        coordinates = np.ascontiguousarray(np.asarray(np.linalg.qr(h.T, mode="r")).T)
    return Window(coordinates, bounds, precisions), h, scale, exponent


def _into_range(
    points: Float64, gradients: Float64, c: float, r: float
) -> tuple[Float64, Float64, float, float, int]:
    """Scale by powers of two, which is exact, so that no square overflows or underflows."""
    ex = int(np.frexp(np.abs(points).max())[1])
    eg = int(np.frexp(np.abs(gradients).max())[1])
    ec = int(np.frexp(max(abs(c), r))[1])
    exponent = max(eg, ec + ex) if points.any() and gradients.any() else eg + (ec + ex)
    return (
        np.ldexp(points, -ex),
        np.ldexp(gradients, -exponent),
        float(np.ldexp(c, ex - exponent)),
        float(np.ldexp(r, ex - exponent)),
        exponent,
    )


def nearest(window: Window, neighbors: int) -> Window:
    """Return the window with the bounds of near points only: O(K neighbors) pairs.

    A pair stays if one of its points is among the nearest of the other, ties included, or if
    the two coincide, which does not count.
    """
    bounds = window.bounds
    if neighbors >= len(bounds) - 1:
        return window
    apart = np.where(bounds > COINCIDENT, bounds, np.inf)
    reach = np.partition(apart, neighbors - 1, axis=1)[:, neighbors - 1]
    # Ties count as ties despite rounding.
    near = bounds <= (1.0 + 1e-12) * reach[:, None]
    return replace(window, bounds=np.where(near | near.T, bounds, np.inf))


def is_feasible(window: Window, within: float = 1e-12) -> bool:
    """Say whether every pair of residuals obeys its bound, up to rounding and this share of it."""
    return bool(worst_excess(window.residuals, window.bounds, within) <= 0.0)


@sweep
def _batch_window(
    points: Float64, gradients: Float64, c: float, r: float, variances: Float64, largest: float
) -> tuple[Float64, Float64, Float64, float]:
    """Return residuals, bounds, precisions and the scale, which is 0 for input out of range."""
    K, d = points.shape
    h, bounds, precisions = np.empty((K, d)), np.empty((K, K)), _precisions(variances)
    x, g = 0.0, 0.0
    for i in range(K):
        for j in range(d):
            x, g = max(x, abs(points[i, j])), max(g, abs(gradients[i, j]))
    for top in (x, g):
        if top != 0.0 and not 1.0 / largest < top < largest:
            return h, bounds, precisions, 0.0
    origin, central = 0, 0
    for attempt in range(2):
        # Differences first: a shift of all points or gradients leaves no rounding behind. From an
        # observation that is near the others, so that one far away leaves none either.
        for i in range(K):
            for j in range(d):
                dx, dg = points[i, j] - points[origin, j], gradients[i, j] - gradients[origin, j]
                h[i, j] = dg - c * dx
        central = most_central(h)
        if attempt == 1 or central == 0:
            break
        origin = central
    scale = standardise(h, central)
    for i in range(K):
        bounds[i, i] = 0.0
        for j in range(i):
            squared = squared_distance(points[i], points[j])
            bounds[i, j] = bounds[j, i] = r * _root(squared, points[i], points[j]) / scale
    return h, bounds, precisions, scale


@fragment
def _root(squared: float, x: Array, y: Array) -> float:
    """Return ||x - y|| from its square, or computed afresh with a scale if that is out of range."""
    if 1e-250 < squared < 1e250:
        return math.sqrt(squared)
    top = 0.0
    for j in range(x.size):
        top = max(top, abs(np.float64(x[j]) - np.float64(y[j])))
    if top == 0.0:
        return 0.0
    total = 0.0
    for j in range(x.size):
        total += ((np.float64(x[j]) - np.float64(y[j])) / top) ** 2
    return top * math.sqrt(total)


@fragment
def most_central(h: Float64) -> int:
    """Return the residual that is nearest to the others overall."""
    K, q = h.shape
    best, least = 0, np.inf
    for i in range(K):
        total = 0.0
        for j in range(K):
            for c in range(q):
                total += abs(h[i, c] - h[j, c])
        if total < least:
            best, least = i, total
    return best


@kernel
def reduced(
    points: Float64, distances: Float64, residuals: Float64, radius: float, variances: Float64
) -> tuple[Float64, Float64, Float64]:
    """Return residuals, bounds and precisions, as in `Window`.

    Args:
        points: (K, K), distances between points.
        distances: (K, K), those between residuals; not used if these are given.
        residuals: (K, q), more accurate than what can be recovered from distances; NONE if the
            distances must do.
        radius: how far apart residuals may be, relative to their points.
        variances: (K,), relative noise variances.
    """
    K, scale = variances.size, 1.0
    bounds = np.empty((K, K))
    if residuals.size > 0:
        h = residuals.copy()
    else:
        h, scale = _embed(distances)
    factor = radius / (scale * standardise(h, most_central(h)))
    for i in range(K):
        for j in range(K):
            bounds[i, j] = factor * points[i, j]
    return h, bounds, _precisions(variances)


@fragment
def _precisions(variances: Float64) -> Float64:
    # Loops, since array expressions take seconds to compile.
    least, precisions = np.inf, np.empty(variances.size)
    for i in range(variances.size):
        least = min(least, variances[i])
    for i in range(variances.size):
        precisions[i] = least / variances[i]
    return precisions


@subroutine
def _embed(distances: Float64) -> tuple[Float64, float]:
    """Return residuals (K, q) that have these distances up to a scale, and the scale."""
    K = distances.shape[0]
    scale = 0.0
    for i in range(K):
        for j in range(i):
            scale = max(scale, distances[i, j])
    if scale == 0.0:
        return np.zeros((K, 1)), 1.0
    gram, factor = np.empty((K, K)), np.empty((K, K))
    for i in range(K):
        for j in range(K):
            a, b, c = distances[i, 0] / scale, distances[j, 0] / scale, distances[i, j] / scale
            gram[i, j] = 0.5 * (a * a + b * b - c * c)
    rank = _pivoted_cholesky(gram, factor)
    coordinates = np.empty((K, rank))
    for i in range(K):
        for c in range(rank):
            coordinates[i, c] = factor[i, c]
    return coordinates, scale


@fragment
def standardise(h: Float64, central: int) -> float:
    """Shift the most central residual to zero, scale the largest entry to 1; return the scale.

    Not their mean: next to a residual that is far away, the others would lose their digits.
    """
    scale = 0.0
    for c in range(h.shape[1]):
        origin = h[central, c]
        for i in range(h.shape[0]):
            h[i, c] -= origin
            scale = max(scale, abs(h[i, c]))
    if scale == 0.0:
        return 1.0
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            h[i, c] /= scale
    return scale


@subroutine
def _pivoted_cholesky(gram: Float64, factor: Float64) -> int:
    """Fill the columns of factor so that factor factor' = gram, which is used up; return how many.

    Pivots below the rounding of the largest are noise, not a further dimension.
    """
    K = gram.shape[0]
    for rank in range(K):
        pivot = 0
        for i in range(K):
            if gram[i, i] > gram[pivot, pivot]:
                pivot = i
        if gram[pivot, pivot] <= 1e-15 * K:
            return int(rank)
        root = np.sqrt(gram[pivot, pivot])
        for i in range(K):
            factor[i, rank] = gram[i, pivot] / root
        for i in range(K):
            for j in range(K):
                gram[i, j] -= factor[i, rank] * factor[j, rank]
    return int(K)


@kernel
def worst_excess(h: Float64, bounds: Float64, within: float) -> float:
    """Return by how much the worst pair exceeds its bound, rounding forgiven."""
    worst = -1.0
    for i in range(h.shape[0]):
        for j in range(i):
            total = 0.0
            x, y = h[i], h[j]
            for c in range(x.size):
                total += (x[c] - y[c]) ** 2
            worst = max(worst, np.sqrt(total) - bounds[i, j] * (1.0 + within) - ROUNDING)
    return worst
