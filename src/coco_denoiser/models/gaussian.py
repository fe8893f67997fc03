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

so that one decomposition serves every ratio and every point.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._jit import kernel, subroutine
from coco_denoiser.models._likelihood import (
    capped_ratio,
    most_likely_ratio,
    noise_variance,
    uncertainty,
)
from coco_denoiser.solution import Solution, Status
from coco_denoiser.typing import Float64, Int64
from coco_denoiser.window import Estimate, Model, Window

# The ratio in use is so many times the most likely one. Too small a slope delays the optimizer,
# which adds up over the steps; too large a slope lets some noise through, which averages out.
GUARD = 3.0
# Eigenvalues below this share of the largest are rounding: no movement of the points.
_FLAT = 1e-14


class Fit(NamedTuple):
    """Weights of some observations, and what the window says about noise and slope.

    Attributes:
        weights: (m, K); every row sums to 1.
        std: (m,), standard error of each coordinate of theta. NaN for a single observation.
        noise_std: sigma, estimated or as given.
        scale: s, the standard deviation of the entries of the slope E.
        gap: largest relative residual of the linear systems S w = const.
    """

    weights: Float64
    std: Float64
    noise_std: float
    scale: float
    gap: float


def fit(
    points: Float64,
    gradients: Float64,
    variances: Float64,
    d: int,
    targets: Int64,
    *,
    L: float | None = None,
    noise_std: float | None = None,
) -> Fit:
    """Estimate slope and noise of a window, and average its gradients at some of its points.

    Args:
        points: (K, K), distances between points.
        gradients: (K, K), distances between gradients.
        variances: (K,), relative noise variances v.
        d: the number of coordinates.
        targets: (m,), the observations whose gradients are asked for.
        L: bound on the curvature, which caps the slope: s^2 d <= L^2. None for no cap.
        noise_std: sigma, if it is known.
    """
    cap = np.inf if L is None else L / math.sqrt(d)
    sigma = np.nan if noise_std is None else noise_std
    weights, std, found = _fit(points, gradients, variances, float(d), targets, cap, sigma)
    return Fit(weights, std, float(found[0]), float(found[1]), float(found[2]))


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
    found = fit(_distances(x), _distances(g), variances, d, np.arange(K), L=L, noise_std=noise_std)
    return as_solution(found, g[0] + found.weights @ (g - g[0]), d, tol)


def as_solution(found: Fit, gradients: Float64, d: int, tol: float) -> Solution:
    """Return what `solve` returns of a fit of all points, d being the number of coordinates."""
    return Solution(
        gradients=gradients,
        weights=found.weights,
        multipliers=np.full_like(found.weights, np.nan),
        gap=found.gap,
        violation=math.nan,
        iterations=0,
        method="gaussian",
        status=Status.ESTIMATED if found.gap <= tol else Status.STALLED,
        std=found.std,
        noise_std=found.noise_std,
        curvature=found.scale * math.sqrt(d),
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
        shortfall = None
        if not found.gap <= self.tol:
            shortfall = f"gaussian: relative residual {found.gap:.1e}, tol={self.tol:.1e}."
        return Estimate(
            found.weights[0],
            0.0,
            std=float(found.std[0]),
            noise_std=found.noise_std,
            curvature=found.scale * math.sqrt(window.d),
            gap=found.gap,
            violation=math.nan,
            shortfall=shortfall,
        )

    def fit(self, window: Window, targets: Int64) -> Fit:
        """Average the gradients of a window at some of its points."""
        return fit(
            window.points,
            window.distances(0.0),
            window.variances,
            window.d,
            targets,
            L=self._cap,
            noise_std=self.noise_std,
        )


@kernel
def _fit(
    points: Float64,
    gradients: Float64,
    variances: Float64,
    d: float,
    targets: Int64,
    cap: float,
    noise_std: float,
) -> tuple[Float64, Float64, Float64]:
    """Return weights (m, K), standard errors (m,), and sigma, s and the relative residual."""
    K, known = variances.size, not math.isnan(noise_std)
    weights, std = np.zeros((targets.size, K)), np.zeros(targets.size)
    # In units in which the largest distances are 1, squares stay in range.
    reach, unit = _largest(points), _largest(gradients)
    v, least, root, share, h = _basis(variances)
    if known:
        unit = max(unit, noise_std * math.sqrt(least))
    if K == 1 or unit == 0.0:
        found = noise_std if K == 1 else 0.0
        for m in range(targets.size):
            std[m] = found * math.sqrt(variances[targets[m]])
            weights[m, :] = share
        return weights, std, np.array([found, np.nan, 0.0])
    sigma2 = (noise_std * (math.sqrt(least) / unit)) ** 2
    top = (cap * (max(reach, 1e-300) / unit)) ** 2
    kappa, U = np.linalg.eigh(_contrasts(points, root, h, reach))
    MG = _contrasts(gradients, root, h, unit)
    R = np.dot(U.T, np.dot(MG, U))
    y = np.empty(K - 1)
    for k in range(K - 1):
        y[k] = max(R[k, k], 0.0)
        if kappa[k] < _FLAT * kappa[K - 2]:
            kappa[k] = 0.0
    limit = capped_ratio(kappa, y, d, sigma2, top)
    df = d * (K - 1)
    # Student's t: halfway between what makes one and what makes 1.96 standard errors cover.
    wider = 1.0 if known else (1.0 + 0.855 / df + 0.845 / (df * df)) ** 2
    silent = not known and kappa[0] > (1.0 - 1e-9) * kappa[K - 2]
    if silent and kappa[0] > 0.0 and limit == np.inf:
        # Every contrast has moved equally far: noise and slope cannot be told apart, as with
        # two points. All of it may be noise.
        noise = noise_variance(kappa, y, d, 0.0, sigma2)
        for m in range(targets.size):
            weights[m, targets[m]] = 1.0
            std[m] = unit * math.sqrt(noise * wider * v[targets[m]])
        return weights, std, np.array([unit * math.sqrt(noise / least), np.nan, 0.0])
    best = limit if silent and kappa[0] > 0.0 else most_likely_ratio(kappa, y, d, sigma2, limit)
    t = min(best * GUARD, limit)
    f, a = np.empty(K - 1), np.empty(K - 1)
    for k in range(K - 1):
        f[k] = t * kappa[k] / (1.0 + t * kappa[k])
    mean_noise, F, C = uncertainty(kappa, y, d, sigma2, best, limit, f)
    used = noise_variance(kappa, y, d, t, sigma2)
    gap = 0.0
    for m in range(targets.size):
        j = targets[m]
        variance = wider * mean_noise * share[j]
        for k in range(K - 1):
            a[k] = U[j, k] if j < K - 1 else 0.0
            for i in range(K - 1):
                a[k] -= 2.0 * h[j] * h[i] * U[i, k]
        for k in range(K - 1):
            moved = 0.0
            for i in range(K - 1):
                moved += C[k, i] * R[k, i] * a[i]
            variance += a[k] * (wider * F[k] * a[k] + moved / d)
        std[m] = unit * math.sqrt(max(variance, 0.0) * v[j])
        for k in range(K - 1):
            a[k] *= f[k]
        _combine(weights[m], a, U, h, root, share, j)
        gap = max(gap, _residual(points, reach, v, weights[m], j, t * used, used))
    noise = noise_variance(kappa, y, d, best, sigma2)
    slope = math.sqrt(best * noise) * (unit / reach) if reach > 0.0 else np.nan
    return weights, std, np.array([unit * math.sqrt(noise / least), slope, gap])


@subroutine
def _largest(distances: Float64) -> float:
    top = 0.0
    for i in range(distances.shape[0]):
        for j in range(i):
            top = max(top, distances[i, j])
    return top


@subroutine
def _basis(variances: Float64) -> tuple[Float64, float, Float64, Float64, Float64]:
    """Return v relative to the least, the least, v^-1/2, p, and h.

    The reflection I - 2 h h' turns v^-1/2 to the last axis; its other columns are Q. To drop
    the smallest eigenvector of a centred matrix instead would mix the constant with other
    directions that no point moved in.
    """
    K = variances.size
    v, root, share, h = np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    least, total = np.inf, 0.0
    for i in range(K):
        least = min(least, variances[i])
    for i in range(K):
        v[i], share[i] = variances[i] / least, least / variances[i]
        root[i] = math.sqrt(share[i])
        total += share[i]
    size = 0.0
    for i in range(K):
        share[i] /= total
        h[i] = root[i] / math.sqrt(total) + (1.0 if i == K - 1 else 0.0)
        size += h[i] * h[i]
    for i in range(K):
        h[i] /= math.sqrt(size)
    return v, least, root, share, h


@subroutine
def _contrasts(distances: Float64, root: Float64, h: Float64, unit: float) -> Float64:
    """Return Q' V^-1/2 X X' V^-1/2 Q, (K - 1, K - 1), of vectors with these distances.

    X X' is -D/2 for the squared distances D, up to what Q removes.
    """
    K = root.size
    M, Mh, hMh = np.zeros((K, K)), np.zeros(K), 0.0
    for i in range(K):
        for j in range(K):
            if i != j and unit > 0.0:
                M[i, j] = -0.5 * (distances[i, j] / unit) ** 2 * root[i] * root[j]
                Mh[i] += M[i, j] * h[j]
        hMh += h[i] * Mh[i]
    found = np.empty((K - 1, K - 1))
    for i in range(K - 1):
        for j in range(K - 1):
            found[i, j] = M[i, j] - 2.0 * (h[i] * Mh[j] + Mh[i] * h[j] - 2.0 * hMh * h[i] * h[j])
    return found


@subroutine
def _combine(
    weights: Float64, a: Float64, U: Float64, h: Float64, root: Float64, share: Float64, j: int
) -> None:
    """Write row j of W, from the coefficients f_k A_jk."""
    K = weights.size
    along = 0.0
    for i in range(K - 1):
        weights[i] = 0.0
        for k in range(K - 1):
            weights[i] += U[i, k] * a[k]
        along += h[i] * weights[i]
    weights[K - 1] = 0.0
    for i in range(K):
        weights[i] = share[i] + (weights[i] - 2.0 * h[i] * along) * (root[i] / root[j])


@subroutine
def _residual(
    points: Float64,
    reach: float,
    variances: Float64,
    weights: Float64,
    j: int,
    slope2: float,
    noise2: float,
) -> float:
    """Return how far S w is from a constant, relative to the norms of S and w."""
    K = weights.size
    unit = reach if reach > 0.0 else 1.0
    low, high, norm, top = np.inf, -np.inf, 0.0, 0.0
    for i in range(K):
        total, row = noise2 * variances[i] * weights[i], noise2 * variances[i]
        from_j = (points[i, j] / unit) ** 2
        for n in range(K):
            entry = from_j + (points[n, j] / unit) ** 2
            if n != i:
                entry -= (points[i, n] / unit) ** 2
            total += 0.5 * slope2 * entry * weights[n]
            row += 0.5 * slope2 * abs(entry)
        low, high = min(low, total), max(high, total)
        norm, top = max(norm, row), max(top, abs(weights[i]))
    return (high - low) / (norm * top) if norm > 0.0 else 0.0
