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

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.optax import _solver as solver

_BLOCK = 1024  # the sums of a block, for K = 8, fit into a core's own cache


class Tables(NamedTuple):
    """Tables (K, K) of the window; slots in use are the first ones."""

    size: Array  # slots in use
    slot: Array  # the slot that the next observation takes
    centre: Array  # c of the tables
    point: Array
    cross: Array
    residual: Array


def empty(K: int, dtype: Any) -> Tables:
    """Return the tables of a window without observations."""
    # No array twice: a buffer cannot be donated twice.
    numbers = [jnp.zeros((), kind) for kind in (jnp.int32, jnp.int32, dtype)]
    return Tables(*numbers, *(jnp.zeros((K, K), dtype) for _ in range(3)))


def insert(tables: Tables, rows: Array, centre: Array) -> Tables:
    """Return the tables for a centre, with rows (3, K) of the new observation in its slot."""
    size, slot, old, point, cross, residual = tables
    K = point.shape[0]
    e = centre - old
    residual = jnp.maximum(residual - 2.0 * e * cross + e * e * point, 0.0)
    cross = cross - e * point
    here = jnp.arange(K) == slot
    mine, yours = here[:, None], here[None, :]

    def replaced(table: Array, row: Array) -> Array:
        row = jnp.where(here, 0.0, row)
        return jnp.where(mine, row[None, :], jnp.where(yours, row[:, None], table))

    return Tables(
        jnp.maximum(size, slot + 1),
        jnp.where(slot + 1 == K, 0, slot + 1),
        centre,
        replaced(point, rows[0]),
        replaced(cross, rows[1]),
        replaced(residual, rows[2]),
    )


def newest_weights(
    tables: Tables, slot: Array, radius: Array, *, tol: float | Array, max_iter: int | Array
) -> tuple[Array, Array]:
    """Return the weights (K,) of the average that denoises the slot, and the relative gap."""
    K = tables.point.shape[0]
    if K == 1:
        return jnp.ones(1, tables.point.dtype), jnp.zeros((), tables.point.dtype)
    used = jnp.arange(K) < tables.size
    h = jnp.where(used[:, None], _embed(tables.residual, slot, used), 0.0)
    h = jnp.where(used[:, None], h - h.sum(0) / jnp.maximum(tables.size, 1), 0.0)
    top = jnp.max(jnp.abs(h))
    scale = jnp.where(top > 0.0, top, 1.0)
    first, second, _ = solver.pairs(K)
    rho = radius * jnp.sqrt(tables.point[first, second]) / scale
    apart = jnp.sqrt(tables.residual[first, second]) / scale
    on = used[first] & used[second]
    apart = jnp.where(on, apart, 0.0)
    lam, shrink, gap, _ = solver.multipliers(h / scale, apart, rho, on, tol=tol, max_iter=max_iter)
    return lax.dynamic_index_in_dim(solver.weights(lam, shrink, used), slot, keepdims=False), gap


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
    if not _in_blocks(X):
        return _sums(c, X, G, x, g)
    K, count = X.shape[0], x.size // _BLOCK
    vectors = X.reshape(K, -1), G.reshape(K, -1), x.ravel(), g.ravel()

    def part(start: int | Array, size: int) -> list[Array]:
        return [lax.dynamic_slice_in_dim(v, start, size, axis=-1) for v in vectors]

    def add(n: int | Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        return _add(sums, _products(c, *part(n * _BLOCK, _BLOCK)))

    sums = lax.fori_loop(1, count, add, _products(c, *part(0, _BLOCK)))
    rows = jnp.stack([s.sum(1) for s in sums])
    rest = x.size - count * _BLOCK
    return rows + _sums(c, *part(count * _BLOCK, rest)) if rest else rows


def _in_blocks(X: Array) -> bool:
    """Say whether to sum a stack (K, *shape) block by block.

    Compiled for a CPU, a reduction adds one number after the other: that is slow, and in float32
    two digits are left at 10^7 numbers. Sums of blocks, entry by entry, are fast and keep them.
    But blocks would cut across the devices of a sharded leaf, and other hardware needs none.
    """
    one_cpu = jax.default_backend() == "cpu" and jax.device_count() == 1
    return one_cpu and X.size > X.shape[0] * _BLOCK and not any(X.aval.sharding.spec)


def _products(c: Array, X: Array, G: Array, x: Array, g: Array) -> tuple[Array, Array, Array]:
    dx = _difference(X, x, c.dtype)
    dh = _difference(G, g, c.dtype) - c * dx
    return _product(dx, dx), _product(dx, dh), _product(dh, dh)


def _sums(c: Array, X: Array, G: Array, x: Array, g: Array) -> Array:
    # One reduction of three, and not three: compiled code then reads the window once.
    zero = jnp.zeros((), c.dtype)
    axes = tuple(range(1, X.ndim))
    return jnp.stack(lax.reduce(_products(c, X, G, x, g), (zero,) * 3, _add, axes))


def weighted_sum(X: Array, G: Array, x: Array, g: Array, c: Array, w: Array) -> Array:
    """Return sum_i w_i (h_i - h), one leaf's share of the correction."""
    # Term by term, because compiled reductions over the leading axis are very slow.
    terms = (
        w[i] * (_difference(G[i], g, c.dtype) - c * _difference(X[i], x, c.dtype))
        for i in range(w.size)
    )
    return sum(terms, start=jnp.zeros((), c.dtype))


def _add(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


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


def table_dtype(leaves: list[Any]) -> Any:
    """Return float64 if a leaf has that precision, else float32."""
    wide = (jnp.float64, jnp.complex128)
    return jnp.float64 if any(leaf.dtype in wide for leaf in leaves) else jnp.float32
