"""Exact multipliers of one window in pure JAX: an interior-point method with static shapes.

Solves, for K residuals h_i with precisions n_i and bounds rho_ml on all P = K (K - 1) / 2 pairs,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Predictor and corrector steps follow a primal-dual path, for arrays whose shapes never change, so
that it can be compiled, batched by vmap, and run in float32:

- all pairs stay in the linear system; pairs of empty slots have no force and take no part;
- the unknowns of a pair are its force f = lam rho and its relative slack
  sigma = (1 - ||u||^2) / 2, u = (phi_m - phi_l) / rho. The system is then
  diag(sigma) + R * (u u'), where R = lam^1/2 B M B' lam^1/2 has eigenvalues in [0, 1]: its
  entries are of order 1 whatever the bounds are;
- points too close for the precision stay separate, tied by a large multiplier, which is no
  unknown: M comes from an elimination without subtractions, which large multipliers do not harm.

Tables (K, K) come in and go out; in between, what belongs to a pair is in vectors (P,).

Letters: B (P, K) is the incidence matrix, N = diag(n), M = (N + B' diag(lam) B)^-1, hat = M N h
the residuals that are stationary for lam, and tau omega_e = f_e sigma_e the central path.
"""

from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import cho_solve
from jax.typing import DTypeLike
from numpy.typing import NDArray

from coco_denoiser.optax.tree import Number

Indices: TypeAlias = NDArray[np.int32]
_Tuple = TypeVar("_Tuple")

# The multiplicative start ends when no pair exceeds its bound by more than _READY, and none that
# has a share _STRONG of the largest force is pulled to less than a share _LOOSE of its bound.
_ROUNDS, _READY, _STRONG, _LOOSE = 30, 1.05, 0.1, 0.7
_START = 1.025  # how far inside its bounds the interior-point method starts
_GROWTH, _FLOOR = 2.0, 0.2  # a step may double the residual, or lift it to the floor
_STEPS = 50  # limit on the steps of the interior-point method
_PATIENCE = 8  # iterations without progress after which rounding is to blame


class Precision(NamedTuple):
    """What a floating-point format can resolve, relative to the largest residual."""

    eps: float  # the distance from 1 to the next number
    closest: float  # points whose bound is below this are held together
    rounding: float  # a distance is known up to this
    collinear: float  # a detour longer by no more than this is not counted as one
    end: float  # where the central path ends
    floor: float  # gaps are relative to this share of the trivial answer's value at least
    tol: float  # relative gap to reach unless the caller says otherwise


def precision(dtype: DTypeLike) -> Precision:
    """Return the constants of float64 or float32."""
    if dtype == jnp.float64:
        return Precision(2.0**-52, 3e-8, 4e-15, 1e-12, 1e-16, 1e-10, 1e-9)
    return Precision(2.0**-23, 3e-5, 1e-6, 2e-6, 1e-8, 1e-3, 1e-6)


@lru_cache
def pairs(K: int) -> tuple[Indices, Indices, Indices]:
    """Return the first and second member of every pair, and the incidence matrix (P, K)."""
    # 32 bits wide, so that they mean the same with and without 64-bit mode.
    first, second = (index.astype(np.int32) for index in np.triu_indices(K, 1))
    B = np.eye(K, dtype=np.int32)
    return first, second, B[first] - B[second]


class _Problem(NamedTuple):
    h: Array  # (K, q)
    n: Array  # (K,)
    rho: Array  # (P,)
    on: Array  # (P,), the pairs whose forces are unknowns
    ties: Array  # (P,), multipliers that are none

    def stationary(self, lam: Array) -> tuple[Array, Array]:
        """Return M and hat for multipliers (P,)."""
        M = _inverse(_table(lam + self.ties, self.n.size), self.n)
        return M, M @ (self.n[:, None] * self.h)

    def worst(self, w: Array) -> Array:
        """Return the largest ratio of a distance to its bound."""
        excess = (w - precision(w.dtype).rounding) / self.rho
        return jnp.max(jnp.where(self.on, excess, 0.0), initial=0.0)

    def residual(self, phi: Array, hat: Array, sigma: Array) -> Array:
        """Return the worst error of the slacks, and of phi against hat, over the pairs."""
        slack = jnp.abs(sigma - 0.5 * (1.0 - (_lengths(phi) / self.rho) ** 2))
        off = jnp.maximum(slack, _lengths(phi - hat) / self.rho)
        return jnp.max(jnp.where(self.on, off, 0.0), initial=0.0)

    def gap(self, lam: Array, hat: Array) -> tuple[Array, Array]:
        """Return the relative gap of hat, shrunk until every pair fits, and the factor."""
        w, n = _lengths(hat), self.n[:, None]
        shrink = 1.0 / jnp.maximum(self.worst(w), 1.0)
        gap = 0.5 * (1.0 - shrink) ** 2 * (n * hat**2).sum()
        gap += (lam * w * jnp.abs(self.rho - shrink * w)).sum()
        value = (n * (shrink * hat - self.h) ** 2).sum()
        least = precision(w.dtype).floor * (n * self.h**2).sum()
        return gap / (0.5 * jnp.maximum(value, least)), shrink


class _Point(NamedTuple):
    """Where the interior-point method stands."""

    f: Array  # (P,) forces
    sigma: Array  # (P,) relative slacks
    phi: Array  # (K, q)
    M: Array  # (K, K)
    hat: Array  # (K, q)
    residual: Array
    ridge: Array  # in units of the rounding in the linear system


class _Best(NamedTuple):
    """The best answer so far."""

    lam: Array  # (P,)
    M: Array  # (K, K)
    shrink: Array  # the factor by which hat must shrink for every pair to fit
    gap: Array


# Point, best, the least tau so far, steps since it or the gap has become much less, and all steps.
_Carry: TypeAlias = tuple[_Point, _Best, Array, Array, Array]


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
        lam, M, hat = _multiplicative(problem, apart, active)
        best = _interior_point(problem, lam, M, hat, active, tol)
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


def _multiplicative(problem: _Problem, apart: Array, active: Array) -> tuple[Array, Array, Array]:
    """Improve lam from a rough guess until the pairs with forces are near their bounds."""
    rho, on = problem.rho, problem.on
    lam = jnp.where(on, jnp.maximum(apart / rho - 1.0, 0.01) / problem.n.size, 0.0)

    def improve(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        lam, last, _, _, rounds, _ = carry
        M, hat = problem.stationary(lam)
        w = _lengths(hat)
        ratio = jnp.maximum(w / rho, 0.1)
        strong = lam * rho >= _STRONG * jnp.max(lam * rho, initial=0.0)
        near = jnp.all(~on | ~strong | (ratio >= _LOOSE)) & (problem.worst(w) <= _READY)
        more = active & ~near & (rounds + 1 < _ROUNDS)
        # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but oscillates on such
        # a pair, and is given up there.
        factor = jnp.where((ratio - 1.0) * (last - 1.0) >= 0.0, ratio * ratio, ratio)
        return jnp.where(more, lam * factor, lam), ratio, M, hat, rounds + 1, more

    # Made from lam, so that under shard_map it varies over the devices as lam does. No matter what
    # M is: without active bounds there is no step that reads it.
    M = jnp.zeros_like(lam, shape=2 * problem.n.shape)
    start: tuple[Array, ...] = (lam, jnp.ones_like(lam), M, problem.h, jnp.asarray(0), active)
    lam, _, M, hat, _, _ = lax.while_loop(lambda carry: carry[-1], improve, start)
    return lam, M, hat


def _interior_point(
    problem: _Problem, lam: Array, M: Array, hat: Array, active: Array, tol: Number
) -> _Best:
    rho, on, w = problem.rho, problem.on, _lengths(hat)
    force = jnp.max(lam * rho, initial=0.0)
    f = jnp.where(on, jnp.maximum(lam * rho, 1e-6 * force), 0.0)
    omega = jnp.where(on, jnp.maximum(f, 1e-3 * force), 0.0)
    shrink = 1.0 / (_START * jnp.clip(problem.worst(w), 1.0, _READY))
    sigma = 0.5 * jnp.maximum(1.0 - (shrink * w / rho) ** 2, 1.0 - 1.0 / _START)
    residual = problem.residual(shrink * hat, hat, sigma)
    point = _Point(f, sigma, shrink * hat, M, hat, residual, jnp.ones_like(residual))
    one, none = jnp.ones_like(residual), jnp.full_like(residual, jnp.inf)
    zero = jnp.zeros_like(residual, int)
    start: _Carry = point, _Best(lam, M, one, none), none, zero, zero

    def unfinished(carry: _Carry) -> Array:
        _, best, _, age, steps = carry
        return active & (best.gap > tol) & (age < _PATIENCE) & (steps < _STEPS)

    def advance(carry: _Carry) -> _Carry:
        point, best, least, age, steps = carry
        point = _step(problem, point, omega)
        lam, tau = point.f / rho, (point.f * point.sigma).sum() / omega.sum()
        gap, shrink = problem.gap(lam, point.hat)
        # The gap of hat may well rise on the way while the path is followed.
        progress = (gap < 0.5 * best.gap) | (tau < 0.5 * least)
        best = _chosen(gap < best.gap, _Best(lam, point.M, shrink, gap), best)
        least = jnp.where(progress, jnp.minimum(tau, least), least)
        return point, best, least, jnp.where(progress, 0, age + 1), steps + 1

    found: _Best = lax.while_loop(unfinished, advance, start)[1]
    return found


def _step(problem: _Problem, point: _Point, omega: Array) -> _Point:
    """Take one predictor-corrector step, halved until the residual is in bounds."""
    f, sigma, phi, M, hat, before, ridge = point
    rho, on, limits = problem.rho, problem.on, precision(f.dtype)
    u, v_hat = _edges(phi) / rho[:, None], _edges(hat) / rho[:, None]
    target = 0.5 * (1.0 + (u * u).sum(1)) - (u * v_hat).sum(1)
    safe = jnp.where(on, f, 1.0)
    root = jnp.where(on, jnp.sqrt(safe / rho), 0.0)
    factor = _newton_factor(root, M, u, sigma, ridge)
    tau_now = (f * sigma).sum() / omega.sum()

    def direction(tau: Number, second: Number) -> tuple[Array, Array]:
        aim = jnp.where(on, tau * omega - second, 0.0)
        df = root * cho_solve((factor, True), aim / jnp.where(on, root, 1.0) - root * rho * target)
        return df, jnp.where(on, (aim - sigma * df) / safe - sigma, 0.0)

    df, ds = direction(0.0, 0.0)
    step_s, step_f = _longest(sigma, ds, 1.0), _longest(safe, df, 1.0)
    affine = ((f + step_f * df) * (sigma + step_s * ds)).sum() / omega.sum()
    tau = jnp.maximum((affine / tau_now) ** 3 * tau_now, limits.end)
    df, ds = direction(tau, df * ds)
    # As close to the boundary as the path allows: 0.9 far out, 1 - tau near the end.
    keep = jnp.clip(1.0 - tau_now, 0.9, 1.0 - 4 * limits.eps)
    step_s, step_f = _longest(sigma, ds, keep), _longest(safe, df, keep)
    dphi = hat - phi - M @ (pairs(len(M))[2].T @ (df[:, None] * u))

    def too_long(carry: tuple[_Point, Array]) -> Array:
        new, scale = carry
        return ~(new.residual <= jnp.maximum(_GROWTH * before, _FLOOR)) & (scale > 2.0**-8)

    def halve(carry: tuple[_Point, Array]) -> tuple[_Point, Array]:
        scale = 0.5 * carry[1]
        f_new, sigma_new = f + scale * step_f * df, sigma + scale * step_s * ds
        phi_new = phi + scale * step_s * dphi
        M_new, hat_new = problem.stationary(f_new / rho)
        residual = problem.residual(phi_new, hat_new, sigma_new)
        return _Point(f_new, sigma_new, phi_new, M_new, hat_new, residual, ridge), scale

    start = (point._replace(residual=jnp.inf * before), jnp.asarray(2.0, f.dtype))
    new, _ = lax.while_loop(too_long, halve, start)
    # A system that rounding has made indefinite has no factor: try again with a larger ridge.
    again = point._replace(ridge=30.0 * ridge)
    new = new._replace(ridge=jnp.maximum(0.1 * ridge, 1.0))
    return _chosen(jnp.isfinite(new.residual), new, again)


def _chosen(condition: Array, yes: _Tuple, no: _Tuple) -> _Tuple:
    found: _Tuple = jax.tree.map(partial(jnp.where, condition), yes, no)
    return found


def _newton_factor(root: Array, M: Array, u: Array, sigma: Array, ridge: Array) -> Array:
    """Return the Cholesky factor of diag(sigma) + (root root') * (B M B') * (u u')."""
    B = pairs(M.shape[0])[2]
    R = (jnp.matmul(B, M) @ B.T) * root[:, None] * root
    # What rounding leaves of a difference of entries of M is magnified by the multiplier.
    eps, P = precision(M.dtype).eps, root.size
    diagonal = jnp.diag(sigma + ridge * eps * (8.0 + 2.0 * P**0.5 * root * root))
    return lax.linalg.cholesky(R * (u @ u.T) + diagonal, symmetrize_input=False)


def _longest(x: Array, dx: Array, keep: Number) -> Array:
    """Return the step, at most 1, that keeps x + step dx positive by a share of its way."""
    return jnp.min(jnp.where(dx < 0.0, -keep * x / dx, 1.0), initial=1.0)


def _edges(phi: Array) -> Array:
    """Return phi_m - phi_l for every pair, (P, q)."""
    return jnp.matmul(pairs(len(phi))[2], phi, precision="highest")


def _lengths(phi: Array) -> Array:
    """Return ||phi_m - phi_l|| for every pair, (P,)."""
    return jnp.sqrt((_edges(phi) ** 2).sum(-1))


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
