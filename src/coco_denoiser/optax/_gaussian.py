"""The Gaussian model of `coco_denoiser.models.gaussian` in pure JAX, with static shapes.

The formulas are those of the core. What differs:

- slots that are empty have precision 0, and add contrasts with kappa = 0 and y = 0, which take
  part in no sum: so the arrays keep their shapes while the window fills up;
- likelihoods are relative to one at a base, and deviations are taken from f or from 1 - f,
  whichever is small, so that float32 suffices with 10^9 coordinates;
- where the core bisects, all points that it might try in a few steps are tried at once.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.models._likelihood import NEGLIGIBLE, NODES
from coco_denoiser.models.gaussian import GUARD
from coco_denoiser.optax.solver import dot

_PARTS = 32  # of an interval that is searched
_FARTHEST = 30.0  # in log t from the best: beyond, the likelihood vanishes


class Fit(NamedTuple):
    """Weights of one observation, and what the window says; infinite where it says nothing."""

    weights: Array  # (K,), they sum to 1
    gap: Array  # relative residual of the linear system
    std: Array  # standard error of each coordinate of the answer
    noise_std: Array  # sigma, estimated or as given
    curvature: Array  # s sqrt(d), comparable with L


class _Precision(NamedTuple):
    """What a floating-point format can resolve."""

    flat: float  # eigenvalues below this share of the largest are rounding
    alike: float  # contrasts that differ by no more have moved equally far
    tiny: float  # in place of zero under a logarithm
    rounds: int  # of sections, until the digits are used up


def _precision(dtype: Any) -> _Precision:
    if dtype == jnp.float64:
        return _Precision(1e-14, 1e-9, 1e-300, 11)
    return _Precision(1e-6, 1e-5, 1e-30, 5)


class _Contrasts(NamedTuple):
    """y_k ~ sigma^2 (1 + t kappa_k) chi^2_d, for n of the K - 1 entries."""

    kappa: Array  # (K - 1,), how far each has moved
    y: Array  # (K - 1,), its squared norm
    real: Array  # (K - 1,), whether it is one; the others are zero
    n: Array  # how many are
    d: int
    sigma2: Array | None  # None if it is not known

    def noise(self, t: Array) -> Array:
        """Return sigma^2 as given, or what is most likely for ratios (..., 1)."""
        if self.sigma2 is not None:
            return jnp.broadcast_to(self.sigma2, t.shape[:-1])
        return (self.y / (1.0 + t * self.kappa)).sum(-1) / (self.d * self.n)

    def shares(self, t: Array) -> tuple[Array, Array, Array]:
        """Return f = t kappa / (1 + t kappa), 1 - f, and f less its mean over the contrasts."""
        rest = 1.0 / (1.0 + t * self.kappa)
        f = t * self.kappa * rest

        def centred(v: Array) -> Array:
            return v - jnp.where(self.real, v, 0.0).sum(-1, keepdims=True) / self.n

        small = jnp.max(f, axis=-1, keepdims=True) <= 0.5
        deviation = jnp.where(small, centred(f), -centred(rest))
        return f, rest, jnp.where(self.real, deviation, 0.0)

    def information(self, t: Array) -> Array:
        """Return the information on log t that a window of this shape holds, over d / 2."""
        f, _, deviation = self.shares(t)
        kept = deviation if self.sigma2 is None else f
        return jnp.maximum((kept * kept).sum(-1), _precision(self.y.dtype).tiny)

    def log_likelihood(self, t: Array, base: Array, change: Array) -> Array:
        """Return the log likelihood of t = base + change, (..., 1), less that of the base.

        Sigma is integrated out, and the prior is Jeffreys', as in the core.
        """
        before = 1.0 + base * self.kappa
        more = change * self.kappa / before
        relative = self.y / before
        lost = relative * more / (1.0 + more)
        fit = -lost.sum(-1)
        if self.sigma2 is None:
            whole = jnp.maximum(relative.sum(-1), _precision(self.y.dtype).tiny)
            fit = fit / whole
            rest = (relative / (1.0 + more)).sum(-1) / whole
            rest = jnp.maximum(rest, _precision(self.y.dtype).tiny)
            fit = self.n * jnp.where(fit > -0.5, jnp.log1p(jnp.maximum(fit, -0.5)), jnp.log(rest))
        else:
            fit = fit / (self.d * self.sigma2)
        prior = jnp.log(self.information(t)) - jnp.log(self.information(base))
        return 0.5 * (prior - self.d * (jnp.log1p(more).sum(-1) + fit))

    def derivative(self, t: Array) -> Array:
        """Return the derivative of the log likelihood with respect to log t."""
        f, rest, deviation = self.shares(t)
        kept = deviation if self.sigma2 is None else f
        prior = 2.0 * (kept * f * rest).sum(-1) / self.information(t)
        seen = self.y * rest
        if self.sigma2 is None:
            whole = jnp.maximum(seen.sum(-1), _precision(self.y.dtype).tiny)
            return 0.5 * (prior + self.d * self.n * (deviation * seen).sum(-1) / whole)
        return 0.5 * (prior - self.d * f.sum(-1) + (f * seen).sum(-1) / self.sigma2)


@partial(jax.jit, static_argnames="d")  # compiled once, even if its callers are not
def fit(
    points: Array,
    gradients: Array,
    precision: Array,
    slot: Array,
    *,
    d: int,
    L: Any = None,
    noise_std: Any = None,
) -> Fit:
    """Estimate slope and noise of a window, and average its gradients at one of its points.

    Args:
        points: (K, K), squared distances between points.
        gradients: (K, K), squared distances between gradients.
        precision: (K,), 1 / noise variance; 0 in slots that are empty.
        slot: which gradient is asked for.
        d: the number of coordinates.
        L: bound on the curvature, which caps the slope: s^2 d <= L^2. None for no cap.
        noise_std: sigma, if it is known.
    """
    K, dtype = precision.size, precision.dtype
    unknown = jnp.full_like(precision, jnp.inf, shape=())
    order = (slot + 1 + jnp.arange(K)) % K  # the one that is asked for comes last
    precision = precision[order]
    most = jnp.maximum(jnp.max(precision), _precision(dtype).tiny)
    share = precision / most  # 1 / v, for the least v of 1
    alone = Fit((jnp.arange(K) == K - 1).astype(dtype), 0.0 * most, unknown, unknown, unknown)
    sigma2 = None
    if noise_std is not None:
        sigma2 = jnp.asarray(noise_std, dtype) ** 2
        known = jnp.sqrt(sigma2)
        alone = alone._replace(std=known / jnp.sqrt(precision[-1]), noise_std=known)
    if K == 1:
        return alone
    used = precision > 0.0
    pairs = used[:, None] & used & ~jnp.eye(K, dtype=bool)
    points, gradients = (jnp.where(pairs, T[order][:, order], 0.0) for T in (points, gradients))
    # In units in which the largest distances are 1, squares stay in range.
    reach, unit = jnp.max(points), jnp.max(gradients)
    if sigma2 is not None:
        unit = jnp.maximum(unit, sigma2 / most)
    moved, differ = reach > 0.0, unit > 0.0
    reach, unit = jnp.where(moved, reach, 1.0), jnp.where(differ, unit, 1.0)
    found = _fit(
        points / reach,
        gradients / unit,
        share,
        d,
        None if L is None else jnp.asarray(L, dtype) ** 2 / d * (reach / unit),
        None if sigma2 is None else sigma2 / (most * unit),
    )
    zero = jnp.zeros_like(unknown)
    found = Fit(
        found.weights,
        found.gap,
        found.std * jnp.sqrt(unit * most / jnp.maximum(precision[-1], _precision(dtype).tiny)),
        found.noise_std * jnp.sqrt(unit * most),
        jnp.where(moved, found.curvature * jnp.sqrt(d * (unit / reach)), unknown),
    )
    found = _where(differ, found, Fit(share / share.sum(), zero, zero, zero, unknown))
    found = _where(used.sum() > 1, found, alone)
    return found._replace(weights=jnp.zeros_like(found.weights).at[order].set(found.weights))


def _fit(
    points: Array, gradients: Array, share: Array, d: int, cap: Array | None, sigma2: Array | None
) -> Fit:
    """Return the fit of the last observation in units in which the largest numbers are 1.

    Its standard error is that of an observation of variance 1, its curvature is s.

    Args:
        points: (K, K), squared distances, 0 where a slot is empty.
        gradients: (K, K), the same.
        share: (K,), 1 / v.
        d: the number of coordinates.
        cap: that of s^2, if there is one.
        sigma2: if it is known.
    """
    K, limits, used = share.size, _precision(share.dtype), share > 0.0
    root, mean = jnp.sqrt(share), share / share.sum()
    # The reflection I - 2 h h' turns v^-1/2 to the last axis; its other columns are Q.
    h = jnp.sqrt(mean) + (jnp.arange(K) == K - 1)
    h = h / jnp.sqrt((h * h).sum())
    # Those of empty slots are put below all others, so that they come first and do not mix.
    empty = jnp.diag(jnp.where(used[:-1], 0.0, -1.0).astype(share.dtype))
    kappa, U = jnp.linalg.eigh(_contrasts(points, root, h) + empty)
    R = dot(U.T, dot(_contrasts(gradients, root, h), U))
    n = jnp.maximum(used.sum() - 1, 1)
    real = jnp.arange(K - 1) >= K - 1 - n
    moved = real & (jnp.arange(K - 1) >= K - 1 - d)  # in d coordinates, no more than d can have
    kappa = jnp.where(moved & (kappa >= limits.flat * kappa[-1]), kappa, 0.0)
    y = jnp.where(real, jnp.maximum(jnp.diagonal(R), 0.0), 0.0)
    window = _Contrasts(kappa, y, real, n.astype(y.dtype), d, sigma2)
    limit = jnp.full_like(kappa[-1], jnp.inf) if cap is None else _capped_ratio(window, cap)
    best = _most_likely_ratio(window, limit)
    wider, silent = jnp.ones_like(best), jnp.zeros_like(best, bool)
    if sigma2 is None:
        # Student's t: halfway between what makes one and what makes 1.96 standard errors cover.
        df = d * window.n
        wider = (1.0 + 0.855 / df + 0.845 / (df * df)) ** 2
        least = lax.dynamic_index_in_dim(kappa, K - 1 - n, keepdims=False)
        silent = (least > 0.0) & (least > (1.0 - limits.alike) * kappa[-1])
        best = jnp.where(silent & jnp.isfinite(limit), limit, best)
    t = jnp.minimum(GUARD * best, limit)
    f = window.shares(t[None])[0]
    noise, F, C = _uncertainty(window, best, limit, f)
    a = -2.0 * h[-1] * dot(h[:-1], U)  # the last row of Q U
    square = wider * noise * mean[-1] + (a * (wider * F * a + dot(C * R, a) / d)).sum()
    w = jnp.append(dot(U, f * a), 0.0)
    w = mean + (w - 2.0 * h * (h * w).sum()) * (root / jnp.maximum(root[-1], limits.tiny))
    inside, found = window.noise(t[None]), window.noise(best[None])
    averaged = Fit(
        w,
        _residual(points, share, w, t * inside, inside),
        jnp.sqrt(jnp.maximum(square, 0.0)),
        jnp.sqrt(found),
        jnp.sqrt(best * found),
    )
    # Every contrast has moved equally far: noise and slope cannot be told apart, as with two
    # points. All of it may be noise.
    found = window.noise(jnp.zeros_like(t)[None])
    own = (jnp.arange(K) == K - 1).astype(w.dtype)
    unknown = jnp.full_like(t, jnp.inf)
    as_it_is = Fit(own, jnp.zeros_like(t), jnp.sqrt(found * wider), jnp.sqrt(found), unknown)
    return _where(silent & jnp.isinf(limit), as_it_is, averaged)


def _where(condition: Array, yes: Fit, no: Fit) -> Fit:
    return Fit(*(jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True)))


def _contrasts(squares: Array, root: Array, h: Array) -> Array:
    """Return Q' V^-1/2 X X' V^-1/2 Q, (K - 1, K - 1), of vectors with these squared distances."""
    M = -0.5 * squares * root[:, None] * root
    Mh = dot(M, h)
    outer = h[:, None] * Mh
    M = M - 2.0 * (outer + outer.T - 2.0 * (h * Mh).sum() * h[:, None] * h)
    return M[:-1, :-1]


def _leading(flags: Array) -> Array:
    """Return how many flags are set before the first that is not, along the last axis."""
    return jnp.where(flags.all(-1), flags.shape[-1], jnp.argmin(flags, axis=-1))


def _section(above: Callable[[Array], Array], low: Array, high: Array) -> tuple[Array, Array]:
    """Return a small interval of (low, high) at whose lower end `above` last holds."""
    steps = jnp.arange(_PARTS + 1).astype(low.dtype) / _PARTS

    def narrow(_: int | Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        at = low + (high - low) * steps
        held = _leading(above(at[1:-1, None]))  # the ends are known
        return at[held], at[held + 1]

    rounds = _precision(low.dtype).rounds
    found: tuple[Array, Array] = lax.fori_loop(0, rounds, narrow, (low, high))
    return found


def _capped_ratio(window: _Contrasts, top: Array) -> Array:
    """Return the ratio at which s^2 reaches its cap; infinite if it never does."""
    last = jnp.where(window.kappa[-1] > 0.0, window.kappa[-1], 1.0)

    def below(log: Array) -> Array:
        t = jnp.exp(log)
        return t[..., 0] * window.noise(t) <= top

    low, high = (math.log(ratio) - jnp.log(last) for ratio in (1e-12, 1e30))
    found, _ = _section(below, low, high)
    capped = (window.kappa[-1] > 0.0) & ~below(high[None])
    return jnp.where(capped, jnp.exp(found), jnp.inf)


def _most_likely_ratio(window: _Contrasts, limit: Array) -> Array:
    """Return the most likely ratio up to a limit."""
    moved = window.kappa > 0.0
    last = jnp.where(moved[-1], window.kappa[-1], 1.0)
    least = jnp.min(jnp.where(moved, window.kappa, last))
    high = jnp.log(jnp.minimum(1e16 / least, limit))
    low = jnp.minimum(math.log(1e-6) - jnp.log(last), high - 1.0)
    width = (high - low) / (NODES - 1)
    t = jnp.exp(low + width * jnp.arange(NODES).astype(low.dtype))[:, None]
    at = jnp.argmax(window.log_likelihood(t, jnp.zeros_like(t[:1]), t))
    ends = low + width * jnp.maximum(at - 1, 0), low + width * jnp.minimum(at + 1, NODES - 1)
    a, b = _section(lambda log: window.derivative(jnp.exp(log)) > 0.0, *ends)
    return jnp.where(moved[-1], jnp.exp(0.5 * (a + b)), 0.0)


def _uncertainty(
    window: _Contrasts, best: Array, limit: Array, f: Array
) -> tuple[Array, Array, Array]:
    """Average over the ratios that the window allows, in proportion to their likelihood.

    Returns the means of sigma^2, of sigma^2 f_k(t), and of (f_k(t) - f_k) (f_l(t) - f_l).
    """
    base = best[None]

    def chance(log: Array) -> Array:
        """Return the log likelihood of best exp(log), (..., 1), less that of the best."""
        return window.log_likelihood(base * jnp.exp(log), base, base * jnp.expm1(log))

    above = jnp.log(limit / jnp.where(best > 0.0, best, 1.0))
    ends = jnp.stack([jnp.full_like(best, _FARTHEST), jnp.clip(above, 0.0, _FARTHEST)])
    low, high = _edges(window, chance, ends)
    logs = -low + (low + high) * (jnp.arange(NODES).astype(low.dtype) / (NODES - 1))
    t = base * jnp.exp(logs)[:, None]
    weights = jnp.exp(jnp.minimum(chance(logs[:, None]), 0.0))
    # Rounding may leave none with any weight: then all count as the best.
    weights = jnp.where(weights.sum() > 0.0, weights, 1.0)
    weights = weights / weights.sum()
    at, sigma2 = window.shares(t)[0], weights * window.noise(t)
    change = at - f
    return sigma2.sum(), dot(sigma2, at), dot((weights[:, None] * change).T, change)


def _edges(window: _Contrasts, chance: Callable[[Array], Array], ends: Array) -> Array:
    """Return how far below and above the best, in log t, the likelihood vanishes, ends at most."""
    signs, ends = jnp.asarray([[-1.0], [1.0]], ends.dtype), ends[:, None]

    def likely(far: Array) -> Array:
        return chance((signs * far)[..., None]) > -NEGLIGIBLE

    first = 1.0 / jnp.sqrt(window.d * window.n)
    doublings = 2 + math.ceil(math.log2(_FARTHEST * math.sqrt(window.d * window.y.size)))
    far = jnp.minimum(first * 2.0 ** jnp.arange(doublings).astype(ends.dtype), ends)
    at = _leading((far < ends) & likely(far))[:, None]
    near = jnp.where(at > 0, jnp.take_along_axis(far, jnp.maximum(at - 1, 0), 1), 0.0)
    far = jnp.take_along_axis(far, at, 1)
    for _ in range(2):  # each does what three halvings would
        parts = near + (far - near) * (jnp.arange(9).astype(ends.dtype) / 8.0)
        at = _leading(likely(parts[:, 1:-1]))[:, None]
        near, far = (jnp.take_along_axis(parts, at + k, 1) for k in (0, 1))
    return far[:, 0]


def _residual(points: Array, share: Array, w: Array, slope2: Array, noise2: Array) -> Array:
    """Return how far S w is from a constant, relative to the norms of S and w."""
    used = share > 0.0
    entries = 0.5 * slope2 * (points[-1][:, None] + points[-1] - points)
    entries = jnp.where(used[:, None] & used, entries, 0.0)
    own = noise2 / jnp.where(used, share, 1.0)
    total = dot(entries, w) + own * w
    spread = jnp.max(jnp.where(used, total, -jnp.inf)) - jnp.min(jnp.where(used, total, jnp.inf))
    norm = jnp.max(jnp.where(used, own + jnp.abs(entries).sum(1), 0.0)) * jnp.max(jnp.abs(w))
    return jnp.where(norm > 0.0, spread / jnp.where(norm > 0.0, norm, 1.0), 0.0)
