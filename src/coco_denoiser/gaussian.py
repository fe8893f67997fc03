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
NumPy and for JAX: `xp` is numpy or jax.numpy, shapes are static, and nothing branches on data.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from coco_denoiser import _validation as check
from coco_denoiser.solution import Solution, Status
from coco_denoiser.typing import Float64, Int64
from coco_denoiser.window import Estimate, Model, Window

# The ratio in use is so many times the most likely one. Too small a slope delays the optimizer,
# which adds up over the steps; too large a slope lets some noise through, which averages out.
GUARD = 3.0
_GRID = 40  # ratios among which the most likely one is looked for
_NODES = 20  # at which the derivative of the likelihood is interpolated around it
_FINE = 257  # points at which that interpolation is evaluated
_RATIOS = 49  # over which the standard error is averaged; odd, so that the best is one of them
_FARTHEST = 30.0  # in log t from the best: beyond, the likelihood vanishes
_UNSOLVED = 1e-3  # a relative residual beyond which weights are not used


class Fit(NamedTuple):
    """Weights of some observations, and what the window says; unknown numbers are NaN.

    Attributes:
        weights: (m, K); every row sums to 1.
        std: (m,), standard error of each coordinate of theta.
        noise_std: sigma, estimated or as given.
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
    noise_std: Any = None,
    xp: Any = np,
) -> Fit:
    """Estimate slope and noise of a window, and average its gradients at some of its points.

    Args:
        points: (K, K), distances between points.
        gradients: (K, K), distances between gradients.
        precisions: (K,), 1 / v. With JAX, 0 for slots that are empty; the last one is not.
        targets: (m,), the observations whose gradients are asked for.
        d: the number of coordinates.
        L: bound on the curvature, which caps the slope: s^2 d <= L^2. None for no cap.
        noise_std: sigma, if it is known.
        xp: numpy or jax.numpy.
    """
    K, unknown, most = precisions.shape[0], noise_std is None, precisions.max()
    if K == 1:
        noise = most * xp.nan if unknown else noise_std + 0.0 * most
        std = noise / xp.sqrt(precisions)
        return Fit(xp.ones_like(points), std, noise, most * xp.nan, 0.0 * precisions)
    wide = precisions.dtype == np.float64
    flat, alike, tiny = (1e-14, 1e-9, 1e-300) if wide else (1e-6, 1e-5, 1e-30)
    # In units in which the largest of each is 1, squares stay in range.
    reach, unit, share = points.max(), gradients.max(), precisions / most
    if not unknown:
        unit = xp.maximum(unit, noise_std / xp.sqrt(most))
    moved, differ = reach > 0.0, unit > 0.0
    reach, unit = _either(moved, reach, 1.0, xp), _either(differ, unit, 1.0, xp)
    X, G = (points / reach) ** 2, (gradients / unit) ** 2
    sigma2 = None if unknown else (noise_std / (unit * xp.sqrt(most))) ** 2
    window = _contrasts(X, G, share, d, sigma2, flat, tiny, xp)
    mean, root, kappa, n = window.mean, xp.sqrt(share), window.kappa, window.n
    limit = xp.inf if L is None else window.capped((L * (reach / unit)) ** 2 / d)
    moves, capped = kappa[-1] > 0.0, limit < xp.inf
    # Every contrast has moved equally far: noise and slope cannot be told apart, as with two
    # points. All of it may be noise, unless the slope is capped.
    silent = moves & (window.least > (1.0 - alike) * kappa[-1]) & unknown
    best = _either(silent & capped, limit, window.most_likely(limit), xp)
    best = _either(moves, best, 0.0, xp)
    t = xp.minimum(best * GUARD, limit)
    rest = 1.0 / (1.0 + t * kappa)
    f = t * kappa * rest
    # Student's t: halfway between what makes one and what makes 1.96 standard errors cover.
    df = d * n
    wider = (1.0 + 0.855 / df + 0.845 / (df * df)) ** 2 if unknown else 1.0
    noise, F, C = window.uncertainty(best, limit, f)
    a = window.A[targets]
    p, moved_by = mean[targets], ((a @ (C * window.R)) * a).sum(-1)
    variance = xp.maximum(wider * (noise * p + (a * a) @ F) + moved_by / d, 0.0)
    W = mean + ((a * f) @ window.A.T) * (root / root[targets][:, None])
    used = window.noise(rest)
    gap = _residuals(W, X, share, mean, targets, t * used, used, xp)
    found = window.noise(1.0 / (1.0 + best * kappa))
    # Three cases in which nothing of this holds: all may be noise; all gradients are equal;
    # rounding has spoilt the weights.
    all_noise, alone = silent & ~capped, window.noise(1.0 + 0.0 * kappa)
    found = _either(all_noise, alone, found, xp)
    variance = _either(all_noise, wider * alone + 0.0 * p, variance, xp)
    scale = _either(moved & ~all_noise, xp.sqrt(best * found) * (unit / reach), xp.nan, xp)
    gap = _either(all_noise | ~differ, 0.0 * gap, gap, xp)
    W = _either(differ, W, mean + 0.0 * W, xp)
    single = (all_noise | ~(gap <= _UNSOLVED))[:, None]
    W = xp.where(single, targets[:, None] == np.arange(K), W)
    unit = _either(differ, unit, 0.0, xp)
    std = unit * xp.sqrt(variance / share[targets])
    return Fit(W, std, unit * xp.sqrt(found * most), scale, gap)


def solution(
    x: Float64,
    g: Float64,
    variances: Float64,
    *,
    L: float | None = None,
    noise_std: float | None = None,
    tol: float = 1e-9,
) -> Solution:
    """Estimate the gradients (K, d) at all points (K, d) of a window."""
    K, d = x.shape
    every = np.arange(K)
    found = fit(_distances(x), _distances(g), 1.0 / variances, every, d, L=L, noise_std=noise_std)
    return as_solution(found, g[0] + found.weights @ (g - g[0]), d, tol)


def as_solution(found: Fit, gradients: Float64, d: int, tol: float) -> Solution:
    """Return what `solve` returns of a fit of all points, d being the number of coordinates."""
    gap = float(found.gap.max())
    return Solution(
        gradients=gradients,
        weights=found.weights,
        multipliers=np.full_like(found.weights, np.nan),
        gap=gap,
        violation=math.nan,
        iterations=0,
        method="gaussian",
        status=Status.ESTIMATED if gap <= tol else Status.STALLED,
        std=found.std,
        noise_std=float(found.noise_std),
        curvature=float(found.scale) * math.sqrt(d),
    )


def _distances(v: Float64) -> Float64:
    """Return the distances between vectors (K, d), none of whose squares overflows."""
    v = v - v[0]
    unit = float(np.abs(v).max(initial=0.0)) or 1.0
    return unit * np.array([np.linalg.norm((v - row) / unit, axis=1) for row in v])


class Gaussian(Model):
    """A random slope, with as much of it as the window shows.

    Args:
        L: a cap on the slope: a number, a function that returns one, or None.
        noise_std: standard deviation of the noise of an observation of variance 1, if known.
        tol: relative residual of the linear system to reach.
    """

    def __init__(
        self,
        *,
        L: float | Callable[[], float] | None = None,
        noise_std: float | None = None,
        tol: float = 1e-9,
    ) -> None:
        self.L = L
        self.tol = check.positive("tol", tol)
        self.noise_std = None if noise_std is None else check.positive("noise_std", noise_std)
        self._cap: float | None = None
        if not callable(L):
            self.begin(1.0)

    def begin(self, sign: float) -> None:
        """Ask for the cap. A random slope has no sign."""
        del sign
        L = self.L() if callable(self.L) else self.L
        if L is not None and self._cap != L:
            self._cap = check.positive("L", L)

    @property
    def bounds(self) -> tuple[float, float]:
        """The curvature that the slope may have: it has either sign."""
        L = np.inf if self._cap is None else self._cap
        return L, -L

    @property
    def settings(self) -> dict[str, object]:
        """What the model was made with, by name."""
        return {"model": "gaussian", "L": self.L, "tol": self.tol, "noise_std": self.noise_std}

    def estimate(self, window: Window) -> Estimate:
        """Return the weights of the newest observation."""
        found = self.fit(window, np.array([window.newest]))
        gap, shortfall = found.gap.item(), None
        if not gap <= self.tol:
            shortfall = f"gaussian: relative residual {gap:.1e}, tol={self.tol:.1e}."
        return Estimate(
            found.weights[0],
            0.0,
            std=found.std.item(),
            noise_std=float(found.noise_std),
            curvature=float(found.scale) * math.sqrt(window.d),
            gap=gap,
            violation=math.nan,
            shortfall=shortfall,
        )

    def fit(self, window: Window, targets: Int64) -> Fit:
        """Average the gradients of a window at some of its points."""
        return fit(
            window.points,
            window.distances(0.0),
            1.0 / window.variances,
            targets,
            window.d,
            L=self._cap,
            noise_std=self.noise_std,
        )


class _Contrasts(NamedTuple):
    """y_k ~ sigma^2 (1 + t kappa_k) chi^2_d for n contrasts; others are zero.

    The likelihood is written in terms of f_k - f_b, b being the contrast that moved farthest,
    which have all their digits where f itself is close to 0 or to 1. Where sigma is known, f
    itself takes their place.
    """

    kappa: Any  # (K - 1,), how far each has moved, ascending
    y: Any  # (K - 1,), its squared norm
    less: Any  # (K - 1,), kappa - kappa_b, or kappa where sigma is known
    R: Any  # (K - 1, K - 1), y being its diagonal
    A: Any  # (K, K - 1), Q U
    mean: Any  # (K,), p
    one: Any  # (K - 1,), ones
    least: Any  # the least kappa of a contrast that is real
    n: Any  # how many are
    d: int
    sigma2: Any  # None if it is not known
    tiny: float  # in place of zero under a logarithm
    xp: Any

    def noise(self, rest: Any) -> Any:
        """Return sigma^2 as given, or what is most likely, for rest = 1 / (1 + t kappa)."""
        return (rest * self.y).sum(-1) / (self.d * self.n) if self.sigma2 is None else self.sigma2

    def at(self, t: Any) -> tuple[Any, Any]:
        """Return rest and the deviations f - f_b, (m, K - 1), for ratios (m,)."""
        rest = 1.0 / (1.0 + t[:, None] * self.kappa)
        return rest, self.deviations(t, rest)

    def deviations(self, t: Any, rest: Any) -> Any:
        """Return f - f_b for ratios (m,)."""
        scale = t if self.sigma2 is not None else t * rest[:, -1]
        return rest * self.less * scale[:, None]

    def sums(self, *terms: Any) -> Any:
        """Return the sums of terms (m, K - 1) over the contrasts: in JAX, one small program."""
        if self.xp is np:
            return [term @ self.one for term in terms]
        return self.xp.stack(terms).sum(-1)

    def centred(self, product: Any, first: Any, second: Any) -> Any:
        """Return a sum of products of deviations, less that of their means if sigma is unknown."""
        return product - first * second / self.n if self.sigma2 is None else product

    def log_likelihood(self, t: Any) -> Any:
        """Return the log likelihood of ratios (m,), sigma integrated out, with Jeffreys' prior.

        The prior of log t is the root of the information that a window of such a shape holds on
        it. Without it the most likely slope is often zero, and old gradients then count in full.
        """
        xp, d = self.xp, self.d
        rest, D = self.at(t)
        DD, D1, log_rest, seen = self.sums(D * D, D, xp.log(rest), rest * self.y)
        if self.sigma2 is None:
            fit = d * self.n * xp.log(xp.maximum(seen, self.tiny))
        else:
            fit = seen / self.sigma2
        information = xp.maximum(self.centred(DD, D1, D1), self.tiny)
        return 0.5 * (xp.log(information) + d * log_rest - fit)

    def slope(self, log: Any) -> Any:
        """Return the derivative of that with respect to log t."""
        xp, d = self.xp, self.d
        rest, D = self.at(xp.exp(log))
        base = 0.0 if self.sigma2 is not None else 1.0 - rest[:, -1:]
        change, seen = D * (rest - base), rest * self.y  # change is the derivative of D
        DD, D1, DC, C1, S, SD = self.sums(D * D, D, D * change, change, seen, seen * D)
        prior = self.centred(DC, D1, C1) / xp.maximum(self.centred(DD, D1, D1), self.tiny)
        noise = S / (d * self.n) if self.sigma2 is None else self.sigma2
        return prior + 0.5 * (SD / xp.maximum(noise, self.tiny) - d * D1)

    def most_likely(self, limit: Any) -> Any:
        """Return the most likely ratio up to a limit; any if nothing has moved."""
        xp, kappa = self.xp, self.kappa
        last = _either(kappa[-1] > 0.0, kappa[-1], 1.0, xp)
        least = xp.where(kappa > 0.0, kappa, last).min()
        high = xp.log(xp.minimum(1e16 / least, limit))
        low = xp.minimum(math.log(1e-6) - xp.log(last), high - 1.0)
        width = (high - low) / (_GRID - 1)
        at = xp.argmax(self.log_likelihood(xp.exp(low + width * xp.arange(_GRID, dtype=low.dtype))))
        start = low + width * xp.minimum(xp.maximum(at - 1, 0), _GRID - 3)
        return xp.exp(_crossing(self.slope, start, 2.0 * width, xp))

    def capped(self, top: Any) -> Any:
        """Return the ratio at which s^2 reaches its cap; infinite if it never does."""
        xp, last = self.xp, self.kappa[-1]
        if self.sigma2 is not None:
            return top / self.sigma2

        def left(log: Any) -> Any:
            noise = self.noise(1.0 / (1.0 + xp.exp(log)[:, None] * self.kappa))
            return xp.log(top) - log - xp.log(xp.maximum(noise, self.tiny))

        grid = np.linspace(math.log(1e-12), math.log(1e30), _GRID)
        base, width = xp.log(_either(last > 0.0, last, 1.0, xp)), float(grid[1] - grid[0])
        on_grid = left(xp.asarray(grid, base.dtype) - base)
        cell = xp.minimum(xp.maximum((on_grid > 0.0).sum() - 1, 0), _GRID - 2)
        ratio = xp.exp(_crossing(left, float(grid[0]) - base + width * cell, width, xp))
        return _either((on_grid[-1] >= 0.0) | (last <= 0.0), xp.inf, ratio, xp)

    def uncertainty(self, best: Any, limit: Any, f: Any) -> tuple[Any, Any, Any]:
        """Average over the ratios that the window allows, in proportion to their likelihood.

        Returns the means of sigma^2, of sigma^2 f_k(t), and of (f_k(t) - f_k) (f_l(t) - f_l).
        Likelihoods are relative to that of the best, so that float32 suffices with 10^9
        coordinates.
        """
        xp, d = self.xp, self.d
        factor, more, density = (xp.asarray(v, f.dtype) for v in _ratios(d * f.shape[0]))
        before = 1.0 / (1.0 + best * self.kappa)
        q = more[:, None] * (best * self.kappa * before)
        after = 1.0 / (1.0 + q)
        rest, t = before * after, best * factor
        D, seen = self.deviations(t, rest), self.y * before
        DD, D1, log_q, kept, lost = self.sums(D * D, D, xp.log1p(q), after * seen, after * q * seen)
        if self.sigma2 is not None:
            fit, sigma2 = -lost / (d * self.sigma2), self.sigma2
        else:
            sigma2 = kept / (d * self.n)
            whole = xp.maximum(seen.sum(), self.tiny)
            fit = xp.log(xp.maximum(kept / whole, self.tiny))
            if f.dtype != np.float64:
                lost = lost / whole
                fit = xp.where(lost < 0.5, xp.log1p(-xp.minimum(lost, 0.5)), fit)
            fit = self.n * fit
        prior = xp.sqrt(xp.maximum(self.centred(DD, D1, D1), self.tiny))
        log = xp.minimum(-0.5 * d * (log_q + fit), 40.0)  # the prior makes up for what is above 0
        weights = xp.where(t <= limit * (1.0 + 1e-6), prior * density * xp.exp(log), 0.0)
        weights = weights / weights.sum()
        sigma2, shares = weights * sigma2, 1.0 - rest
        change = shares - f
        return sigma2.sum(), sigma2 @ shares, (weights[:, None] * change).T @ change


def _contrasts(
    X: Any, G: Any, share: Any, d: int, sigma2: Any, flat: float, tiny: float, xp: Any
) -> _Contrasts:
    """Return the contrasts of a window with these squared distances; 1 / v is at most 1."""
    K = share.shape[0]
    if xp is np and (share == 1.0).all():
        mean, Q, B = _equal(K)
    else:
        mean, Q, B = _basis(share, xp)
    # X X' is -D/2 for the squared distances D, up to what Q removes.
    M, MG = B.T @ (-0.5 * X) @ B, B.T @ (-0.5 * G) @ B
    n, real = K - 1, True
    if xp is not np:
        # Contrasts of empty slots are put below all others: they come first and do not mix.
        used = share > 0.0
        n = xp.maximum(used.sum() - 1, 1)
        real = np.arange(K - 1) >= K - 1 - n
        M = M - xp.diag(xp.where(used[:-1], 0.0, xp.trace(M) + tiny))
    kappa, U = xp.linalg.eigh(M)
    R = U.T @ MG @ U
    # In d coordinates no more than d contrasts can have moved.
    moved = (kappa > flat * kappa[-1]) & (np.arange(K - 1) >= K - 1 - d) & real
    kappa = xp.where(moved, kappa, 0.0)
    less = kappa if sigma2 is not None else kappa - kappa[-1]
    y = xp.maximum(xp.diagonal(R), 0.0)
    least = kappa[0]
    if xp is not np:
        y, less = (xp.where(real, v, 0.0) for v in (y, less))
        least, n = kappa[K - 1 - n], n.astype(y.dtype)  # lest d n overflow
    return _Contrasts(kappa, y, less, R, Q @ U, mean, _ones(K - 1), least, n, d, sigma2, tiny, xp)


def _basis(share: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return p, Q and V^-1/2 Q.

    The reflection I - 2 h h' turns v^-1/2 to the last axis; its other columns are Q. To drop the
    smallest eigenvector of a centred matrix instead would mix the constant with other directions
    that no point moved in.
    """
    K, mean = share.shape[0], share / share.sum()
    h = xp.sqrt(mean) + (np.arange(K) == K - 1)
    Q = (xp.eye(K, dtype=h.dtype) - (2.0 / (h @ h)) * h[:, None] * h)[:, :-1]
    return mean, Q, xp.sqrt(share)[:, None] * Q


@lru_cache
def _equal(K: int) -> tuple[Any, Any, Any]:
    """Return that of equal variances."""
    return _basis(np.ones(K), np)


_ones = lru_cache(np.ones)


def _residuals(
    W: Any, X: Any, share: Any, mean: Any, targets: Any, slope2: Any, noise2: Any, xp: Any
) -> Any:
    """Return how far S w is from a constant, row by row relative to S, for weights (m, K).

    The covariance of i and n around target j is slope2 (X_ij + X_nj - X_in) / 2, and on the
    diagonal noise2 / share_i more.
    """
    used, here, sums = share > 0.0, X[targets], X.sum(0)
    own = noise2 / (share if xp is np else xp.where(used, share, 1.0))
    rows = 0.5 * slope2 * (here - W @ X) + own * W
    size = 0.5 * slope2 * (len(share) * here + sums + sums[targets][:, None]) + own
    off = used * xp.abs(rows - (rows @ mean)[:, None]) / (size + 1e-30)
    return off.max(-1) / xp.abs(W).max(-1)


@lru_cache
def _ratios(count: int) -> tuple[Float64, Float64, Float64]:
    """Return t / best, t / best - 1 and the distance between neighbours in log t, up to a factor.

    Ratios are dense around the best, where the likelihood of so many numbers is narrow, and reach
    far enough for a flat one.
    """
    scale = 1.0 / math.sqrt(count)
    steps = math.asinh(_FARTHEST / scale) * np.linspace(-1.0, 1.0, _RATIOS)
    away = scale * np.sinh(steps)
    return np.exp(away), np.expm1(away), np.cosh(steps)


def _crossing(function: Any, low: Any, width: Any, xp: Any) -> Any:
    """Return where a smooth function first turns negative between low and low + width.

    It is interpolated by a polynomial, whose root is as accurate as rounding allows. An end of
    the interval is returned where there is no change of sign.
    """
    nodes, matrix = (xp.asarray(v, low.dtype) for v in _interpolation())
    seen = function(low + width * nodes)
    v, slopes = matrix @ seen
    positive = v > 0.0
    i = _either(positive.all(), _FINE, xp.argmin(positive), xp)
    k = xp.minimum(xp.maximum(i, 1), _FINE - 1)
    a, b = v[k - 1], v[k]
    fall = _either(a > b, a - b, 1.0, xp)
    s = xp.minimum(xp.maximum(a / fall, 0.0), 1.0)
    # Hermite's interpolation of the inverse function in the cell.
    first, second = (
        xp.minimum(fall * (_FINE - 1) / xp.maximum(-slope, 1e-30), 3.0) - 1.0
        for slope in (slopes[k - 1], slopes[k])
    )
    s = s + s * (1.0 - s) * ((1.0 - s) * first - s * second)
    inside = _either(i == 0, 0.0, _either(i == _FINE, 1.0, (k - 1 + s) / (_FINE - 1), xp), xp)
    return low + width * inside


@lru_cache
def _interpolation() -> tuple[Float64, Float64]:
    """Return nodes in (0, 1), and the matrices to values and slopes on a fine grid from those."""
    nodes = -np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    fine = np.linspace(-1.0, 1.0, _FINE)
    coefficients = np.linalg.inv(chebyshev.chebvander(nodes, _NODES - 1))
    values = chebyshev.chebval(fine, coefficients).T
    slopes = 2.0 * chebyshev.chebval(fine, chebyshev.chebder(coefficients)).T
    return 0.5 * (1.0 + nodes), np.stack([values, slopes])


def _either(condition: Any, yes: Any, no: Any, xp: Any) -> Any:
    """Return one of two by a condition that is a single number: quicker than NumPy's where."""
    if xp is np:
        return yes if condition else no
    return xp.where(condition, yes, no)
