"""Exact multipliers of one window in pure JAX: an interior-point method with static shapes.

Solves, for K residuals h_i with precisions n_i and bounds rho_ml on all P = K (K - 1) / 2 pairs,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Newton's steps follow a primal-dual path, for arrays whose shapes never change, so that the method
can be compiled, batched by vmap, and run in float32:

- all pairs stay in the linear system; pairs of empty slots have no force and take no part;
- the unknowns of a pair are its force f = lam rho and its relative slack sigma, which is
  (1 - ||u||^2) / 2, u = (phi_m - phi_l) / rho, at the end. phi is stationary for lam all the way.
  The system is diag(sigma) + R * (u u'), where R = lam^1/2 B M B' lam^1/2 has eigenvalues in
  [0, 1]: its entries are of order 1 whatever the bounds are;
- points too close for the precision stay separate, tied by a large multiplier, which is no
  unknown: M comes from an elimination without subtractions, which large multipliers do not harm.

Tables (K, K) come in and go out; in between, what belongs to a pair is in vectors (P,).

Letters: B (P, K) is the incidence matrix, N = diag(n), M = (N + B' diag(lam) B)^-1, phi = M N h,
and tau omega_e = f_e sigma_e the central path.
"""

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import cho_solve
from jax.typing import DTypeLike
from numpy.typing import NDArray

from coco_denoiser.optax.tree import Number

Indices: TypeAlias = NDArray[np.int32]

# The multiplicative start ends when no pair exceeds its bound by more than _READY, and none that
# has a share _STRONG of the largest force is pulled to less than a share _LOOSE of its bound.
_ROUNDS, _READY, _STRONG, _LOOSE = 30, 1.05, 0.1, 0.7
_LEAST = 1e-3  # the least force that the path starts with, as a share of the largest
_INSIDE = 0.0125  # the least slack that it starts with
_CENTRE = 0.1  # by how much a step aims to bring the end of the path nearer
_STEPS = 40  # limit on the steps


class Precision(NamedTuple):
    """What a floating-point format can resolve, relative to the largest residual."""

    eps: float  # the distance from 1 to the next number
    closest: float  # points whose bound is below this are held together
    rounding: float  # a distance is known up to this
    collinear: float  # a detour longer by no more than this is not counted as one
    end: float  # where the central path ends
    tol: float  # relative gap to reach unless the caller says otherwise


def precision(dtype: DTypeLike) -> Precision:
    """Return the constants of float64 or float32."""
    if dtype == jnp.float64:
        return Precision(2.0**-52, 3e-8, 4e-15, 1e-12, 1e-18, 1e-9)
    return Precision(2.0**-23, 3e-5, 1e-6, 2e-6, 1e-10, 1e-6)


@lru_cache
def pairs(K: int) -> tuple[Indices, Indices, Indices]:
    """Return the first and second member of every pair, and the incidence matrix (P, K)."""
    # 32 bits wide, so that they mean the same with and without 64-bit mode.
    first, second = (index.astype(np.int32) for index in np.triu_indices(K, 1))
    B = np.eye(K, dtype=np.int32)
    return first, second, B[first] - B[second]


class _Point(NamedTuple):
    """Multipliers, and what is stationary for them."""

    lam: Array  # (P,)
    M: Array  # (K, K)
    phi: Array  # (K, q)
    ratio: Array  # (P,), distances relative to their bounds
    shrink: Array  # the factor by which phi must shrink for every pair to fit
    gap: Array  # the relative gap of phi, shrunk


# Point, relative slacks, the best point so far, and steps.
_Carry: TypeAlias = tuple[_Point, Array, _Point, Array]


class _Problem(NamedTuple):
    h: Array  # (K, q)
    n: Array  # (K,)
    rho: Array  # (P,)
    on: Array  # (P,), the pairs whose forces are unknowns
    ties: Array  # (P,), multipliers that are none

    def at(self, lam: Array) -> _Point:
        """Return the point of multipliers (P,)."""
        n = self.n[:, None]
        M = _inverse(_table(lam + self.ties, self.n.size), self.n)
        phi = M @ (n * self.h)
        w = jnp.sqrt((_edges(phi) ** 2).sum(-1))
        known = jnp.where(self.on, (w - precision(w.dtype).rounding) / self.rho, 0.0)
        shrink = 1.0 / jnp.max(known, initial=1.0)
        gap = 0.5 * (1.0 - shrink) ** 2 * (n * phi**2).sum()
        gap += (lam * w * jnp.abs(self.rho - shrink * w)).sum()
        value = 0.5 * (n * (shrink * phi - self.h) ** 2).sum()
        return _Point(lam, M, phi, w / self.rho, shrink, gap / jnp.where(value > 0.0, value, 1.0))


def solve(h: Array, n: Array, apart: Array, bounds: Array, *, tol: Number) -> tuple[Array, Array]:
    """Return the weights W of the answer W h and its multipliers, both (K, K).

    Args:
        h: (K, q), residuals in any orthogonal coordinates, sum_i n_i h_i zero, none above 1.
        n: (K,), their precisions; 0 for slots that are empty, whose residuals are zero.
        apart: (K, K), their distances, as accurate as they are known; 0 for empty slots.
        bounds: (K, K), how far apart each two may be.
        tol: relative duality gap to reach, by the solver's own account.
    """
    K, used, limits = n.size, n > 0.0, precision(h.dtype)
    pair = used[:, None] & used
    active = jnp.any(apart > bounds * (1.0 + limits.rounding) + limits.rounding)
    on, apart, rho = _of_pairs(jnp.stack([_needed(bounds, pair, limits), apart, bounds]))
    needed = on > 0.0
    on = needed & (rho > limits.closest)
    ties = jnp.where(needed & ~on, 16.0 / limits.eps * n.max(), 0.0)  # what is left is rounding
    rho = jnp.clip(rho, limits.closest, 4.0 * apart.max(initial=1.0))
    problem = _Problem(h, jnp.where(used, n, 1.0), rho, on, ties)
    with jax.default_matmul_precision("highest"):  # also where hardware prefers less
        start = _multiplicative(problem, apart, active)
        best = _interior_point(problem, start, active, tol)
    # Drawn towards the mean until every pair fits.
    W = best.shrink * best.M * n + (1.0 - best.shrink) * (n / n.sum())
    lam = jnp.where(active, _table(best.lam + ties, K), 0.0)
    return jnp.where(active, W, np.eye(K, dtype=W.dtype)), lam


def _inverse(lam: Array, n: Array) -> Array:
    """Return M = (N + Laplacian(lam))^-1, (K, K), for multipliers (K, K) and precisions (K,).

    Nodes are eliminated one by one, as by Gauss and Jordan, in place. As in the elimination of
    Grassmann, Taksar and Heyman, every number is non-negative and only added to, so every entry
    of M has almost all its digits, however large the multipliers are.
    """
    index = jnp.arange(n.size)

    def eliminate(k: int | Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, rest = carry
        here = index == k
        row, column = jnp.where(here, 1.0, a[k]), jnp.where(here, 0.0, a[:, k])
        share = 1.0 / (rest[k] + jnp.where(index > k, row, 0.0).sum())
        row = row * share
        a = jnp.where(here, 0.0, a) + column[:, None] * row
        return jnp.where(here[:, None], row, a), rest + column * (share * rest[k])

    M: Array = lax.fori_loop(0, n.size, eliminate, (lam, n))[0]
    return M


def _needed(bounds: Array, pair: Array, limits: Precision) -> Array:
    """Return the pairs that no other pairs imply: dependent ones would make the system singular.

    - Of points that coincide, the first stands for all; each other stays with its nearest before.
    - A pair (m, l) is implied if some p has rho_mp + rho_pl <= rho_ml, both parts shorter.
      Without "shorter", near-duplicates would imply each other away.
    """
    index = np.arange(len(bounds))
    bounds = jnp.where(pair, bounds, jnp.inf)
    earlier = jnp.where(index[:, None] > index, bounds, jnp.inf)
    single = earlier.min(1) > limits.closest
    leader = jnp.where(single, index, earlier.argmin(1))
    part = jnp.where(single[:, None] & single & (index[:, None] != index), bounds, jnp.inf)
    to, on_from, whole = part[:, :, None], part[None, :, :], part[:, None, :]
    detour = (to + on_from <= whole * (1.0 + limits.collinear)) & (whole < jnp.inf)
    shorter = whole * (1.0 - 1e3 * limits.collinear)
    implied = (detour & (to < shorter) & (on_from < shorter)).any(1)
    keep = (single[:, None] & single & ~implied) | (leader == index[:, None])
    return pair & keep


def _multiplicative(problem: _Problem, apart: Array, active: Array) -> _Point:
    """Improve lam from a rough guess until the pairs with forces are near their bounds."""
    rho, on = problem.rho, problem.on
    first, second, _ = pairs(problem.n.size)
    a, b = problem.n[first], problem.n[second]
    # What would be right if all pairs were alike.
    guess = 2.0 / problem.n.size * jnp.maximum(apart / rho - 1.0, 0.01) * (a * b / (a + b))

    def unfinished(carry: tuple[_Point, Array, Array]) -> Array:
        point, _, rounds = carry
        force = point.lam * rho
        strong = on & (force >= _STRONG * jnp.max(force, initial=0.0))
        far = (point.shrink < 1.0 / _READY) | jnp.any(strong & (point.ratio < _LOOSE))
        return active & far & (rounds < _ROUNDS)

    def improve(carry: tuple[_Point, Array, Array]) -> tuple[_Point, Array, Array]:
        point, last, rounds = carry
        # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but oscillates on such
        # a pair, and is given up there.
        ratio = jnp.maximum(point.ratio, 0.1)
        swings = (ratio - 1.0) * (last - 1.0) < 0.0
        return problem.at(point.lam * jnp.where(swings, ratio, ratio * ratio)), ratio, rounds + 1

    start = problem.at(jnp.where(on, guess, 0.0)), jnp.ones_like(rho), jnp.zeros((), int)
    found: _Point = lax.while_loop(unfinished, improve, start)[0]
    return found


def _interior_point(problem: _Problem, start: _Point, active: Array, tol: Number) -> _Point:
    """Follow the central path from a point to its end; return the best point on the way."""
    force = start.lam * problem.rho
    least = _LEAST * jnp.max(force, initial=0.0)
    omega = jnp.where(problem.on, jnp.maximum(force, least), 0.0)
    sigma = jnp.maximum(0.5 * (1.0 - start.ratio**2), _INSIDE)
    end = 2.0 * precision(omega.dtype).end * omega.sum()

    def unfinished(carry: _Carry) -> Array:
        point, sigma, best, steps = carry
        left = (point.lam * problem.rho * sigma).sum()
        return active & ~(best.gap <= tol) & (left > end) & (steps < _STEPS)

    def advance(carry: _Carry) -> _Carry:
        point, sigma, best, steps = carry
        point, sigma = _step(problem, point, sigma, omega)
        # The gap may well rise on the way, and a system that rounding has made indefinite has no
        # factor, but NaN.
        better = point.gap < best.gap
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), point, best)
        return point, sigma, best, steps + 1

    first = start._replace(lam=omega / problem.rho)
    carry: _Carry = first, sigma, start, jnp.zeros((), int)
    found: _Point = lax.while_loop(unfinished, advance, carry)[2]
    return found


def _step(problem: _Problem, point: _Point, sigma: Array, omega: Array) -> tuple[_Point, Array]:
    """Take a step of Newton's method towards a point further on the path; return it, and sigma."""
    rho, on, limits = problem.rho, problem.on, precision(sigma.dtype)
    f, B, u = point.lam * rho, pairs(len(point.M))[2], _edges(point.phi) / rho[:, None]
    safe = jnp.where(on, f, 1.0)
    root = jnp.where(on, jnp.sqrt(safe / rho), 0.0)
    R = (jnp.matmul(B, point.M) @ B.T) * root[:, None] * root
    # What rounding leaves of a difference of entries of M is magnified by the multiplier.
    ridge = limits.eps * (8.0 + 2.0 * root.size**0.5 * root * root)
    factor = lax.linalg.cholesky(R * (u @ u.T) + jnp.diag(sigma + ridge), symmetrize_input=False)
    tau = (f * sigma).sum() / omega.sum()
    aim = jnp.maximum(_CENTRE * tau, limits.end) * omega
    off = aim / jnp.where(on, root, 1.0) - 0.5 * root * rho * (1.0 - point.ratio**2)
    df = root * cho_solve((factor, True), off)
    ds = jnp.where(on, (aim - sigma * df) / safe - sigma, 0.0)
    # As close to the boundary as the path allows: 0.9 far out, 1 - tau near the end.
    keep = jnp.clip(1.0 - tau, 0.9, 1.0 - 4 * limits.eps)
    f, sigma = f + _longest(safe, df, keep) * df, sigma + _longest(sigma, ds, keep) * ds
    return problem.at(f / rho), sigma


def _longest(x: Array, dx: Array, keep: Number) -> Array:
    """Return the step, at most 1, that keeps x + step dx positive by a share of its way."""
    return jnp.min(jnp.where(dx < 0.0, -keep * x / dx, 1.0), initial=1.0)


def _edges(phi: Array) -> Array:
    """Return phi_m - phi_l for every pair, (P, q)."""
    return jnp.matmul(pairs(len(phi))[2], phi, precision="highest")


def _of_pairs(tables: Array) -> Array:
    """Return of each table (K, K) what belongs to every pair, (P,)."""
    K = tables.shape[-1]
    first, second, _ = pairs(K)
    found = tables.at[:, first, second]
    return found.get(mode="promise_in_bounds", wrap_negative_indices=False)


def _table(lam: Array, K: int) -> Array:
    """Return multipliers (P,) as a symmetric table (K, K), whose diagonal nobody reads."""
    ends = np.abs(pairs(K)[2])
    return jnp.matmul(ends.T, lam[:, None] * ends, precision="highest")
