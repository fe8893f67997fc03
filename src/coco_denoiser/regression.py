"""A linear field of gradients, g = slope + H (x - centre) + noise, fitted to noisy ones.

H >= 0 comes from a symmetric ridge regression with the most likely ridge. It is repeated
in coordinates in which the residuals are white, each stretch of the path weighted by their size.
Wherever the points lie, a Newton step from their mean is then as near to the minimum as their
noise allows, if the field is linear; `answer` tests whether it is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coco_denoiser.typing import Float64

# Chosen on the problems of `python -m benchmarks minimize` that are named so there.
_STRETCHES = 24  # of the path, at most, each with a noise of its own
_QUIETEST = 0.2  # least noise of a stretch over the median: zeros are not precise
_LEAST_SHRUNK = 0.02  # of a covariance, towards a multiple of the identity
_SURE = 4.0  # standard errors by which a curvature counts; twice as many where late calls count
_LATE = 2.0  # exponent of the weights of the second fit
_FEWEST, _FEWEST_EACH = 30, 2  # calls, and calls for each coordinate
_STEADY = 7.0  # standard deviations of chi^2, up to which a field counts as constant in time
_AGREE = 3.0  # the same for the two fits
_UPHILL = 1.5  # standard errors by which the way to the answer may ascend
_GRID = np.linspace(-1.0, 1.0, 25)


@dataclass(frozen=True)
class Field:
    """A fitted field, in the coordinates x `unwhite` / `units[0]` and g `white` / `units[1]`."""

    centre: Float64
    slope: Float64  # at the centre
    h: Float64  # the curvatures,
    axes: Float64  # their directions, in columns,
    error: Float64  # and their standard errors
    spread: Float64  # sum of squares of the points along each axis
    noise: Float64  # covariance of a gradient of average weight
    count: float  # of calls, at equal weights
    weights: Float64  # their sum is `count`
    points: Float64  # from the centre, times the root of the weights
    left: Float64  # residuals, times the same
    white: Float64
    unwhite: Float64
    units: tuple[float, float]

    def _stiffened(self, sure: float, most: float) -> Float64:
        # Unknown curvatures become large: the answer stays near the centre in their directions.
        stiff = self.h**2 + (sure * self.error) ** 2
        return np.minimum(stiff / np.maximum(self.h, 1e-150), most)

    def newton(self, sure: float, x: Float64 | None = None) -> Float64:
        """Return x, or the centre, after a Newton step: shrunk where curvature is not known."""
        z = self.centre if x is None else self.unwhite @ (x / self.units[0])
        slope = self.axes.T @ self.slope + self.h * (self.axes.T @ (z - self.centre))
        step = slope / np.maximum(self._stiffened(sure, np.inf), 1e-300)
        return self.units[0] * (self.white @ (z - self.axes @ step))

    def quadratic(self, sure: float, x: Float64) -> tuple[Float64, Float64]:
        """Return H, where unknown curvatures are large, and the gradient at 0, from that at x."""
        stiff = self._stiffened(sure, 100.0 * float(self.h.max()))
        H = self.unwhite @ (self.axes * stiff) @ self.axes.T @ self.unwhite
        H *= self.units[1] / self.units[0]
        return H, self.gradient(x)[0] - H @ x

    def gradient(self, x: Float64) -> tuple[Float64, Float64]:
        """Return the gradient at x, and the standard error of each coordinate."""
        away = self.axes.T @ (self.unwhite @ (x / self.units[0]) - self.centre)
        g = self.unwhite @ (self.slope + self.axes @ (self.h * away))
        variance = np.diag(self.unwhite @ self.noise @ self.unwhite)
        lever = 1.0 / self.count + float((away**2 / self.spread).sum())
        return self.units[1] * g, self.units[1] * np.sqrt(variance * lever)

    def is_constant(self) -> bool:
        """Return whether time explains nothing of the residuals: neither a trend nor one step."""
        time = np.arange(len(self.left)) / len(self.left)
        shapes = np.column_stack([time, *(time >= k / 8 for k in range(1, 8))]).astype(np.float64)
        shapes -= self.weights @ shapes / self.count
        shapes *= np.sqrt(self.weights)[:, None]
        shapes -= self.points @ np.linalg.lstsq(self.points, shapes, rcond=1e-6)[0]
        white = _roots(_covariance(self.left, self.count))[0]
        freedom = max(1.0 - len(self.h) / self.count, 0.2)  # of the residuals
        scores = shapes.T @ self.left @ white
        sizes = (scores**2).sum(axis=1) / (shapes**2).sum(axis=0).clip(1e-300) * freedom
        return bool(_beyond(sizes.max(), len(self.h)) <= _STEADY)

    def explains(self, way: Float64, whole: "Field") -> bool:
        """Return whether noise explains the way to the answer of a fit with equal weights."""
        forces = self.h * (self.axes.T @ (self.unwhite @ (way / self.units[0])))
        variances = np.einsum("ij,ik,kj->j", self.axes, self.noise, self.axes)
        share = max(1.0 / self.count - 1.0 / whole.count, 0.4 / self.count)
        size = float((forces**2 / np.maximum(variances, 1e-300)).sum()) / share
        return _beyond(size, len(self.h)) <= _AGREE


def _beyond(size: float, degrees: int) -> float:
    """Return by how many standard deviations a value of chi^2 is above its mean."""
    return (size - degrees) / math.sqrt(2.0 * degrees)


def answer(
    X: Float64,
    G: Float64,
    counts: Float64,
    average: tuple[Float64, Float64, Float64],
    prox: Callable[[Float64, float], Float64] | None,
) -> tuple[Float64, Field] | None:
    """Return the minimum of the field, and the field, or None if it is not to be trusted.

    X, G and counts are the means of consecutive calls. `average` is the answer that is known to be
    sane, with the mean gradient there and the last gradients from which it came.
    """
    safe, ascent, last = average
    if counts.sum() < max(_FEWEST, _FEWEST_EACH * X.shape[1]):
        return None
    whole, late = fit(X, G, counts), fit(X, G, counts, _LATE)
    if whole is None or late is None or not whole.is_constant():
        return None
    if prox is None:
        ends = whole.newton(_SURE), late.newton(2.0 * _SURE)
        # No start and no weights are better everywhere, and f is convex: the mean of all four.
        x = np.mean((*ends, whole.newton(_SURE, safe), late.newton(2.0 * _SURE, safe)), axis=0)
    else:
        one, other = whole.quadratic(_SURE, safe), late.quadratic(2.0 * _SURE, safe)
        ends = _minimum(*one, safe, prox), _minimum(*other, safe, prox)
        x = _minimum((one[0] + other[0]) / 2.0, (one[1] + other[1]) / 2.0, safe, prox)
    tail = slice(-len(last), None)  # what was before a move does not count there
    newest = fit(X[tail], G[tail], counts[tail])
    if newest is None or not late.explains(ends[0] - ends[1], whole):
        return None
    if prox is None:
        end = newest.newton(_SURE)
    else:
        end = _minimum(*newest.quadratic(_SURE, safe), safe, prox)
    if not newest.explains(ends[0] - end, newest):
        return None
    way, unit = (x - safe) / late.units[0], late.units[1]
    # f(x) >= f(safe) + ascent @ way: the answer would be worse for every convex f.
    error = float((last / unit @ way).std()) / math.sqrt(len(last))
    return None if float(ascent / unit @ way) > _UPHILL * error else (x, late)


def _minimum(
    H: Float64, g: Float64, x: Float64, prox: Callable[[Float64, float], Float64]
) -> Float64:
    """Minimise x @ H @ x / 2 + g @ x plus the penalty by FISTA with restarts."""
    step = 1.0 / max(float(np.linalg.eigvalsh(H)[-1]), 1e-300)
    y, t = x, 1.0
    for _ in range(1000):
        new = prox(y - step * (H @ y + g), step)
        back = float((y - new) @ (new - x)) > 0.0
        further = 1.0 if back else (1.0 + math.sqrt(1.0 + 4.0 * t * t)) / 2.0
        y_new = new if back else new + (t - 1.0) / further * (new - x)
        done = float(np.abs(new - y).max()) <= 1e-10 * float(np.abs(new).max())
        x, y, t = new, y_new, further
        if done:
            break
    return x


def fit(X: Float64, G: Float64, counts: Float64, exponent: float = 0.0) -> Field | None:
    """Fit a field; call i of n is weighted by (i / n)^exponent. None if all points are the same."""
    units = float(np.abs(X - X[0]).max()), float(np.abs(G).max())
    if not min(units) > 0.0:
        return None
    X, G, n = X / units[0], G / units[1], len(X)
    base = counts * (np.cumsum(counts) / counts.sum()) ** exponent
    stretches = min(_STRETCHES, max(2, n // 8))
    where = np.arange(n) * stretches // n
    weights, white, unwhite = base, np.eye(X.shape[1]), np.eye(X.shape[1])
    for last in (False, False, True):
        found = _regress(X @ unwhite, G @ white, weights, (white, unwhite), units)
        if last or found is None:
            return found
        left = found.left @ unwhite
        white, unwhite = _roots(_covariance(left, found.count))
        squares = ((left @ white) ** 2).sum(axis=1) * (counts / found.weights)
        noise = np.bincount(where, squares) / np.bincount(where)
        noise = np.maximum(noise, _QUIETEST * np.median(noise) + 1e-300)
        weights = base * (noise.min() / noise)[where]
    return None


def _regress(
    X: Float64,
    G: Float64,
    weights: Float64,
    metric: tuple[Float64, Float64],
    units: tuple[float, float],
) -> Field | None:
    """Regress gradients on points, by weighted symmetric ridge regression."""
    p, d = weights / weights.sum(), X.shape[1]
    n = 1.0 / float(p @ p)
    x, g, root = p @ X, p @ G, np.sqrt(n * p)[:, None]
    X, G = root * (X - x), root * (G - g)
    k, V = np.linalg.eigh(X.T @ X)
    k = np.maximum(k, 0.0)
    if not k[-1] > 0.0:
        return None
    B = (G.T @ X) @ V
    ridge = _ridge(k, (B**2).sum(axis=0), float((G**2).sum()), n)
    C = V.T @ B
    h, U = np.linalg.eigh((C + C.T) / (k[:, None] + k + ridge))
    h, U = np.maximum(h, 0.0), V @ U
    left = G - (X @ U * h) @ U.T
    noise = left.T @ left / max(n - 1.0 - float((k / (k + ridge)).sum()), 1.0)
    spread = ((X @ U) ** 2).sum(axis=0) + ridge
    along = 0.9 * (U * (noise @ U)).sum(axis=0) + 0.1 * np.trace(noise) / d
    error = np.sqrt(along / spread)
    return Field(x, g, h, U, error, spread, noise, n, n * p, X, left, *metric, units)


def _ridge(k: Float64, explained: Float64, total: float, n: float) -> float:
    """Return the most likely ridge, for points with squared spreads k along their axes."""
    d, ok = len(k), k > 1e-10 * k[-1]
    rank = int(ok.sum())
    free = max(n - 1.0 - rank, 0.0)
    y = np.where(ok, explained / np.where(ok, k, 1.0), 0.0)
    rest = max(total - float(y.sum()), 0.0) if free > 0.0 else 0.0
    low, high = math.log(1e-4 / k[-1]), math.log(1e8 / k[ok].min())
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    for _ in range(3):
        t = middle + half * _GRID  # log of the variance of an entry of H over that of noise
        a = 1.0 + np.exp(t)[:, None] * k
        f = 1.0 - 1.0 / a
        prior = (f**2).sum(axis=1) - f.sum(axis=1) ** 2 / (rank + free)  # the reference prior
        likely = np.log(np.maximum(prior, 1e-12)) - d * np.log(a).sum(axis=1)
        misfit = np.maximum((y / a).sum(axis=1) + rest, 1e-300)
        likely -= d * (rank + free) * np.log(misfit)
        middle, half = float(t[likely.argmax()]), half / 8.0
    return math.exp(-middle)


def _covariance(left: Float64, n: float) -> Float64:
    """Return the covariance of weighted residuals, shrunk as Ledoit and Wolf do (2004)."""
    d = left.shape[1]
    S = left.T @ left / n
    mean = float(np.trace(S)) / d
    away = float(((S - mean * np.eye(d)) ** 2).sum())
    scatter = float(((left**2).sum(axis=1) ** 2).sum()) / n**2 - float((S**2).sum()) / n
    a = min(1.0, max(scatter / max(away, 1e-300), _LEAST_SHRUNK))
    return np.asarray((1.0 - a) * S + a * mean * np.eye(d))


def _roots(S: Float64) -> tuple[Float64, Float64]:
    """Return S^-1/2 and S^1/2."""
    e, V = np.linalg.eigh(S)
    e = np.sqrt(np.maximum(e, 1e-12 * max(float(e[-1]), 1e-280)))
    return (V / e) @ V.T, (V * e) @ V.T
