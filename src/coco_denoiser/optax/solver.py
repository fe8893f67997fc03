"""Exact weights of one window in pure JAX: an interior-point method with static shapes.

Solves, for K residuals h_i with precisions n_i and bounds rho_ml on all P = K (K - 1) / 2 pairs,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml,

in arrays whose shapes never change, so that it can be compiled, batched by vmap, and run in
float32. The unknowns of a pair are its force f = lam rho and its relative slack
sigma = (1 - ||u||^2) / 2, with u = (phi_m - phi_l) / rho. With B (P, K) the incidence matrix,
N = diag(n) and M = (N + B' diag(lam) B)^-1, the optimum is the end, tau = 0, of the central path

    phi = M N h,    sigma_e = (1 - ||u_e||^2) / 2,    f_e sigma_e = tau.

Mehrotra's predictor and corrector follow it from a rough start. Their linear system is
diag(sigma) + R * (u u'), where R = lam^1/2 B M B' lam^1/2 has eigenvalues in [0, 1]: its entries
are of order 1 whatever the bounds are. Pairs that are not constrained get a bound that nothing
reaches. Points that coincide are not merged: their bound is raised to what the precision can
resolve, and M comes from an elimination without subtractions, which large multipliers do not harm.
"""

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

_Point: TypeAlias = tuple[Array, Array, Array]  # forces (P,), slacks (P,), phi (K, q)

_LEAST = 0.05  # distance for which a pair has a force at the start
_INSIDE = 1.025  # how far inside its bounds the start is
_GROWTH, _FLOOR = 2.0, 0.2  # a step may double the residual, or lift it to the floor
_SHORTEST = 2.0**-8  # a step so short is taken anyway
_STEPS = 100  # limit on steps and halvings
_PATIENCE = 10  # steps without progress after which rounding is to blame


class Precision(NamedTuple):
    """What a floating-point format can resolve, relative to the largest residual."""

    eps: float  # the distance from 1 to the next number
    closest: float  # points whose bound is below this are held at this distance
    rounding: float  # a distance is known up to this
    collinear: float  # a detour longer by no more than this is not counted as one
    end: float  # where the central path ends
    floor: float  # gaps are relative to this share of the trivial answer's value at least
    tol: float  # relative gap to reach unless the caller says otherwise


def precision(dtype: Any) -> Precision:
    """Return the constants of float64 or float32."""
    if dtype == jnp.float64:
        return Precision(2.0**-52, 3e-8, 4e-15, 1e-12, 1e-19, 1e-10, 1e-9)
    return Precision(2.0**-23, 3e-5, 1e-6, 2e-6, 1e-11, 1e-3, 1e-6)


@lru_cache
def pairs(K: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the first and second member of every pair, and the incidence matrix (P, K)."""
    # 32 bits wide, so that they mean the same with and without 64-bit mode.
    first, second = (index.astype(np.int32) for index in np.triu_indices(K, 1))
    B = np.zeros((first.size, K))
    B[np.arange(first.size), first] = 1.0
    B[np.arange(first.size), second] = -1.0
    return first, second, B


def _dot(a: Array, b: Array) -> Array:
    """Multiply matrices in full precision, also where hardware prefers less."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _inverse(lam: Array, n: Array) -> Array:
    """Return M = (N + Laplacian(lam))^-1, (K, K), for multipliers (P,) and precisions (K,).

    Nodes are eliminated one by one, as by Gauss and Jordan, in place. As in the elimination of
    Grassmann, Taksar and Heyman, every number is non-negative and only added to, so every entry
    of M has almost all its digits, however large the multipliers are.
    """
    K = n.size
    first, second, _ = pairs(K)
    place = np.full((K, K), lam.shape[0], np.int32)
    place[first, second] = place[second, first] = np.arange(first.size)
    a: Array = jnp.append(lam, jnp.zeros(1, lam.dtype))[place]
    index = jnp.arange(K)

    def eliminate(k: int | Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, rest = carry
        here = index == k
        row, column = jnp.where(here, 1.0, a[k]), jnp.where(here, 0.0, a[:, k])
        share = 1.0 / (rest[k] + jnp.where(index > k, row, 0.0).sum())
        row = row * share
        a = jnp.where(here, 0.0, a) + column[:, None] * row
        return jnp.where(here[:, None], row, a), rest + column * (share * rest[k])

    a, _ = lax.fori_loop(0, K, eliminate, (a, n))
    return a


def _needed(K: int, rho: Array, on: Array, limits: Precision) -> Array:
    """Return the pairs that no other pairs imply: dependent ones would make the system singular.

    - Of points that coincide, the first stands for all; each other is tied to one before it.
    - A pair (m, l) is implied if some p has rho_mp + rho_pl <= rho_ml, both parts shorter.
      Without "shorter", near-duplicates would imply each other away.
    """
    first, second, _ = pairs(K)
    table = jnp.full((K, K), jnp.inf, rho.dtype)
    table = table.at[first, second].set(jnp.where(on, rho, jnp.inf))
    table = jnp.minimum(table, table.T)
    same = (table <= limits.closest) & np.tri(K, k=-1, dtype=bool)
    single = ~same.any(1)
    leader = jnp.where(single, np.arange(K), same.argmax(1))
    part = jnp.where(single[:, None] & single, table, jnp.inf)
    to, on_from, direct = part[:, :, None], part[None, :, :], part[:, None, :]
    shorter = direct * (1.0 - 1e3 * limits.collinear)
    detour = (to + on_from <= direct * (1.0 + limits.collinear)) & jnp.isfinite(direct)
    implied = (detour & (to < shorter) & (on_from < shorter)).any(1)
    keep = (single[:, None] & single & ~implied) | (leader[None, :] == np.arange(K)[:, None])
    return on & keep[first, second]


class _State(NamedTuple):
    """Where the method stands, the step that it tries next, and the best answer so far."""

    point: _Point
    step: _Point
    scale: Array  # of the step; 0 to factor the system again where it stands
    residual: Array
    ridge: Array  # in units of the rounding in the linear system
    tau: Array  # the least so far
    age: Array  # steps since the gap or tau has become much less
    trials: Array
    gap: Array
    W: Array


@jax.jit  # so that it is compiled once where the caller is not compiled
def weights(
    h: Array, n: Array, apart: Array, rho: Array, on: Array, *, tol: float | Array
) -> tuple[Array, Array]:
    """Return W (K, K), so that phi = W h, and the relative duality gap.

    Args:
        h: (K, q), residuals in any orthogonal coordinates, sum_i n_i h_i zero, none above 1.
        n: (K,), their precisions; 0 in empty slots, whose residuals are zero.
        apart: (P,), their distances, as accurate as they are known.
        rho: (P,), their bounds.
        on: (P,), False for pairs that take no part.
        tol: relative duality gap to reach.
    """
    K, limits = h.shape[0], precision(h.dtype)
    first, second, _ = pairs(K)
    active = jnp.any(on & (apart > rho * (1.0 + limits.rounding) + limits.rounding))
    rho = jnp.where(_needed(K, rho, on, limits), rho, jnp.inf)
    rho = jnp.clip(rho, limits.closest, 4.0 * apart.max(initial=1.0))
    N = jnp.where(n > 0.0, n, 1.0)[:, None]
    mean = n / jnp.maximum(n.sum(), limits.eps)
    least = limits.floor * (N * h**2).sum()

    def edges(phi: Array) -> Array:
        return (phi[first] - phi[second]) / rho[:, None]

    def tried(state: _State) -> _State:
        f, sigma, phi = (
            v + jnp.where(state.scale > 0.0, state.scale * dv, 0.0)
            for v, dv in zip(state.point, state.step, strict=True)
        )
        M = _inverse(f / rho, N[:, 0])
        hat = _dot(M, N * h)
        v = edges(hat)
        ratio = jnp.sqrt((v * v).sum(1))
        # hat, drawn towards the mean until every pair fits, is an answer; the gap is that of it.
        shrink = 1.0 / jnp.maximum(jnp.max(ratio - limits.rounding / rho), 1.0)
        gap = 0.5 * (1.0 - shrink) ** 2 * (N * hat**2).sum()
        gap += (f * rho * ratio * jnp.abs(1.0 - shrink * ratio)).sum()
        gap /= 0.5 * jnp.maximum((N * (shrink * hat - h) ** 2).sum(), least)

        begins = state.trials == 0
        phi = jnp.where(begins, shrink / _INSIDE * hat, phi)
        u = edges(phi)
        slack = 0.5 * (1.0 - (u * u).sum(1))
        sigma = jnp.where(begins, slack, sigma)
        off = jnp.sqrt(((u - v) ** 2).sum(1))
        residual = jnp.max(jnp.maximum(jnp.abs(sigma - slack), off))
        fine = jnp.isfinite(residual)
        in_bounds = residual <= jnp.maximum(_GROWTH * state.residual, _FLOOR)
        taken = fine & (in_bounds | (state.scale <= _SHORTEST))
        # A system that rounding has made indefinite has no factor: try again with a larger ridge.
        ridge = jnp.where(fine, jnp.maximum(0.1 * state.ridge, 1.0), 300.0 * state.ridge)
        tau = (f * sigma).mean()
        # The gap of hat may well rise on the way while the path is followed.
        progress = (gap < 0.5 * state.gap) | (taken & (tau < 0.5 * state.tau))
        best = gap < state.gap

        def if_taken(new: _Point, old: _Point) -> _Point:
            a, b, c = (jnp.where(taken, *both) for both in zip(new, old, strict=True))
            return a, b, c

        return _State(
            if_taken((f, sigma, phi), state.point),
            if_taken(_newton((f, sigma, phi), M, hat, u, v, rho, tau, ridge), state.step),
            jnp.where(taken, 1.0, jnp.where(fine, 0.5 * state.scale, 0.0)),
            jnp.where(taken, residual, state.residual),
            ridge,
            jnp.where(taken, jnp.minimum(tau, state.tau), state.tau),
            jnp.where(progress, 0, state.age + taken),
            state.trials + 1,
            jnp.where(best, gap, state.gap),
            jnp.where(best, shrink * M * n + (1.0 - shrink) * mean, state.W),
        )

    def unfinished(state: _State) -> Array:
        more = (state.gap > tol) & (state.age < _PATIENCE) & (state.trials < _STEPS)
        return active & more

    n_first, n_second = N[first, 0], N[second, 0]
    # What would hold K alike at a share of the distances that they have now.
    pull = 2.0 / K * n_first * n_second / (n_first + n_second)
    f = pull * jnp.maximum(apart, _LEAST)
    # Made from the residuals, so that under shard_map they vary over the devices as these do.
    zero = 0.0 * (h.sum() + f.sum() + rho.sum())
    none, new = zero + jnp.inf, zero.astype(int)
    point = f + zero, zero + jnp.ones_like(f), zero + h
    still = jax.tree.map(jnp.zeros_like, point)
    same = zero + jnp.eye(K, dtype=h.dtype)
    start = _State(point, still, zero, none, zero + 1.0, none, new, new, none, same)
    end = lax.while_loop(unfinished, tried, start)
    return end.W, jnp.where(active, end.gap, 0.0)


def _newton(
    point: _Point,
    M: Array,
    hat: Array,
    u: Array,
    v: Array,
    rho: Array,
    tau: Array,
    ridge: Array,
) -> _Point:
    """Return Mehrotra's step from a point, with forces and slacks kept positive.

    M and hat are those of its forces, u = B phi / rho, v = B hat / rho, tau the mean of f sigma.
    """
    f, sigma, phi = point
    limits, B = precision(f.dtype), jnp.asarray(pairs(M.shape[0])[2], f.dtype)
    root = jnp.sqrt(f / rho)
    R = _dot(_dot(B, M), B.T) * root[:, None] * root
    # What rounding leaves of a difference of entries of M is magnified by the multiplier.
    lost = limits.eps * (8.0 + 2.0 * f.size**0.5 * root * root)
    system = R * _dot(u, u.T) + jnp.diag(sigma + ridge * lost)
    factor = lax.linalg.cholesky(system, symmetrize_input=False)
    target = 0.5 * (1.0 + (u * u).sum(1)) - (u * v).sum(1)

    def direction(aim: Array) -> tuple[Array, Array]:
        x = (aim / root - root * rho * target)[:, None]
        for transposed in (False, True):
            x = lax.linalg.triangular_solve(
                factor, x, left_side=True, lower=True, transpose_a=transposed
            )
        df = root * x[:, 0]
        return df, (aim - sigma * df) / f - sigma

    df, ds = direction(jnp.zeros_like(f))
    affine = ((f + _longest(f, df, 1.0) * df) * (sigma + _longest(sigma, ds, 1.0) * ds)).mean()
    df, ds = direction(jnp.maximum((affine / tau) ** 3 * tau, limits.end) - df * ds)
    # As close to the boundary as the path allows: 0.9 far out, 1 - tau near the end.
    keep = jnp.clip(1.0 - tau, 0.9, 1.0 - 4.0 * limits.eps)
    dphi = hat - phi - _dot(M, _dot(B.T, df[:, None] * u))
    step = _longest(sigma, ds, keep)
    return _longest(f, df, keep) * df, step * ds, step * dphi


def _longest(x: Array, dx: Array, keep: Array | float) -> Array:
    """Return the step, at most 1, that keeps x + step dx positive by a share of its way."""
    ratio = jnp.where(dx < 0.0, -keep * x / jnp.where(dx < 0.0, dx, 1.0), 1.0)
    return jnp.min(ratio, initial=1.0)
