"""A window in bfloat16: gradients as they are, points as differences from a reference.

Points in bfloat16 would lose the differences between close ones. So slot i holds x_i - R, and the
reference R, in full, follows the parameters: it moves to every K-th point, the one that takes
slot 0. Slots that were written before it moved still refer to the one before, R - move. Every
move is one that bfloat16 holds, so that nothing is lost by it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser import _validation as check


class Reference(NamedTuple):
    """What the points of a window refer to: two trees like the parameters."""

    at: Any
    move: Any  # of its last change


def kept(storage: Any) -> Any:
    """Return the dtype to store numbers in; None for their own."""
    if storage is None:
        return None
    return jnp.dtype(check.one_of("storage", storage, ("bfloat16",)))


def start(params: Any, dtype: Any, narrow: Any) -> Reference:
    """Return a reference that will be the first point; complex parameters are kept in full."""

    def zeros(p: Any) -> Array:
        own = jnp.promote_types(p.dtype if dtype is None else dtype, jnp.float32)
        if jnp.iscomplexobj(p):
            own = jnp.promote_types(own, jnp.complex64)
        return jnp.zeros_like(p, dtype=own)

    def short(p: Any) -> Array:
        return jnp.zeros_like(p, dtype=zeros(p).dtype if jnp.iscomplexobj(p) else narrow)

    return Reference(jax.tree.map(zeros, params), jax.tree.map(short, params))


def follow(reference: Reference, params: Any, slot: Array, size: Array, fits: Array) -> Reference:
    """Return the reference for a new point, which is moved if the point takes slot 0."""

    def moved() -> Reference:
        def shift(R: Array, m: Array, x: Array) -> Array:
            return jnp.where(size == 0, 0.0, x.astype(R.dtype) - R).astype(m.dtype)

        def place(R: Array, m: Array, x: Array) -> Array:
            return jnp.where(size == 0, x.astype(R.dtype), R + m.astype(R.dtype))

        move = jax.tree.map(shift, reference.at, reference.move, params)
        return Reference(jax.tree.map(place, reference.at, move, params), move)

    found: Reference = lax.cond(fits & (slot == 0), moved, lambda: reference)
    return found


def relative(reference: Reference, params: Any) -> Any:
    """Return points as differences from the reference."""
    return jax.tree.map(lambda x, R: x.astype(R.dtype) - R, params, reference.at)
