"""Gradients of a field whose slope is random: neither L nor the noise has to be known.

Around a point x_j of the window, let

    g_i = theta + E (x_i - x_j) + n_i,    E_ab ~ N(0, s^2),    n_i ~ N(0, sigma^2 v_i I),

with theta unknown. All coordinates share one K by K covariance S = s^2 Z Z' + sigma^2 diag(v),
Z having the rows x_i - x_j, so that the best linear unbiased estimate is one average,

    theta = argmin over t of  sum_a (g_a - t_a 1)' S^-1 (g_a - t_a 1)  =  sum_i w_i g_i,
    w = S^-1 1 / (1' S^-1 1),

whose weights sum to 1 and may be negative: it extrapolates. s and sigma come from the same
tables, by the likelihood of the contrasts, in which theta does not occur. Let Q be an orthonormal
basis of what is orthogonal to v^-1/2, and kappa, U the eigenpairs of Q' V^-1/2 X X' V^-1/2 Q.
With A = Q U, y = A' V^-1/2 G and the ratio t = s^2 / sigma^2,

    y_k ~ N(0, sigma^2 (1 + t kappa_k) I),
    W = 1 p' + V^1/2 A diag(f) A' V^-1/2,     f_k = t kappa_k / (1 + t kappa_k),
    Var theta_j = sigma^2 v_j W_jj,           p_i = v_i^-1 / sum_l v_l^-1,

so that one decomposition serves every ratio and every point. The code below is array code for
NumPy and for JAX: `xp` is numpy or jax.numpy, arrays and numbers are of either, hence Any, shapes
are static, and nothing branches on data.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from coco_denoiser.typing import Float64

# The ratio in use is this multiple of the most likely one. Too small a slope delays the optimizer,
# which adds up over the steps; too large a slope lets some noise through, which averages out.
GUARD = 3.0
_GRID = np.arange(56.0)  # on which a derivative is evaluated first
_NODES = 0.5 - 0.5 * np.cos(np.pi * (np.arange(12) + 0.5) / 12)  # in one cell, of a polynomial
_FINE = np.linspace(0.0, 1.0, 513)  # where that polynomial is evaluated
_TO_FINE = chebyshev.chebvander(2.0 * _FINE - 1.0, 11) @ np.linalg.inv(
    chebyshev.chebvander(2.0 * _NODES - 1.0, 11)
)
_RATIOS = 49  # over which the standard error is averaged; odd, so that the best is one of them
_FARTHEST = 30.0  # in log t from the best: beyond, the likelihood vanishes
_UNSOLVED = 1e-3  # a relative residual beyond which weights are not used


class Fit(NamedTuple):
    """Weights of some observations, and what the window says; unknown numbers are NaN.

    Attributes:
        weights: (m, K); every row sums to 1.
        std: (m,), standard error of each coordinate of theta.
        noise_std: sigma.
        scale: s, the standard deviation of the entries of the slope E.
        gap: (m,), relative residuals of the linear systems S w = const. Where one is large, the
            observation itself is the estimate.
    """

    weights: Any
    std: Any
    noise_std: Any
    scale: Any
    gap: Any


@np.errstate(all="ignore")  # what is infinite or NaN in between is never chosen
def fit(
    points: Any,
    gradients: Any,
    precisions: Any,
    targets: Any,
    d: int,
    *,
    L: Any = None,
    xp: Any = np,
) -> Fit:
    """Estimate slope and noise of a window, and average its gradients at some of its points.

    Args:
        points: (K, K), distances between points.
        gradients: (K, K), distances between gradients.
        precisions: (K,), 1 / v. With JAX, 0 for slots that are empty; the first one is not.
        targets: (m,), the observations whose gradients are asked for.
        d: the number of coordinates.
        L: bound on the curvature, which caps the slope: s^2 d <= L^2. None for no cap.
        xp: numpy or jax.numpy.
    """
    K, most = precisions.shape[0], precisions.max()
    if K == 1:
        unknown = most * xp.nan
        return Fit(xp.ones_like(points), unknown + precisions, unknown, unknown, 0.0 * precisions)
    # In units in which the largest of each is 1, squares stay in range.
    reach, unit, share = points.max(), gradients.max(), precisions / most
    moved, differ = reach > 0.0, unit > 0.0
    reach, unit = _either(moved, reach, 1.0, xp), _either(differ, unit, 1.0, xp)
    X, G = (points * (0.5**0.5 / reach)) ** 2, (gradients * (0.5**0.5 / unit)) ** 2
    root = xp.sqrt(share)
    window = _Contrasts(X, G, root, d, xp)
    mean, kappa, n = window.mean, window.kappa, window.n
    limit = np.inf if L is None else window.capped((L * (reach / unit)) ** 2 / d)
    best, all_noise = window.ratio(limit)
    t = xp.minimum(best * GUARD, limit)
    rest = 1.0 / (1.0 + t * kappa)
    f = 1.0 - rest
    # Student's t: halfway between what makes one and what makes 1.96 standard errors cover.
    df = d * n
    wider = (1.0 + 0.855 / df + 0.845 / (df * df)) ** 2
    found, noise, F, C = window.uncertainty(best, limit, f)
    a, p = window.A[targets], mean[targets]
    moved_by = ((a @ (C * window.R)) * a).sum(-1)
    p = _either(all_noise, 1.0 + 0.0 * p, p, xp)
    variance = xp.maximum(wider * (noise * p + (a * a) @ F) + moved_by / d, 0.0)
    W = mean + ((a * f) @ window.A.T) * (root / root[targets][:, None])
    used = window.noise(rest)
    gap = _residuals(W, X, share, mean, targets, t * used, used, xp)
    # The observation itself where all may be noise, or rounding has spoilt the weights.
    single = all_noise | ~(gap <= _UNSOLVED)
    if xp is not np or single.any():
        W = xp.where(single[:, None], targets[:, None] == np.arange(K), W)
    unit = _either(differ, unit, 0.0, xp)
    scale = _either(moved & ~all_noise, xp.sqrt(best * found) * (unit / reach), xp.nan, xp)
    scale = scale if L is None else xp.minimum(scale, L / math.sqrt(d))
    std = unit * xp.sqrt(variance / share[targets])
    return Fit(W, std, unit * xp.sqrt(found * most), scale, gap)


class _Contrasts:
    """y_k ~ sigma^2 (1 + t kappa_k) chi^2_d for n contrasts; others are zero.

    X and G are half the squared distances of a window: up to what Q removes, -X is the matrix of
    the products of points. The likelihood is written in terms of f_k - f_b, b being the contrast
    that moved farthest, which have all their digits where f itself is close to 0 or to 1.
    """

    def __init__(self, X: Any, G: Any, root: Any, d: int, xp: Any) -> None:
        K, self.d, self.xp = root.shape[0], d, xp
        wide = root.dtype == np.float64
        # The share of the largest kappa that is none, and within which two are the same; and what
        # stands in place of zero in a denominator or under a logarithm.
        self.flat, self.alike, self.tiny = (1e-14, 1e-9, 1e-300) if wide else (1e-6, 1e-5, 1e-30)
        equal = xp is np and root.min() == 1.0
        self.mean, Q = _equal(K) if equal else _basis(root, xp)
        B = root[:, None] * Q
        M, n = -(B.T @ X @ B), K - 1
        if xp is not np:
            # Contrasts of empty slots are put below all others: they come first and do not mix.
            used = root > 0.0
            n = xp.maximum(used.sum() - 1, 1)
            M = M - xp.where(used[1:], 0.0, M.max() + self.tiny) * np.eye(K - 1, dtype=M.dtype)
        kappa, U = xp.linalg.eigh(M)
        B = B @ U
        self.A, self.R = Q @ U, -(B.T @ G @ B)
        kappa = xp.where(kappa > self.flat * kappa[-1], kappa, 0.0)
        if d < K - 1:  # in d coordinates no more contrasts can have moved
            kappa = kappa * (np.arange(K - 1) >= K - 1 - d)
        y, least = xp.maximum(xp.diagonal(self.R), self.flat**2), kappa[0]  # less is rounding
        less = kappa - kappa[-1]
        if xp is not np:
            real = np.arange(K - 1) >= K - 1 - n
            kappa, y, less = (xp.where(real, v, 0.0) for v in (kappa, y, less))
            least, n = kappa[K - 1 - n], n.astype(y.dtype)  # so that d n does not overflow
        self.kappa, self.y = kappa, y  # how far each has moved, ascending, and its squared norm
        self.least, self.n = least, n  # kappa of the first that is real, and how many are
        self.terms = xp.array([y, less / n**0.5, less * less, y * less])

    def noise(self, rest: Any) -> Any:
        """Return what sigma^2 most likely is, for rest = 1 / (1 + t kappa)."""
        return self.y @ rest / (self.d * self.n)

    def slope(self, t: Any) -> tuple[Any, Any]:
        """Return the derivative of the log likelihood in log t, and rest (K - 1, m), for m ratios.

        Sigma is integrated out. The prior of log t is Jeffreys': the root of the information that
        a window of such a shape holds on it. Without it the most likely slope is often zero, and
        old gradients then count in full.

        With D_k = f_k - f_b = scale rest_k less_k, the information is the variance of D, and the
        derivative of D_k is D_k (rest_k - f_b).
        """
        xp = self.xp
        rest = 1.0 / (1.0 + self.kappa[:, None] * t)
        squares, half = rest * rest, 0.5 * self.d
        # Matrices, and not vectors, times a matrix: XLA has these in a library.
        S, D, *_ = self.terms @ rest
        _, DR, DD, SD = self.terms @ squares
        DDR, far = (self.terms @ (rest * squares))[2], rest[-1]
        DD, DDR = DD - D * D, DDR - D * DR
        change = SD / S * (half * self.n) - D * (half * self.n**0.5)
        return DDR / xp.maximum(DD, self.tiny) - (1.0 - far) + t * far * change, rest

    def ratio(self, limit: Any) -> tuple[Any, Any]:
        """Return the most likely ratio up to a limit, and whether all that differs may be noise."""
        xp, last = self.xp, self.kappa[-1]
        moves = last > 0.0
        base = xp.log(_either(moves, last, 1.0, xp))
        high = xp.minimum(math.log(1e16 / self.flat) - base, xp.log(limit))
        low = xp.minimum(math.log(1e-6) - base, high - 1.0)
        best = xp.exp(_maximum(lambda log: self.slope(xp.exp(log))[0], low, high, xp))
        # Every contrast has moved equally far: noise and slope cannot be told apart, as with two
        # points. All of it may be noise, unless the slope is capped.
        silent = moves & (self.least > (1.0 - self.alike) * last)
        capped = silent & (limit < np.inf)
        all_noise = silent & ~capped
        best = _either(capped, limit, best, xp)
        return _either(moves & ~all_noise, best, 0.0, xp), all_noise

    def capped(self, top: Any) -> Any:
        """Return the ratio at which s^2 reaches its cap; infinite if it never does."""
        xp, last = self.xp, self.kappa[-1]

        def left(log: Any) -> Any:
            noise = self.noise(1.0 / (1.0 + self.kappa[:, None] * xp.exp(log)))
            return xp.log(top) - log - xp.log(xp.maximum(noise, self.tiny))

        base = xp.log(_either(last > 0.0, last, 1.0, xp))
        high = math.log(1e30) - base
        ratio = xp.exp(_maximum(left, math.log(1e-12) - base, high, xp))
        return _either((ratio >= 0.99 * xp.exp(high)) | (last <= 0.0), xp.inf, ratio, xp)

    def uncertainty(self, best: Any, limit: Any, f: Any) -> tuple[Any, Any, Any, Any]:
        """Average over the ratios that the window allows, in proportion to their likelihood.

        Returns sigma^2 at the best, and the means of sigma^2, of sigma^2 f_k(t), and of
        (f_k(t) - f_k) (f_l(t) - f_l).
        """
        xp = self.xp
        factor, density, integral = (xp.asarray(v, f.dtype) for v in _ratios(self.d * f.shape[0]))
        t = best * factor
        slope, rest = self.slope(t)
        weights = density * xp.exp(xp.minimum(integral @ slope, 0.0)) * (t <= limit * (1.0 + 1e-6))
        weights = weights / weights.sum()
        noise, shares = self.noise(rest), 1.0 - rest
        found = noise[_RATIOS // 2]
        sigma2, change = weights * noise, shares - f[:, None]
        mixed = (weights * change) @ change.T
        return found, sigma2.sum(), shares @ sigma2, mixed


def _basis(root: Any, xp: Any) -> tuple[Any, Any]:
    """Return p and Q.

    The reflection I - h h' / h_1 turns v^-1/2 to the first axis; its other columns are Q. To drop
    the smallest eigenvector of a centred matrix instead would mix the constant with other
    directions that no point moved in.
    """
    unit, axes = root / xp.sqrt(root @ root), np.eye(root.shape[0], dtype=root.dtype)
    h = unit + axes[0]
    return unit * unit, axes[:, 1:] - (h / h[0])[:, None] * h[1:]


@lru_cache
def _equal(K: int) -> tuple[Any, Any]:
    """Return that of equal variances."""
    return _basis(np.ones(K), np)


def _residuals(
    W: Any, X: Any, share: Any, mean: Any, targets: Any, slope2: Any, noise2: Any, xp: Any
) -> Any:
    """Return how far S w is from a constant, row by row relative to S, for weights (m, K).

    With half the squared distances X, the covariance of i and n around target j is
    slope2 (X_ij + X_nj - X_in), and on the diagonal noise2 / share_i more.
    """
    used, here, sums = share > 0.0, X[targets], X.sum(0)
    own = noise2 / (share if xp is np else xp.where(used, share, 1.0))
    rows = slope2 * (here - W @ X) + own * W
    size = own + slope2 * (len(share) * here + sums + sums[targets][:, None])
    off = used * xp.abs(rows - (rows @ mean)[:, None]) / (size + 1e-30)
    return off.max(-1) / xp.abs(W).max(-1)


@lru_cache
def _ratios(count: int) -> tuple[Float64, Float64, Float64]:
    """Return t / best, the distance between neighbours in log t up to a factor, and integrals.

    Ratios are dense around the best, where the likelihood of many numbers is narrow, and reach
    far enough for a flat one. The matrix turns a derivative in log t into its integral from there.
    """
    scale = 1.0 / math.sqrt(count)
    step = 2.0 * math.asinh(_FARTHEST / scale) / (_RATIOS - 1)
    steps = step * (np.arange(_RATIOS) - _RATIOS // 2)
    density, rule = np.cosh(steps), np.tri(_RATIOS) - 0.5 * np.eye(_RATIOS)
    rule = scale * step * (rule - rule[_RATIOS // 2]) * density
    return np.exp(scale * np.sinh(steps)), density, rule


def _maximum(slope: Any, low: Any, high: Any, xp: Any) -> Any:
    """Return where a function with this derivative is largest between low and high.

    The highest cell of a grid is found by integrating. In it the derivative is interpolated by a
    polynomial, whose zero is returned, or the end at which the function is higher.
    """
    width = (high - low) / (len(_GRID) - 1)
    seen = slope(low + width * xp.asarray(_GRID, low.dtype))
    top = (xp.cumsum(seen) - 0.5 * seen).argmax()
    cell = _clip(top - (seen[top] <= 0.0), 0, len(_GRID) - 2, xp)
    nodes, matrix = (xp.asarray(v, low.dtype) for v in (_NODES, _TO_FINE))
    v = matrix @ slope(low + width * (cell + nodes))
    k = _clip((v > 0.0).sum(), 1, len(_FINE) - 1, xp)
    inside = _clip(v[k - 1] / (v[k - 1] - v[k]), 0.0, 1.0, xp)  # also where nothing changes sign
    return low + width * (cell + (k - 1 + inside) / (len(_FINE) - 1))


def _either(condition: Any, yes: Any, no: Any, xp: Any) -> Any:
    """Return one of two by a condition that is a single number: quicker than NumPy's where."""
    if xp is np:
        return yes if condition else no
    return xp.where(condition, yes, no)


def _clip(value: Any, low: Any, high: Any, xp: Any) -> Any:
    """Return a number, or the end of an interval that is nearest: quicker than NumPy's clip."""
    return min(max(value, low), high) if xp is np else xp.clip(value, low, high)
