"""What turns the tables of a window into weights, in JAX, and what is known of these."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.models import slope
from coco_denoiser.optax import certificate, solver
from coco_denoiser.optax.state import ESTIMATED, SOLVED, STALLED, UNCHANGED, UNKNOWN
from coco_denoiser.optax.tree import Number
from coco_denoiser.optax.window import Slot, Window, fold_pair


class Answer(NamedTuple):
    """How the newest gradient is averaged, and the `found` and `outcome` of a state."""

    weights: Array  # (K,); they sum to 1
    found: Sequence[Number]
    outcome: Array


@jax.jit  # so that it is compiled once where the caller is not compiled
def cocoercive(window: Window, newest: Slot, *, radius: Array, tol: Number) -> Answer:
    """Return the answer of the paper's projection."""
    if window.variances.size == 2:  # the closed form takes half the time
        return _two_points(window, newest, radius, tol)
    n, used = window.precisions, window.used
    pair = used[:, None] & used
    bounds, apart = radius * window.tables[0], jnp.where(pair, window.tables[2], 0.0)
    scale = apart.max()
    scale = jnp.where(scale > 0.0, scale, 1.0)
    apart, bounds = apart / scale, bounds / scale
    h = _embed(apart, newest, pair)
    total = n.sum()
    mean = (n[:, None] * h).sum(0) / jnp.where(total > 0.0, total, 1.0)
    h = jnp.where(used[:, None], h - mean, 0.0)
    W, lam = jnp.ones_like(bounds), jnp.zeros_like(bounds)
    if n.size > 1:
        W, lam = solver.solve(h, n, apart, bounds, tol=tol)
    judged = certificate.certify(h, n, bounds, W, lam)
    weights = lax.dynamic_index_in_dim(W, newest, keepdims=False)
    return _answer(weights, judged, lam.any(), tol)


def _two_points(window: Window, newest: Slot, radius: Array, tol: Number) -> Answer:
    """Return the answer of the closed form."""
    old = 1 - newest
    weight, _ = fold_pair(window, old, newest, radius)
    distance, _, apart = window.tables[:, old, newest]
    two = apart, radius * distance, window.variances[old], window.variances[newest]
    weights = jnp.where(jnp.arange(2) == newest, 1.0 - weight, weight)
    return _answer(weights, certificate.certify_two(*two, weight), weight > 0.0, tol)


def _answer(weights: Array, judged: tuple[Array, Array], moved: Array, tol: Number) -> Answer:
    gap, violation = judged
    good = (gap <= tol) & (violation <= tol)
    outcome = jnp.where(good, jnp.where(moved, SOLVED, UNCHANGED), STALLED)
    return Answer(weights, (gap, violation, UNKNOWN, UNKNOWN, UNKNOWN), outcome)


def _embed(apart: Array, origin: Slot, pair: Array) -> Array:
    """Return vectors (K, K) at these distances, by a pivoted Cholesky decomposition.

    The newest observation is the origin: what is near it keeps its digits.
    """
    K, squares = apart.shape[0], apart * apart
    row = lax.dynamic_index_in_dim(squares, origin, keepdims=False)
    gram = jnp.where(pair, 0.5 * (row[:, None] + row - squares), 0.0)
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


@partial(jax.jit, static_argnames="d")
def gaussian(window: Window, newest: Array, *, d: int, L: Number | None, tol: Number) -> Answer:
    """Return the answer of the Gaussian model, in d coordinates."""
    used, d = window.used, max(d, 1)
    x, _, g = jnp.where(used[:, None] & used, window.tables, 0.0)
    with jax.default_matmul_precision("highest"):
        fitted = slope.fit(x, g, window.precisions, newest[None], d, L=L, xp=jnp)
    # Before the second observation there is nothing to estimate.
    alone = used.sum() < 2
    weights = jnp.where(alone, jnp.arange(used.size) == newest, fitted.weights[0])
    estimated = jnp.stack([fitted.std[0], fitted.noise_std, fitted.scale * math.sqrt(d)])
    estimated = jnp.where(jnp.isnan(estimated) | alone, UNKNOWN, estimated)
    gap = fitted.gap[0]
    outcome = jnp.where(gap <= tol, ESTIMATED, STALLED)
    return Answer(weights, (gap, UNKNOWN, *estimated), outcome)
