"""coco_denoise(): the sliding window, as an Optax gradient transformation."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from coco_denoiser import _validation as check
from coco_denoiser.optax import _window as slots
from coco_denoiser.optax._curvature import centre_and_radius, check_curvature
from coco_denoiser.optax._solver import default_tolerance

_NO_PARAMS = (
    "You are using a transformation that requires the current value of parameters, but you are "
    "not passing `params` when calling `update`."
)


class CocoState(NamedTuple):
    """The window: arrays only.

    Attributes:
        points: the tree of the parameters, its leaves (K, *shape).
        gradients: the same, the noisy gradients.
        tables: small tables of distances, (K, K).
        gap: relative duality gap that the last step reached.
    """

    points: Any
    gradients: Any
    tables: slots.Tables
    gap: Array


def coco_denoise(
    L: float | Array,
    window: int,
    *,
    mu: float | Array = 0.0,
    tol: float | Array | None = None,
    max_iter: int | Array = 50,
    state_dtype: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Denoise each gradient together with the K - 1 observed before it.

    At every update, over the last K points x_i (the parameters) and noisy gradients g_i,

        argmin over theta of  sum_i ||theta_i - g_i||^2
        subject to  ||theta_m - theta_l - c (x_m - x_l)|| <= r ||x_m - x_l||  for all pairs,

    with c = (L + mu) / 2 and r = (L - mu) / 2; the newest theta replaces the updates. All leaves
    together are one point: norms run over the whole tree. Put it first in a chain, where updates
    are gradients still:

        tx = optax.chain(coco_denoise(L=4.0, window=8), optax.adam(1e-2))

    An observation that is not finite, or so large that its square is not, is passed through and
    leaves the window as it was. Where no constraint is active, updates are returned bit by bit.
    None in place of an update counts as zero, and stays None.

    Args:
        L: upper bound on the curvature of the objective; may be traced, and may change.
        window: how many observations are kept, K; an int that jit sees.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth; may be traced.
        tol: relative duality gap to reach; None for 1e-12 in float64 and 1e-6 in float32.
        max_iter: limit on the solver's steps.
        state_dtype: floating dtype of the window; None for each parameter's own, which holds
            points exactly. Sums are in float64 if a leaf of the window is, else in float32.

    Returns:
        A transformation that needs `params`. Its state takes 2 K copies of the parameters.
    """
    K = _window(window)
    check_curvature(L, mu)
    dtype = None if state_dtype is None else _floating(state_dtype)

    def init(params: Any) -> CocoState:
        points = jax.tree.map(lambda p: _stacked_zeros(p, K, dtype), params)
        gradients = jax.tree.map(jnp.copy, points)
        tables = slots.empty(K, slots.table_dtype(jax.tree.leaves(points)))
        return CocoState(points, gradients, tables, jnp.zeros_like(tables.centre))

    def update(
        updates: Any, state: CocoState, params: Any = None, **extra_args: Any
    ) -> tuple[Any, CocoState]:
        del extra_args
        if params is None:
            raise ValueError(_NO_PARAMS)
        given, updates = updates, _without_none(updates, params)
        old = state.tables
        number = old.centre.dtype
        c, r = centre_and_radius(L, mu, number)
        fits = _is_measurable(updates, params, c)

        kept = state.points, state.gradients
        # Written before it is read, and in a branch, so that compiled code updates in place: a
        # selection would make a copy of the row, and for large rows new memory is slow.
        points, gradients = lax.cond(
            fits,
            lambda: jax.tree.map(partial(_put, old.slot), kept, (params, updates)),
            lambda: kept,
        )
        newest = [
            (X, G, x.astype(X.dtype), g.astype(G.dtype))
            for X, G, x, g in zip(
                *(jax.tree.leaves(tree) for tree in (points, gradients, params, updates)),
                strict=True,
            )
        ]
        rows = sum((slots.new_rows(*leaf, c) for leaf in newest), start=jnp.zeros((3, K), number))
        tables = jax.tree.map(
            lambda new, kept: jnp.where(fits, new, kept), slots.insert(old, rows, c), old
        )
        w, gap = slots.newest_weights(
            tables,
            old.slot,
            r,
            tol=default_tolerance(number) if tol is None else tol,
            max_iter=max_iter,
        )
        moved = fits & jnp.any((w != 0.0) & (jnp.arange(K) != old.slot))
        leaves, tree = jax.tree.flatten(updates)

        def averaged() -> list[Array]:
            return [
                _shifted(g, slots.weighted_sum(*leaf, c, w))
                for g, leaf in zip(leaves, newest, strict=True)
            ]

        # A branch, and not a selection: what is not needed is not read, and the sum is not fused
        # into, and computed by, each of its uses.
        denoised = lax.cond(moved, averaged, lambda: leaves)
        gap = jnp.where(fits, gap, state.gap)
        denoised = jax.tree.unflatten(tree, denoised)
        return _with_none(denoised, given), CocoState(points, gradients, tables, gap)

    return optax.GradientTransformationExtraArgs(init, update)


def _stacked_zeros(p: Any, K: int, dtype: Any) -> Array:
    """Return zeros (K, *shape), laid out over devices as the parameter is."""
    zeros = jnp.zeros_like(p, dtype=_storage(p.dtype, dtype))
    return jnp.stack([zeros] * K)


def _storage(own: Any, wanted: Any) -> Any:
    if wanted is None:
        return own
    if jnp.issubdtype(own, jnp.complexfloating):
        return jnp.complex128 if wanted == jnp.float64 else jnp.complex64
    return wanted


def _without_none(updates: Any, params: Any) -> Any:
    def filled(g: Any, p: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, p) if g is None else g

    return jax.tree.map(filled, updates, params, is_leaf=lambda g: g is None)


def _with_none(updates: Any, given: Any) -> Any:
    def emptied(g: Any, u: Any) -> Any:
        return None if g is None else u

    return jax.tree.map(emptied, given, updates, is_leaf=lambda g: g is None)


def _put(slot: Array, stack: Array, row: Array) -> Array:
    after: Array = lax.dynamic_update_index_in_dim(stack, row.astype(stack.dtype), slot, 0)
    return after


def _is_measurable(updates: Any, params: Any, c: Array) -> Array:
    """Say whether both are finite, and distances to others like them cannot overflow."""
    points = sum((slots.squared_norm(p, c.dtype) for p in jax.tree.leaves(params)), 0.0)
    gradients = sum((slots.squared_norm(g, c.dtype) for g in jax.tree.leaves(updates)), 0.0)
    return jnp.isfinite(64.0 * (points + gradients + c * c * points))


def _shifted(g: Array, by: Array) -> Array:
    wide = jnp.promote_types(g.dtype, by.dtype)
    return (g.astype(wide) + by).astype(g.dtype)


def _window(value: Any) -> int:
    if isinstance(value, jax.Array):
        raise TypeError(
            f"window must be a Python int, got {value}: it is the length of arrays. With "
            "inject_hyperparams, pass static_args=('window', 'max_iter')."
        )
    K = check.count("window", value, optional=False)
    assert K is not None  # noqa: S101
    return K


def _floating(value: Any) -> Any:
    dtype = jnp.dtype(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"state_dtype must be a real floating dtype, got {dtype}.")
    return jax.dtypes.canonicalize_dtype(dtype)
