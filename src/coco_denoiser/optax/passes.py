"""The two passes over the vectors, in JAX: what an observation is measured and committed by.

A state holds a tree of points and one of gradients, whose leaves are (slots, *shape). All leaves
together are one vector: what is measured is added over them, 3 K sums over their entries, and that
is all that devices have to exchange.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from coco_denoiser.optax import tree
from coco_denoiser.optax.tree import Tree
from coco_denoiser.optax.window import Slot

Two: TypeAlias = tuple[Tree, Tree]  # trees of points and of gradients
_Leaf: TypeAlias = tuple[Array, Array, Array, Array]
_Three: TypeAlias = tuple[Array, Array, Array]

_BLOCK = 512  # entries of each slot that are summed together, at least
_TOGETHER = 2  # blocks that are added at once


def measure(held: Two, new: Two, centre: Array) -> Array:
    """Return ||dx||^2, <dx, dh> and ||dh||^2 of an observation and every slot, (3, slots)."""
    leaves = tree.joined(_leaf_by_leaf(held, new))
    start = jnp.zeros((3, 1), centre.dtype)
    return sum((_leaf_sums(*leaf, centre) for leaf in leaves), start=start)


def merge(
    held: Two, new: Two, slots: tuple[Array, Array], weight: Array, centre: Array
) -> tuple[Two, Array]:
    """Merge a slot into another, put the observation in its place, and measure the merged one."""
    old, successor = slots

    def mix(X: Array, G: Array) -> Array:
        pair = X[old][None], G[old][None], X[successor], G[successor]
        return _put(successor, G, _shifted(pair[3], _weighted_sum(*pair, centre, weight[None])))

    after = _written((held[0], jax.tree.map(mix, *held)), new, old)
    return after, measure(after, jax.tree.map(lambda V: V[successor], after), centre)


def commit(
    held: Two, new: Two, newest: Slot, weights: Array, centre: Array | None, fits: Array
) -> tuple[Tree, Two]:
    """Write an observation, if it fits, and average; return the gradient, and what is held.

    That is g + sum_i w_i (h_i - h): the weights (K,) sum to 1, and what all residuals have in
    common cancels before it is rounded. A centre of None is one of 0.
    """
    # In a branch, so that compiled code writes in place: a selection would make a copy.
    held = lax.cond(fits, lambda: _written(held, new, newest), lambda: held)
    leaves, structure = jax.tree.flatten(new[1])

    def averaged() -> list[Array]:
        return [
            _shifted(g, _weighted_sum(*leaf, centre, weights))
            for g, leaf in zip(leaves, _leaf_by_leaf(held, new), strict=True)
        ]

    # A branch, and not a selection: what is not needed is not read, and the sum is not fused
    # into, and computed by, each of its uses.
    theta: list[Array] = lax.cond(fits & (weights[newest] != 1.0), averaged, lambda: leaves)
    return jax.tree.unflatten(structure, theta), held


def commit_merged(
    held: Two, new: Two, weight: Array, centre: Array, fits: Array
) -> tuple[Tree, Two]:
    """Do what `commit` does, but store the average: one slot stands for everything."""
    moved = fits & (weight > 0.0)
    leaves, structure = jax.tree.flatten(new[1])
    found: tuple[list[Array], ...] = [], [], []
    for leaf, (X, G, *one) in zip(leaves, _leaf_by_leaf(held, new), strict=True):
        by = _weighted_sum(X, G, *one, centre, weight[None])
        # In the shape of the slot, in which it is stored.
        own, x, g, by = (v.reshape(X.shape) for v in (leaf, *one, by))
        after = jnp.where(fits, jnp.where(moved, _shifted(g, by), g), G)
        # Not fused into its uses, which read it instead. Written in this order, G, X and at
        # last the parameters, each can take the place of the old one, and nothing is copied.
        after = lax.optimization_barrier(after)  # type: ignore[no-untyped-call]  # JAX's
        here = jnp.where(_once_written(after, fits), x, X)
        denoised = jnp.where(_once_written(here, fits), after, own)
        if after.dtype != own.dtype:
            denoised = jnp.where(moved, _shifted(own, by), own)
        for values, value in zip(found, (denoised[0], here, after), strict=True):
            values.append(value)
    theta, points, gradients = (jax.tree.unflatten(structure, values) for values in found)
    return theta, (points, gradients)


def _leaf_by_leaf(held: Two, new: Two) -> list[_Leaf]:
    """Return what is held and what is new of each leaf, the new as it would be stored."""
    trees = (jax.tree.leaves(each) for each in (*held, *new))
    return [(X, G, x.astype(X.dtype), g.astype(G.dtype)) for X, G, x, g in zip(*trees, strict=True)]


def _written(held: Two, new: Two, slot: Slot) -> Two:
    """Return what is held with an observation in a slot."""
    after: Two = jax.tree.map(lambda V, v: _put(slot, V, v), held, new)
    return after


def _put(slot: Slot, stack: Array, row: Array) -> Array:
    after: Array = lax.dynamic_update_index_in_dim(stack, row.astype(stack.dtype), slot, 0)
    return after


def _shifted(g: Array, by: Array) -> Array:
    wide = jnp.promote_types(g.dtype, by.dtype)
    return (g.astype(wide) + by).astype(g.dtype)


@jax.jit  # traced once for leaves that are alike
def _leaf_sums(X: Array, G: Array, x: Array, g: Array, c: Array) -> Array:
    """Return one leaf's share of what `measure` adds up.

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


def _once_written(vector: Array, flag: Array) -> Array:
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
def _weighted_sum(X: Array, G: Array, x: Array, g: Array, c: Array | None, w: Array) -> Array:
    """Return sum_i w_i (h_i - h), one leaf's share of the correction; c is None for 0."""

    def apart(X: Array, G: Array) -> Array:
        dg = _difference(G, g, w.dtype)
        return dg if c is None else dg - c * _difference(X, x, w.dtype)

    if tree.is_small(x) or w.size == 1:
        return (w.reshape(-1, *(1 for _ in x.shape)) * apart(X, G)).sum(0)
    # Term by term: compiled reductions over the leading axis are quick to compile, but very slow.
    return sum((w[i] * apart(X[i], G[i]) for i in range(w.size)), start=jnp.zeros((), w.dtype))


def _difference(stack: Array, one: Array, dtype: DTypeLike) -> Array:
    wide = jnp.promote_types(stack.dtype, dtype)
    return stack.astype(wide) - one.astype(wide)


def _product(a: Array, b: Array) -> Array:
    """Return Re (conj(a) b), entry by entry."""
    return jnp.real(jnp.conj(a) * b)
