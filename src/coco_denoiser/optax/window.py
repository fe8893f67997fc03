"""The sliding window in JAX: stacked leaves, and three small tables for any curvature bounds.

The solver needs the distances between points and between residuals h = g - c x. As the centre c
may change from step to step, the window holds points and gradients as they came, and the
tables, with dx = x_i - x_j and dh = h_i - h_j for the centre of the last step, are

    point[i, j] = ||dx||^2,    cross[i, j] = <dx, dh>,    residual[i, j] = ||dh||^2.

For another centre c + e they are ||dx||^2, <dx, dh> - e ||dx||^2, and
||dh||^2 - 2 e <dx, dh> + e^2 ||dx||^2. As long as c stays, nothing is added and nothing is lost.
A new observation changes one row, by 3 K sums over the vectors' entries: all that devices have
to exchange.
"""

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.optax import certificate, solver, tree

_Three: TypeAlias = tuple[Array, Array, Array]

_BLOCK = 512  # entries of each slot that are summed together, at least
_TOGETHER = 2  # blocks that are added at once


class Tables(NamedTuple):
    """What the window knows, in tables (K, K); slots in use are the first ones."""

    size: Array  # slots in use
    slot: Array  # the slot that the next observation takes
    centre: Array  # c of the tables
    point: Array
    cross: Array
    residual: Array
    precision: Array  # (K,), in fresh observations; 0 for empty slots


def empty(K: int, zero: Array) -> Tables:
    """Return the tables of a window without observations."""
    # No array twice: a buffer cannot be donated twice.
    numbers = [jnp.zeros_like(zero, kind) for kind in (jnp.int32, jnp.int32, zero.dtype)]
    tables = [jnp.zeros_like(zero, shape=shape) for shape in 3 * [(K, K)] + [(K,)]]
    return Tables(*numbers, *tables)


def number(leaves: list[Array]) -> Any:
    """Return the dtype to sum in, that of the widest leaf but float32 at least."""
    wide = any(leaf.dtype in (jnp.float64, jnp.complex128) for leaf in leaves)
    return jnp.float64 if wide else jnp.float32


def origin(leaves: list[Array]) -> Array:
    """Return a zero; under shard_map it varies over the devices if a leaf does, as sums will."""
    zero = jnp.zeros((), number(leaves))
    # Only traced values can vary; others may have a sharding, which a zero cannot have.
    traced = (leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer))
    return sum((jnp.zeros_like(leaf, zero.dtype, shape=()) for leaf in traced), start=zero)


def recentred(tables: Tables, centre: Array) -> Tables:
    """Return the tables for a centre."""
    e, point, cross = centre - tables.centre, tables.point, tables.cross
    residual = jnp.maximum(tables.residual - 2.0 * e * cross + e * e * point, 0.0)
    return tables._replace(centre=centre, cross=cross - e * point, residual=residual)


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
    mine, yours = here[:, None], here[None, :]

    def replaced(table: Array, row: Array) -> Array:
        row = jnp.where(here, 0.0, row)
        return jnp.where(mine, row[None, :], jnp.where(yours, row[:, None], table))

    return tables._replace(
        point=replaced(tables.point, rows[0]),
        cross=replaced(tables.cross, rows[1]),
        residual=replaced(tables.residual, rows[2]),
        precision=jnp.where(here, precision, tables.precision),
    )


def leaving(tables: Tables, radius: Array) -> tuple[Array, Array]:
    """Return the weight of the oldest in its successor, and the precision after that."""
    old, new, n = tables.slot, successor(tables), tables.precision
    apart, distance = (jnp.sqrt(table[old, new]) for table in (tables.residual, tables.point))
    return fold(apart, radius * distance, n[old], n[new])


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
) -> tuple[Array, Array, Array, Array]:
    """Return the weights (K,) that denoise the slot, whether any differ, gap and violation."""
    K = tables.point.shape[0]
    if K == 1:
        zero = jnp.zeros_like(tables.centre)
        return jnp.ones_like(tables.precision), zero > 0.0, zero, zero
    used = jnp.arange(K) < tables.size
    h = jnp.where(used[:, None], _embed(tables.residual, slot, used), 0.0)
    n = tables.precision
    total = n.sum()
    mean = (n[:, None] * h).sum(0) / jnp.where(total > 0.0, total, 1.0)
    h = jnp.where(used[:, None], h - mean, 0.0)
    top = jnp.max(jnp.abs(h))
    scale = jnp.where(top > 0.0, top, 1.0)
    h, apart = h / scale, jnp.sqrt(tables.residual) / scale
    bounds = radius * jnp.sqrt(tables.point) / scale
    W, lam = solver.solve(h, n, apart, bounds, tol=tol)
    gap, violation = certificate.certify(h, n, bounds, W, lam)
    w = lax.dynamic_index_in_dim(W, slot, keepdims=False)
    return w, lam.any(), gap, violation


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


@jax.jit  # traced once for leaves that are alike
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

    if not _in_blocks(X):
        return _sums(terms(X, G, x, g))
    K, block = X.shape[0], _block(X.shape[0])
    count = x.size // block
    vectors = [X.reshape(K, -1), G.reshape(K, -1), x.ravel(), g.ravel()]

    def part(start: int | Array, size: int) -> list[Array]:
        return [lax.dynamic_slice_in_dim(v, start, size, axis=-1) for v in vectors]

    def add(n: int | Array, sums: _Three) -> _Three:
        more: _Three = jax.tree.map(jnp.add, sums, terms(*part(n * block, block)))
        return more

    # Several blocks at once: the sums are read and written less often.
    sums = lax.fori_loop(1, count, add, terms(*part(0, block)), unroll=_TOGETHER)
    rest = x.size - count * block
    return _sums(sums) + _sums(terms(*part(count * block, rest))) if rest else _sums(sums)


def once_written(vector: Array, flag: Array) -> Array:
    """Return a flag, on a CPU only once a long vector is written: what needs it must wait."""
    if not _in_blocks(vector[None]):
        return flag
    return flag & ~(vector.ravel()[0].real > jnp.inf)  # which is never true


def _block(K: int) -> int:
    return max(_BLOCK, 16 * _BLOCK // K)  # the sums fit into a core's own cache


def _in_blocks(X: Array) -> bool:
    """Return whether to sum a stack (K, *shape) block by block.

    Compiled for a CPU, a reduction adds one number after the other: that is slow, and in float32
    only two digits are left after 10^7 numbers. Sums of blocks, entry by entry, are fast and keep
    them. But blocks would cut across the devices of a sharded leaf, and other hardware needs none.
    """
    one_cpu = jax.default_backend() == "cpu" and jax.device_count() == 1
    return one_cpu and X.size > X.shape[0] * _block(X.shape[0]) and not any(X.aval.sharding.spec)


def _sums(terms: _Three) -> Array:
    # Three reductions, and not one of three: that one would add one number after the other, and
    # devices would have to gather its parts instead of adding them up.
    return jnp.stack([term.sum(range(1, term.ndim)) for term in terms])


@jax.jit
def weighted_sum(X: Array, G: Array, x: Array, g: Array, c: Array | None, w: Array) -> Array:
    """Return sum_i w_i (h_i - h), one leaf's share of the correction; c is None for 0."""

    def apart(X: Array, G: Array) -> Array:
        dg = _difference(G, g, w.dtype)
        return dg if c is None else dg - c * _difference(X, x, w.dtype)

    if tree.is_small(x):
        return (w.reshape(-1, *(1 for _ in x.shape)) * apart(X, G)).sum(0)
    # Term by term: compiled reductions over the leading axis are quick to compile, but very slow.
    return sum((w[i] * apart(X[i], G[i]) for i in range(w.size)), start=jnp.zeros((), w.dtype))


def _difference(stack: Array, one: Array, dtype: Any) -> Array:
    wide = jnp.promote_types(stack.dtype, dtype)
    return stack.astype(wide) - one.astype(wide)


def _product(a: Array, b: Array) -> Array:
    """Return Re (conj(a) b), entry by entry."""
    if jnp.iscomplexobj(a):
        return a.real * b.real + a.imag * b.imag
    return a * b
