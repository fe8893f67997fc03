"""The Gaussian model of a window in JAX: `coco_denoiser.models.gaussian`, for slots partly in use.

An empty slot has precision 0 and adds nothing. The contrasts are not cut down to size - 1 rows:
the constant is projected out instead, so that it adds nothing to any y, and only their number is
size - 1.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.models._likelihood import NEGLIGIBLE, NODES
from coco_denoiser.models.gaussian import GUARD


class Contrasts(NamedTuple):
    """What the likelihood depends on: kappa and y, (K,), their number n, d, and sigma^2 or NaN."""

    kappa: Array
    y: Array
    n: Array
    d: Array
    sigma2: Array


class Estimate(NamedTuple):
    """The newest gradient's weights (K,), and what is known about it."""

    weights: Array
    gap: Array
    std: Array
    noise_std: Array
    curvature: Array


def newest(
    point: Array,
    gradient: Array,
    precision: Array,
    slot: Array,
    d: int,
    *,
    cap: Array,
    noise_std: Array,
) -> Estimate:
    """Average the gradients of a window at the point of one slot.

    Args:
        point: (K, K), squared distances between points.
        gradient: (K, K), squared distances between gradients.
        precision: (K,), inverse noise variances; 0 for empty slots.
        slot: the slot asked for.
        d: the number of coordinates.
        cap: bound on s sqrt(d), infinite for none.
        noise_std: sigma, NaN if it is not known.
    """
    K, number = precision.size, point.dtype
    used = precision > 0.0
    both = used[:, None] & used[None, :]
    point, gradient = jnp.where(both, point, 0.0), jnp.where(both, gradient, 0.0)
    most = jnp.max(precision)
    root = jnp.sqrt(precision / most)
    n = jnp.maximum(used.sum() - 1, 1).astype(number)
    known = ~jnp.isnan(noise_std)
    reach = jnp.max(point)
    unit = jnp.maximum(jnp.max(gradient), jnp.where(known, noise_std**2 / most, 0.0))
    x_unit, g_unit = jnp.where(reach > 0.0, reach, 1.0), jnp.where(unit > 0.0, unit, 1.0)
    share = root**2 / jnp.sum(root**2)
    constant = jnp.sqrt(share)
    kappa, U = jnp.linalg.eigh(_projected(point / x_unit, root, constant))
    MG = _projected(gradient / g_unit, root, constant)
    R = U.T @ MG @ U
    flat = 50.0 * K * _eps(number)
    kappa = jnp.where(kappa > flat * kappa[-1], kappa, 0.0)
    c = Contrasts(
        kappa,
        jnp.maximum(jnp.diagonal(R), 0.0),
        n,
        jnp.asarray(d, number),
        jnp.where(known, noise_std**2 / most / g_unit, jnp.nan),
    )
    limit = _capped(c, cap**2 / d * x_unit / g_unit)
    moving = kappa > 0.0
    least = jnp.min(jnp.where(moving, kappa, jnp.inf))
    # All contrasts have moved equally far, as with two points: noise or slope, who can tell.
    silent = ~known & (moving.sum() >= n) & (least > (1.0 - 1e-4) * kappa[-1])
    best = jnp.where(silent, limit, _most_likely(c, jnp.where(jnp.isfinite(limit), limit, jnp.inf)))
    raw = silent & jnp.isinf(limit)
    best = jnp.where(raw, 1.0, best)
    t = jnp.minimum(GUARD * best, limit)
    f = t * kappa / (1.0 + t * kappa)
    noise, F, C = _uncertainty(c, best, limit, f)
    # Row `slot` of A = V^-1/2 times eigenvectors; directions that are not contrasts have f = 0.
    a = lax.dynamic_index_in_dim(U, slot, keepdims=False)
    own, mine = share[slot], root[slot]
    wider = jnp.where(known, 1.0, (1.0 + 0.855 / (c.d * n) + 0.845 / (c.d * n) ** 2) ** 2)
    variance = wider * (noise * own + jnp.sum(F * a * a)) + a @ (C * R) @ a / c.d
    variance = jnp.where(raw, wider * _noise(c, jnp.zeros((), number)), variance)
    weights = share + root / mine * (U @ (f * a))
    here = jnp.arange(K) == slot
    still = unit == 0.0
    weights = jnp.where(raw | (n < 1.5) & ~known & ~jnp.isfinite(cap) & (reach > 0.0),
                        here.astype(number), weights)  # fmt: skip
    alone = used.sum() < 2
    weights = jnp.where(alone, here.astype(number), jnp.where(used, weights, 0.0))
    level = _noise(c, jnp.where(raw, 0.0, best))
    level, variance = (jnp.where(still, 0.0, v) for v in (level, variance))
    scale = jnp.sqrt(g_unit * most)
    std = scale * jnp.sqrt(jnp.maximum(variance, 0.0) / most) / mine
    std = jnp.where(alone, noise_std / jnp.sqrt(precision[slot]), std)
    slope = jnp.sqrt(best * level * g_unit / x_unit * c.d)
    at = _noise(c, t)
    gap = _residual(point / x_unit, root, weights, slot, t * at, at, used)
    return Estimate(
        weights,
        jnp.where(raw | alone, 0.0, gap),
        std,
        jnp.where(alone, noise_std, scale * jnp.sqrt(level)),
        jnp.where(raw | alone | still | (reach == 0.0), jnp.nan, slope),
    )


def _eps(number: Any) -> float:
    return 2.0**-52 if number == jnp.float64 else 2.0**-23


def _projected(squares: Array, root: Array, constant: Array) -> Array:
    """Return P V^-1/2 X X' V^-1/2 P, P projecting the constant out."""
    M = -0.5 * squares * root[:, None] * root
    along = M @ constant
    return (
        M
        - constant[:, None] * along
        - along[:, None] * constant
        + (constant @ along) * constant[:, None] * constant
    )


def _noise(c: Contrasts, t: Array) -> Array:
    found = jnp.sum(c.y / (1.0 + t * c.kappa)) / (c.d * c.n)
    return jnp.where(jnp.isnan(c.sigma2), found, c.sigma2)


def _log_likelihood(c: Contrasts, log_t: Array) -> Array:
    a = jnp.exp(log_t) * c.kappa
    f = a / (1.0 + a)
    tiny = 1e-37
    total = jnp.maximum(jnp.sum(c.y / (1.0 + a)), tiny)
    unknown = jnp.isnan(c.sigma2)
    fit = jnp.where(unknown, c.d * c.n * jnp.log(total), total / c.sigma2)
    information = jnp.sum(f * f) - jnp.where(unknown, jnp.sum(f) ** 2 / c.n, 0.0)
    log_det = jnp.sum(jnp.log1p(a))
    return 0.5 * (jnp.log(jnp.maximum(information, tiny)) - c.d * log_det - fit)


def _derivative(c: Contrasts, log_t: Array) -> Array:
    a = jnp.exp(log_t) * c.kappa
    f, g = a / (1.0 + a), 1.0 / (1.0 + a)
    tiny = 1e-37
    unknown = jnp.isnan(c.sigma2)
    total, pull = jnp.maximum(jnp.sum(c.y * g), tiny), jnp.sum(f * c.y * g)
    pull = jnp.where(unknown, c.d * c.n * pull / total, pull / c.sigma2)
    one, two, d_one, d_two = jnp.sum(f), jnp.sum(f * f), jnp.sum(f * g), 2.0 * jnp.sum(f * f * g)
    information = two - jnp.where(unknown, one * one / c.n, 0.0)
    change = d_two - jnp.where(unknown, 2.0 * one * d_one / c.n, 0.0)
    return 0.5 * (change / jnp.maximum(information, tiny) - c.d * one + pull)


def _capped(c: Contrasts, top: Array) -> Array:
    """Return the ratio at which s^2 reaches its cap; infinite if it never does."""
    last = jnp.where(c.kappa[-1] > 0.0, c.kappa[-1], 1.0)
    span = 27.0 if c.y.dtype == jnp.float32 else 69.0

    def halve(_: int | Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        fits = jnp.exp(middle) * _noise(c, jnp.exp(middle)) <= top
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    start = -jnp.log(last)
    high = start + span
    free = jnp.isinf(top) | (jnp.exp(high) * _noise(c, jnp.exp(high)) <= top)
    low = lax.fori_loop(0, 60, halve, (start - 27.0, high))[0]
    return jnp.where(free | (c.kappa[-1] <= 0.0), jnp.inf, jnp.exp(low))


def _most_likely(c: Contrasts, limit: Array) -> Array:
    """Return the most likely ratio up to a limit."""
    last = jnp.where(c.kappa[-1] > 0.0, c.kappa[-1], 1.0)
    least = jnp.min(jnp.where(c.kappa > 0.0, c.kappa, last))
    wide = 16.0 if c.y.dtype == jnp.float64 else 8.0
    low = math.log(1e-6) - jnp.log(last)
    high = jnp.minimum(wide * math.log(10.0) - jnp.log(least), jnp.log(limit))
    low = jnp.minimum(low, high - 1.0)
    grid = low + (high - low) * jnp.arange(NODES) / (NODES - 1)
    at = jnp.argmax(jax.vmap(lambda u: _log_likelihood(c, u))(grid))
    ends = grid[jnp.maximum(at - 1, 0)], grid[jnp.minimum(at + 1, NODES - 1)]

    def halve(_: int | Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        up = _derivative(c, middle) > 0.0
        return jnp.where(up, middle, ends[0]), jnp.where(up, ends[1], middle)

    a, b = lax.fori_loop(0, 48, halve, ends)
    return jnp.where(c.kappa[-1] > 0.0, jnp.exp(0.5 * (a + b)), 0.0)


def _uncertainty(c: Contrasts, best: Array, limit: Array, f: Array) -> tuple[Array, Array, Array]:
    """Average over the ratios that the window allows: sigma^2, sigma^2 f, and (f - f) (f - f)'."""
    start = jnp.log(jnp.where(best > 0.0, best, 1.0))
    low = start - _edge(c, start, -1.0, jnp.asarray(30.0, start.dtype))
    high = start + _edge(c, start, 1.0, jnp.minimum(30.0, jnp.log(limit) - start))
    grid = low + (high - low) * jnp.arange(NODES) / (NODES - 1)
    logs = jax.vmap(lambda u: _log_likelihood(c, u))(grid)
    chance = jax.nn.softmax(logs)
    ratios = jnp.where(best > 0.0, jnp.exp(grid), 0.0)
    noise = chance * jax.vmap(lambda t: _noise(c, t))(ratios)
    at = ratios[:, None] * c.kappa / (1.0 + ratios[:, None] * c.kappa)
    change = at - f
    return noise.sum(), noise @ at, (chance[:, None] * change).T @ change


def _edge(c: Contrasts, start: Array, sign: float, end: Array) -> Array:
    """Return how far from the best log ratio, on one side, chances are nil."""
    least = _log_likelihood(c, start) - NEGLIGIBLE

    def likely(far: Array) -> Array:
        return _log_likelihood(c, start + sign * far) > least

    first = jnp.minimum(1.0 / jnp.sqrt(c.d * c.n), end)
    near, far = lax.while_loop(
        lambda ends: (ends[1] < end) & likely(ends[1]),
        lambda ends: (ends[1], jnp.minimum(2.0 * ends[1], end)),
        (jnp.zeros_like(first), first),
    )

    def halve(_: int | Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        more = likely(middle)
        return jnp.where(more, middle, ends[0]), jnp.where(more, ends[1], middle)

    found: Array = lax.fori_loop(0, 6, halve, (near, far))[1]
    return found


def _residual(
    squares: Array, root: Array, w: Array, slot: Array, slope2: Array, noise2: Array, used: Array
) -> Array:
    """Return how far S w is from a constant, relative to the norms of S and w."""
    row = lax.dynamic_index_in_dim(squares, slot, keepdims=False)
    S = 0.5 * slope2 * (row[:, None] + row - squares)
    S = jnp.where(used[:, None] & used, S, 0.0)
    own = noise2 * jnp.where(used, 1.0 / jnp.where(used, root, 1.0) ** 2, 0.0)
    total = S @ w + own * w
    norm = jnp.max(jnp.abs(S).sum(1) + own) * jnp.max(jnp.abs(w))
    high, low = (jnp.max(jnp.where(used, sign * total, -jnp.inf)) for sign in (1.0, -1.0))
    return (high + low) / jnp.where(norm > 0.0, norm, 1.0)
