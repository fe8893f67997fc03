"""A linear field of gradients, g = slope + H (x - centre) + noise, fitted to noisy ones.

H >= 0 comes from a symmetric ridge regression with the most likely ridge. Wherever the points
lie, a Newton step from their mean is then as near to the minimum as their noise allows, if the
field is linear; `answer` tests whether it is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from coco_denoiser.typing import Float64

Map: TypeAlias = Callable[[Float64, float], Float64]
Minimum: TypeAlias = tuple[Float64, Float64, Float64]  # a point, the gradient there and its error

# Chosen on the problems of `python -m benchmarks minimize` that are named so there.
_SURE = 2.0  # standard errors by which a curvature counts; twice as many where late calls count
_LATE = 2.0  # exponent of the weights of the second fit
_FEWEST, _FEWEST_EACH = 30, 2  # calls, and calls for each coordinate
_AGREE = 2.5  # standard deviations, up to which a part of the path agrees with the answer
_FARTHEST = 1e100  # lengths of x0, and steps, beyond which no answer is looked for
_LESS = 8.0  # squared errors of the average's gradient, up to which the fit may be the better
_RIDGES = 200  # that are compared


@dataclass(frozen=True)
class Field:
    """A fitted field."""

    centre: Float64
    slope: Float64  # at the centre
    h: Float64  # the curvatures,
    axes: Float64  # their directions, in columns,
    error: Float64  # and their standard errors
    spread: Float64  # sum of squares of the points along each axis
    noise: Float64  # variances of a gradient, along the axes
    variances: Float64  # and of its coordinates
    count: float  # of calls, at equal weights

    def stiffened(self) -> Float64:
        """Return the curvatures; unknown ones are large, to stay near a start of Newton's step."""
        return np.asarray((self.h**2 + self.error**2) / np.maximum(self.h, 1e-150))

    def newton(self, x: Float64) -> Float64:
        """Return x after a Newton step that is shrunk where curvature is not known."""
        step = (self.axes.T @ self.gradient(x)) / np.maximum(self.stiffened(), 1e-300)
        return np.asarray(x - self.axes @ step)

    def gradient(self, x: Float64) -> Float64:
        """Return the gradient at x."""
        return self.slope + self.axes @ (self.h * (self.axes.T @ (x - self.centre)))

    def lever(self, x: Float64) -> float:
        """Return the variance of the gradient at x, over that of noise."""
        away = self.axes.T @ (x - self.centre)
        return 1.0 / self.count + float((away**2 / self.spread).sum())

    def agrees(self, x: Float64, g: Float64) -> bool:
        """Return whether noise explains how far the gradient at x is from g."""
        d, gaps = len(x), self.axes.T @ (self.gradient(x) - g)
        spread = 2.0 / (9.0 * d)  # Wilson and Hilferty: the cube root of chi^2 is nearly normal
        limit = d * (1.0 - spread + _AGREE * math.sqrt(spread)) ** 3
        return float((gaps**2 / (self.noise + 1e-300)).sum()) <= limit * self.lever(x)


def answer(
    X: Float64, G: Float64, counts: Float64, average: tuple[int, Float64, Float64], prox: Map | None
) -> Minimum | None:
    """Return the minimum of the field and the gradient there, or None if it is not to be trusted.

    X, G and counts are the means of consecutive calls. `average` is the answer that is known to be
    sane, as the row from which on it averages, its point and its gradient mapping.
    """
    n, (first, safe, ascent) = len(X), average
    if counts.sum() < max(_FEWEST, _FEWEST_EACH * X.shape[1]):
        return None
    whole = fit(X, G, counts, _SURE)
    late = fit(X, G, counts * (np.cumsum(counts) / counts.sum()) ** _LATE, 2.0 * _SURE)
    if whole is None or late is None:
        return None
    if prox is None:
        # No start and no weights are better everywhere, and f is convex: the mean of all four.
        x = np.mean([f.newton(z) for f in (whole, late) for z in (f.centre, safe)], axis=0)
        g = np.zeros_like(x)
    elif max(whole.h.max(), late.h.max()) * _FARTHEST < 1.0:
        return None
    else:
        x = _minimum((whole, late), safe, prox)
        g = (whole.gradient(x) + late.gradient(x)) / 2.0
    if not np.abs(x).max() < _FARTHEST:
        return None
    halved = [slice(k * n // m, (k + 1) * n // m) for m in (2, 4, 8) for k in range(m)]
    for part in (slice(first, n), *halved):
        field = fit(X[part], G[part], counts[part])
        if field is None or not field.agrees(x, g):
            return None
    apart = late.gradient(x) - whole.gradient(x)
    std = np.sqrt(sum(f.variances * f.lever(x) for f in (whole, late)) + apart**2)
    known = float(ascent @ ascent + G[first:].var(axis=0).sum() / (n - first))
    return None if float(std @ std) > _LESS * known else (x, late.gradient(x), std)


def _minimum(fields: tuple[Field, Field], x: Float64, prox: Map) -> Float64:
    """Minimise the mean of two fields' quadratics plus the penalty by FISTA with restarts."""
    H = np.zeros((len(x), len(x)))
    for f in fields:
        stiff = np.minimum(f.stiffened(), 100.0 * f.h.max())
        H += (f.axes * stiff) @ f.axes.T / 2.0
    g = (fields[0].gradient(x) + fields[1].gradient(x)) / 2.0 - H @ x
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


def fit(X: Float64, G: Float64, weights: Float64, sure: float = 1.0) -> Field | None:
    """Regress gradients on points by weighted symmetric ridge regression.

    The errors of the curvatures are multiplied by `sure`. None if all points are the same.
    """
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
    error = sure * np.sqrt(along / spread)
    return Field(x, g, h, U, error, spread, along, np.diag(noise), n)


def _ridge(k: Float64, explained: Float64, total: float, n: float) -> float:
    """Return the most likely ridge, for points with squared spreads k along their axes."""
    d, ok = len(k), k > 1e-10 * k[-1]
    rank = int(ok.sum())
    free = max(n - 1.0 - rank, 0.0)
    y = np.where(ok, explained / np.where(ok, k, 1.0), 0.0)
    rest = max(total - float(y.sum()), 0.0) if free > 0.0 else 0.0
    low, high = math.log(1e-4 / k[-1]), math.log(1e8 / k[ok].min())
    t = np.linspace(low, high, _RIDGES)  # log of the variance of an entry of H over that of noise
    a = 1.0 + np.exp(t)[:, None] * k
    f = 1.0 - 1.0 / a
    prior = (f**2).sum(axis=1) - f.sum(axis=1) ** 2 / (rank + free)  # the reference prior
    likely = np.log(np.maximum(prior, 1e-12)) - d * np.log(a).sum(axis=1)
    misfit = np.maximum((y / a).sum(axis=1) + rest, 1e-300)
    likely -= d * (rank + free) * np.log(misfit)
    return math.exp(-float(t[likely.argmax()]))
