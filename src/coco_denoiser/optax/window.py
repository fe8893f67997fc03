"""The sliding window in JAX: stacked leaves, and three small tables for any curvature bounds.

The solver needs the distances between points and between residuals h = g - c x. As the centre c
may change from step to step, the window holds points and gradients as they came, and the
tables, with dx = x_i - x_j and dh = h_i - h_j for the centre of the last step, are

    ||dx||^2,    <dx, dh>,    ||dh||^2.

For another centre c + e they are ||dx||^2, <dx, dh> - e ||dx||^2, and
||dh||^2 - 2 e <dx, dh> + e^2 ||dx||^2. As long as c stays, nothing is added and nothing is lost.
A new observation changes one row, by 3 K sums over the vectors' entries: all that devices have
to exchange.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.optax import solver, tree

_Three: TypeAlias = tuple[Array, Array, Array]

_CACHE = 1 << 13  # entries of a block: its sums fit into a core's own cache
_SHORTEST = 512  # of the rows of a block: shorter ones are read more slowly


class Tables(NamedTuple):
    """What the window knows of its observations; slots in use are the first ones."""

    size: Array  # slots in use
    slot: Array  # the slot that the next observation takes
    centre: Array  # c of the tables
    products: Array  # (3, K, K): ||dx||^2, <dx, dh>, ||dh||^2
    precision: Array  # (K,), in fresh observations; 0 for empty slots


def empty(K: int, leaves: list[Array]) -> Tables:
    """Return the tables of a window without observations, whose leaves these are."""
    zero = origin(leaves)
    # No array twice: a buffer cannot be donated twice.
    numbers = [jnp.zeros_like(zero, kind) for kind in (jnp.int32, jnp.int32, zero.dtype)]
    return Tables(*numbers, *(jnp.zeros_like(zero, shape=shape) for shape in ((3, K, K), (K,))))


def origin(leaves: list[Array]) -> Array:
    """Return a zero in the dtype to sum in, that of the widest leaf but float32 at least.

    Under shard_map it varies over the devices if a leaf does, as sums over the leaves will.
    """
    wide = any(leaf.dtype in (jnp.float64, jnp.complex128) for leaf in leaves)
    zero = jnp.zeros((), jnp.float64 if wide else jnp.float32)
    # Only traced values can vary; others may have a sharding, which a zero cannot have.
    traced = (leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer))
    return sum((jnp.zeros_like(leaf, zero.dtype, shape=()) for leaf in traced), start=zero)


def recentred(tables: Tables, centre: Array) -> Tables:
    """Return the tables for a centre."""
    e, (point, cross, residual) = centre - tables.centre, tables.products
    residual = jnp.maximum(residual - 2.0 * e * cross + e * e * point, 0.0)
    products = jnp.stack([point, cross - e * point, residual])
    return tables._replace(centre=centre, products=products)


def insert(tables: Tables, rows: Array, precision: Array) -> Tables:
    """Return the tables with a new observation, its rows being (3, K), in the next slot."""
    slot = tables.slot
    return replace(tables, slot, rows, precision)._replace(
        size=jnp.maximum(tables.size, slot + 1), slot=successor(tables)
    )


def successor(tables: Tables) -> Array:
    """Return the slot after the next: that of the second oldest, if the window is full."""
    return jnp.where(tables.slot + 1 == tables.precision.size, 0, tables.slot + 1)


def replace(tables: Tables, slot: Array, rows: Array, precision: Array) -> Tables:
    """Return the tables with other rows (3, K), and another precision, of one slot."""
    here = jnp.arange(tables.precision.size) == slot
    rows = jnp.where(here, 0.0, rows)
    products = jnp.where(here, rows[:, :, None], tables.products)
    return tables._replace(
        products=jnp.where(here[:, None], rows[:, None, :], products),
        precision=jnp.where(here, precision, tables.precision),
    )


def fold(apart: Array, rho: Array, older: Array, newer: Array) -> tuple[Array, Array]:
    """Do what `merge` does, with precisions: return the weight and the precision.

    An older one of precision 0 stands for none: its weight is 0.

    Args:
        apart: the distance of the two residuals.
        rho: how far apart they may be.
        older: precision of the observation that leaves.
        newer: precision of the one that stays.
    """
    t = 1.0 - jnp.where(rho > 0.0, jnp.minimum(rho / jnp.where(apart > 0.0, apart, rho), 1.0), 0.0)
    total = jnp.where(older > 0.0, older + newer, 1.0)
    weight = t * (older / total)
    variance = (1.0 - weight) ** 2 / newer + t * weight / total
    return weight, jnp.where(weight > 0.0, 1.0 / variance, newer)


def newest_weights(
    tables: Tables, slot: Array, radius: Array, *, tol: float | Array
) -> tuple[Array, Array]:
    """Return the weights (K,) that denoise the slot, and the relative gap."""
    n, K = tables.precision, tables.precision.size
    if K == 1:
        return jnp.ones_like(n), jnp.zeros_like(tables.centre)
    point, _, residual = tables.products
    used = jnp.arange(K) < tables.size
    h = _embed(residual, slot, used)
    total = n.sum()
    mean = (n[:, None] * h).sum(0) / jnp.where(total > 0.0, total, 1.0)
    h = jnp.where(used[:, None], h - mean, 0.0)
    top = jnp.max(jnp.abs(h))
    scale = jnp.where(top > 0.0, top, 1.0)
    first, second, _ = solver.pairs(K)
    on = used[first] & used[second]
    rho = radius * jnp.sqrt(point[first, second]) / scale
    apart = jnp.where(on, jnp.sqrt(residual[first, second]) / scale, 0.0)
    W, gap = solver.weights(h / scale, n, apart, rho, on, tol=tol)
    return lax.dynamic_index_in_dim(W, slot, keepdims=False), gap


@jax.jit
def _embed(squares: Array, origin: Array, used: Array) -> Array:
    """Return vectors (K, K) with these squared distances, by a pivoted Cholesky decomposition.

    The newest observation is the origin: what is near it keeps its digits.
    """
    K = squares.shape[0]
    row = lax.dynamic_index_in_dim(squares, origin, keepdims=False)
    gram = 0.5 * (row[:, None] + row[None, :] - squares)
    gram = jnp.where(used[:, None] & used[None, :], gram, 0.0)
    # A pivot below the rounding of the largest is noise, not a further dimension.
    least = K * solver.precision(squares.dtype).eps * jnp.max(row)

    def eliminate(k: int | Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        gram, factor = carry
        diagonal = jnp.diagonal(gram)
        pivot = jnp.argmax(diagonal)
        top = diagonal[pivot]
        fine = top > least
        column = jnp.where(fine, gram[pivot] / jnp.sqrt(jnp.where(fine, top, 1.0)), 0.0)
        return gram - column[:, None] * column, factor.at[:, k].set(column)

    factor: Array = lax.fori_loop(0, K, eliminate, (gram, jnp.zeros_like(gram)))[1]
    return factor


def new_rows(X: Array, G: Array, x: Array, g: Array, c: Array) -> Array:
    """Return one leaf's share of the rows (3, K) of the tables.

    Args:
        X: (K, *shape), points; a difference is taken before anything is squared or rounded.
        G: (K, *shape), gradients.
        x: (*shape), the new point.
        g: (*shape), its gradient.
        c: the centre, whose dtype is the one to sum in.
    """

    def terms(X: Array, G: Array, x: Array, g: Array) -> _Three:
        dx = _difference(X, x, c.dtype)
        dh = _difference(G, g, c.dtype) - c * dx
        return _product(dx, dx), _product(dx, dh), _product(dh, dh)

    return _sums(terms, X, G, x, g)


def filter_sums(X: Array, G: Array, x: Array, g: Array, c: Array) -> Array:
    """Return one leaf's share of ||dx||^2, ||dh||^2 and (1 + c^2) ||x||^2 + ||g||^2, (3,).

    Args:
        X: (*shape), the past point.
        G: (*shape), its gradient.
        x: (*shape), the new point.
        g: (*shape), its gradient.
        c: the centre, whose dtype is the one to sum in.
    """

    def terms(X: Array, G: Array, x: Array, g: Array) -> _Three:
        dx = _difference(X, x, c.dtype)
        dh = _difference(G, g, c.dtype) - c * dx
        x, g = (v.astype(jnp.promote_types(v.dtype, c.dtype)) for v in (x, g))
        size = (1.0 + c * c) * _product(x, x) + _product(g, g)
        return _product(dx, dx), _product(dh, dh), jnp.broadcast_to(size, dx.shape)

    return _sums(terms, X[None], G[None], x, g)[:, 0]


def _sums(terms: Callable[..., _Three], X: Array, G: Array, x: Array, g: Array) -> Array:
    """Return the sums (3, K), over a leaf, of three terms (K, *shape)."""
    K = X.shape[0]
    block = max(_CACHE // K, _SHORTEST)
    count = x.size // block if _in_blocks(X) else 0
    vectors = [X.reshape(K, -1), G.reshape(K, -1), x.ravel(), g.ravel()] if count else [X, G, x, g]

    def part(start: int | Array, size: int) -> list[Array]:
        return [lax.dynamic_slice_in_dim(v, start, size, axis=-1) for v in vectors]

    def add(n: int | Array, sums: list[Array]) -> list[Array]:
        return [s + t for s, t in zip(sums, terms(*part(n * block, block)), strict=True)]

    rows: Array | float = 0.0
    if count:
        kind = jax.eval_shape(terms, *part(0, block))[0]
        zeros = [jnp.zeros(kind.shape, kind.dtype)] * 3
        rows = jnp.stack([s.sum(1) for s in lax.fori_loop(0, count, add, zeros)])
        vectors = part(count * block, x.size - count * block)
    # Three reductions, and not one of three: devices would have to gather its parts instead of
    # adding them up.
    return rows + jnp.stack([t.sum(range(1, t.ndim)) for t in terms(*vectors)])


def once_written(vector: Array, flag: Array) -> Array:
    """Return a flag, on a CPU only once a long vector is written: what needs it must wait."""
    if not _in_blocks(vector[None]):
        return flag
    return flag & ~(vector.ravel()[0].real > jnp.inf)  # which is never true


def _in_blocks(X: Array) -> bool:
    """Say whether to sum a stack (K, *shape) block by block.

    Compiled for a CPU, three reductions of fused terms take six times as long. Sums of blocks,
    entry by entry, are fast. But blocks would cut across the devices of a sharded leaf, and other
    hardware needs none.
    """
    one_cpu = jax.default_backend() == "cpu" and jax.device_count() == 1
    return one_cpu and X.size > _CACHE and not any(X.aval.sharding.spec)


def weighted_sum(X: Array, G: Array, x: Array, g: Array, c: Array | None, w: Array) -> Array:
    """Return sum_i w_i (h_i - h), one leaf's share of the correction; c is None for 0."""
    if tree.is_small(x):
        dg = _difference(G, g, w.dtype)
        dh = dg if c is None else dg - c * _difference(X, x, w.dtype)
        return (w.reshape(-1, *(1 for _ in x.shape)) * dh).sum(0)

    def term(i: int) -> Array:
        dg = _difference(G[i], g, w.dtype)
        return w[i] * (dg if c is None else dg - c * _difference(X[i], x, w.dtype))

    # Term by term: compiled reductions over the leading axis are quick to compile, but very slow.
    return sum((term(i) for i in range(w.size)), start=jnp.zeros((), w.dtype))


def _difference(stack: Array, one: Array, dtype: Any) -> Array:
    wide = jnp.promote_types(stack.dtype, dtype)
    return stack.astype(wide) - one.astype(wide)


def _product(a: Array, b: Array) -> Array:
    """Return Re (conj(a) b), entry by entry."""
    if jnp.iscomplexobj(a):
        return a.real * b.real + a.imag * b.imag
    return a * b


def squared_norm(x: Array, dtype: Any) -> Array:
    """Return ||x||^2, summed in a dtype."""
    wide = x.astype(jnp.promote_types(x.dtype, dtype))
    return _product(wide, wide).sum()
