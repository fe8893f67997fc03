"""A step of a stream, in JAX, in the core's four calls: measure, admit, model, commit."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.optax import passes
from coco_denoiser.optax import window as windows
from coco_denoiser.optax.models import Answer
from coco_denoiser.optax.state import REFUSED, UNKNOWN, CocoState
from coco_denoiser.optax.tree import Tree
from coco_denoiser.optax.window import Slot, Window

Model: TypeAlias = Callable[[Window, Slot], Answer]

# Of points, and of residuals, how far they may be apart: a square fits, and so do sums of some.
_FARTHEST = {"float64": 1e150, "float32": 1e18}


def step(
    state: CocoState,
    new: passes.Two,
    variance: Array,
    model: Model,
    *,
    centre: Array | None,
    radius: Array | None,
) -> tuple[Tree, CocoState]:
    """Take an observation into the window; return its gradient, denoised.

    Args:
        state: the window.
        new: the point and its gradient, trees.
        variance: relative noise variance of the observation.
        model: turns the tables, and the place of the newest observation in them, into weights.
        centre: that of the curvature bounds; None for a model that has none.
        radius: theirs, by which the observation that leaves is merged into the next; None if it
            is dropped. A window of two that merges is a filter, whose one slot stands for
            everything.
    """
    held, window = state[:2], state.window
    is_filter = radius is not None and window.variances.size == 2
    if centre is not None:  # of a filter's tables nothing is kept
        moved = window._replace(centre=centre)
        window = moved if is_filter else windows.recentred(window, centre)
    newest = 1 if is_filter else window.next
    row = windows.row_of(passes.measure(held, new, window.centre))
    fits = _fits(row, variance)
    after = windows.admit(window, row, variance, newest)
    if radius is not None and not is_filter:
        held, after = _fold_oldest(held, new, window, after, radius, fits)
    window = jax.tree.map(partial(jnp.where, fits), after, state.window)
    answer = model(window, newest)
    if radius is not None and is_filter:
        theta, held = passes.commit_merged(held, new, answer.weights[0], after.centre, fits)
        window = windows.settle(window, radius)
    else:
        theta, held = passes.commit(held, new, newest, answer.weights, centre, fits)
    found = jnp.where(fits, jnp.stack(answer.found, dtype=row.dtype), UNKNOWN)
    outcome = jnp.where(fits, answer.outcome, REFUSED).astype(jnp.int32)
    refused = state.refused + ~fits
    return theta, CocoState(*held, window, found, outcome, refused, state.version)


def _fits(row: Array, variance: Array) -> Array:
    """Return whether an observation is in range: its variance, and how far it is from others."""
    near = (row[::2] <= _FARTHEST[row.dtype.name]).all()
    return near & jnp.isfinite(variance) & (variance > 0.0)


def _fold_oldest(
    held: passes.Two, new: passes.Two, before: Window, after: Window, radius: Array, fits: Array
) -> tuple[passes.Two, Window]:
    """Merge the observation that leaves, if there is one, into the next."""
    slots = before.next, after.next
    weight, variance = windows.fold_pair(before, *slots, radius)

    def merged() -> tuple[passes.Two, Window]:
        # Measured, and not derived from the tables: they do not tell <dx, dh> of a mixture.
        vectors, sums = passes.merge(held, new, slots, weight, before.centre)
        return vectors, windows.insert(after, windows.row_of(sums), variance, slots[1])

    found: tuple[passes.Two, Window] = lax.cond(
        fits & (weight > 0.0), merged, lambda: (held, after)
    )
    return found
