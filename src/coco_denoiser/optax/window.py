"""What a window knows, in JAX: the core's three tables, and how an observation enters them.

With dx = x_i - x_j and dh = h_i - h_j, h = g - c x, they hold ||dx||, ||dh|| and the cosine between
the two. As the centre c may change from step to step, the window stores points and gradients as
they came, and the tables are those for the centre of the last step. For another one, c + e,

    ||dh - e dx||^2 = ||dh||^2 - 2 e <dh, dx> + e^2 ||dx||^2.

As long as c stays, nothing is added and nothing is lost. A new observation changes one row.
"""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array

Slot: TypeAlias = int | Array


class Window(NamedTuple):
    """K by K numbers, named as in `coco_denoiser.window`; slots in use are the first ones.

    Those of a filter, whose one slot stands for everything, are of the past and the newest.
    """

    count: Array  # type: ignore[assignment]  # of slots in use; Optax's states have it, too
    next: Array  # the slot that the next observation takes
    centre: Array  # c of the tables
    tables: Array  # (3, K, K): distances between points, cosines, distances between residuals
    variances: Array  # (K,), relative to those of other observations; 0 for empty slots

    @property
    def used(self) -> Array:
        """Which slots are in use, (K,)."""
        return self.variances > 0.0

    @property
    def precisions(self) -> Array:
        """Inverse variances, (K,); 0 for empty slots."""
        return jnp.where(self.used, 1.0 / _or_one(self.variances), 0.0)


def empty(K: int, zero: Array) -> Window:
    """Return a window without observations."""
    # No array twice: a buffer cannot be donated twice.
    numbers = [jnp.zeros_like(zero, kind) for kind in (jnp.int32, jnp.int32, zero.dtype)]
    return Window(*numbers, *(jnp.zeros_like(zero, shape=shape) for shape in ((3, K, K), (K,))))


def row_of(sums: Array) -> Array:
    """Return distances, cosines and distances (3, K), of sums of squares and products (3, K)."""
    dx, dh = jnp.sqrt(sums[0]), jnp.sqrt(sums[2])
    return jnp.stack([dx, _cosine(sums[1] / _or_one(dx), dh), dh])


def _cosine(product: Array, length: Array) -> Array:
    return jnp.clip(product / _or_one(length), -1.0, 1.0)


def _or_one(length: Array) -> Array:
    return jnp.where(length > 0.0, length, 1.0)


def recentred(window: Window, centre: Array) -> Window:
    """Return the window with the tables of a centre."""
    e, (dx, cosines, dh) = centre - window.centre, window.tables
    top = jnp.maximum(dh, jnp.abs(e * dx))
    a, b = dh / _or_one(top), e * dx / _or_one(top)
    # A sum of squares that are not negative, which cannot overflow.
    length = jnp.sqrt(jnp.maximum((a - b) ** 2 + 2.0 * a * b * (1.0 - cosines), 0.0))
    moved = jnp.stack([dx, _cosine(a * cosines - b, length), top * length])
    return window._replace(centre=centre, tables=jnp.where(e == 0.0, window.tables, moved))


def insert(window: Window, row: Array, variance: Array, slot: Slot) -> Window:
    """Return the window with another row (3, K), and another variance, of one slot."""
    here = jnp.arange(window.variances.size) == slot
    row = jnp.where(here, 0.0, row)
    tables = jnp.where(here, row[:, :, None], window.tables)
    tables = jnp.where(here[:, None], row[:, None, :], tables)
    return window._replace(tables=tables, variances=jnp.where(here, variance, window.variances))


def admit(window: Window, row: Array, variance: Array, newest: Slot) -> Window:
    """Return the window with a new observation in the next slot; in a filter, after the past."""
    after = insert(window, row, variance, newest)
    following = (window.next + 1) % window.variances.size
    return after._replace(count=jnp.maximum(window.count, newest + 1), next=following)


def fold_pair(window: Window, old: Slot, new: Slot, radius: Array) -> tuple[Array, Array]:
    """Return the weight with which one observation is merged into another, and the variance then.

    The second half of their two-point problem, with the variance that fixed weights would give it.
    An empty slot has no weight.
    """
    distance, _, apart = window.tables[:, old, new]
    rho, older, newer = radius * distance, window.variances[old], window.variances[new]
    # At coinciding points, even equal gradients count as two observations.
    within = rho / jnp.maximum(apart, _or_one(rho))
    share = jnp.where(older > 0.0, newer / _or_one(older + newer), 0.0)
    weight = (1.0 - within) * share
    return weight, (1.0 - weight) ** 2 * newer + weight**2 * older


def settle(window: Window, radius: Array) -> Window:
    """Return that of a filter whose newest observation, if any, is merged into the past."""
    past, newest = window.variances
    merged = jnp.where(newest > 0.0, fold_pair(window, 0, 1, radius)[1], past)
    count, first = jnp.minimum(window.count, 1), jnp.zeros_like(window.next)
    return window._replace(count=count, next=first, variances=jnp.stack([merged, 0.0 * merged]))
