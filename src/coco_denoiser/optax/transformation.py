"""coco_denoise(): the sliding window, as an Optax gradient transformation."""

from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from coco_denoiser import _validation as check
from coco_denoiser.models.choice import ModelName
from coco_denoiser.optax import _edge
from coco_denoiser.optax import _models as models
from coco_denoiser.optax import _narrow as narrow
from coco_denoiser.optax import _window as slots
from coco_denoiser.optax._curvature import centre_and_radius
from coco_denoiser.solution import Status

_Leaf: TypeAlias = tuple[Array, Array, Array, Array]


class CocoState(NamedTuple):
    """The window: arrays only. Numbers that the model does not provide are infinite.

    Attributes:
        points: the tree of the parameters, its leaves (K, *shape).
        gradients: the same, the noisy gradients.
        tables: small tables of distances, (K, K).
        gap: relative duality gap that the last step reached; for the Gaussian model, the
            relative residual of the linear system.
        std: standard error of every coordinate of the last gradient returned.
        noise_std: standard deviation of the noise of an observation of variance 1.
        curvature: size of the slope that the Gaussian model found, comparable with L.
        outcome: which `status` it is, as a number.
        reference: with storage="bfloat16", what points are stored as differences from.
    """

    points: Any
    gradients: Any
    tables: slots.Products
    gap: Array
    std: Array
    noise_std: Array
    curvature: Array
    outcome: Array
    reference: narrow.Reference | None = None

    @property
    def status(self) -> Status:
        """How the last step ended, and by which model; not inside compiled functions."""
        return models.STATUS[int(self.outcome)]


class FoldState(NamedTuple):
    """The past of a window of two that folds: arrays only.

    Attributes:
        points: the last point, a tree like the parameters.
        gradients: its denoised gradient.
        precision: that of the gradient, in fresh observations; 0 if there is none.
    """

    points: Any
    gradients: Any
    precision: Array


def coco_denoise(
    L: float | Array | None = None,
    window: int | Literal["auto"] = "auto",
    *,
    model: ModelName | None = None,
    mu: float | Array = 0.0,
    tol: float | Array | None = None,
    max_iter: int | Array = 50,
    forget: Literal["drop", "fold"] = "drop",
    noise_std: float | Array | None = None,
    state_dtype: Any = None,
    storage: Literal["bfloat16"] | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Denoise each gradient together with the K - 1 observed before it.

    Without L, gradients are averaged as those of a field with a random slope
    (`model="gaussian"`), whose size and noise are estimated from the window; see
    `coco_denoiser.Denoiser`. Put it first in a chain, where the updates are still gradients:

        tx = optax.chain(coco_denoise(), optax.sgd(1e-2))

    The Gaussian model is for SGD without momentum. In front of Adam and the like, which divide by
    the size of the gradients, steps grow; momentum averages over time too, and both delay. A
    transformation does not see what follows it in a chain, so nothing warns of it.

    With L (`model="cocoercive"`), at every update, over the last K points $x_i$ (the parameters)
    and noisy gradients $g_i$,

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 / v_i \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$; the newest $\theta$ replaces the updates. All
    leaves together are one point: norms run over the whole tree.

    An observation that is not finite, or so large that its square is not, is passed through and
    leaves the window as it was. Where nothing is averaged, updates are returned unchanged, bit for
    bit.
    None in place of an update counts as zero, and stays None.

    Args:
        L: upper bound on the curvature of the objective; may be traced, and may change. The
            Gaussian model takes it as a cap on its slope.
        window: how many observations are kept, K; an int that jit sees. "auto" is 32 for the
            Gaussian model, 8 for the other.
        model: "gaussian" or "cocoercive"; None is the latter if L is given.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth; may be traced.
        tol: relative gap to reach; None for 1e-12 in float64 and 1e-6 in float32.
        max_iter: limit on the solver's steps.
        forget: what becomes of the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, which then counts for more. With window=2,
            folding is a recursive filter, which needs no solver. Not for the Gaussian model.
        noise_std: for the Gaussian model, the standard deviation of every coordinate of the
            noise, if it is known; otherwise it is estimated too. May be traced.
        state_dtype: floating dtype of the window; None for each parameter's own, which holds
            points exactly. Sums are in float64 if a leaf of the window is, else in float32.
        storage: "bfloat16" halves the memory of the window: gradients are stored in bfloat16,
            points as their differences from one in `state_dtype`, and sums stay as they are.

    Returns:
        A transformation that needs `params`. Its `update` takes `noise_variance`, that of this
        observation relative to the others', as an extra argument. Its state takes 2 K copies of
        the parameters, or 2 copies with window=2 and forget="fold".
    """
    found = models.choose(model, L, mu, tol=tol, max_iter=max_iter, noise_std=noise_std)
    K = models.size(window, found)
    dtype = None if state_dtype is None else _floating(state_dtype)
    short = narrow.kept(storage)
    folds = check.forgetting(forget, K) == "fold"
    if folds and short is not None:
        raise ValueError(
            "storage='bfloat16' goes with forget='drop' only: roundings would add up in what is "
            "folded. Leave one of them out."
        )
    if folds and isinstance(found, models.Gaussian):
        raise ValueError(
            "forget='fold' goes with model='cocoercive' only: folded gradients are no "
            "observations. Give L without model='gaussian', or use forget='drop'."
        )
    if folds and K == 2:
        return _recursive_filter(L, mu, dtype)

    def init(params: Any) -> CocoState:
        params = _edge.parameters(params)
        reference = None if short is None else narrow.start(params, dtype, short)
        kept = params if reference is None else reference.move
        points = jax.tree.map(lambda p: _stacked_zeros(p, K, None if reference else dtype), kept)
        gradients = jax.tree.map(jnp.copy, points)
        tables = slots.empty(K, jax.tree.leaves(reference.at if reference else points))
        report = models.nothing(tables.centre)
        return CocoState(points, gradients, tables, *report)._replace(reference=reference)

    def update(
        updates: Any, state: CocoState, params: Any = None, *, noise_variance: Any = 1.0, **_: Any
    ) -> tuple[Any, CocoState]:
        given = updates
        updates, params = _edge.observation(updates, params, state.points, (K,))
        c, r = found.bounds(state.gap.dtype)
        precision = _edge.precision(noise_variance, c.dtype)
        fits = _is_measurable(updates, params, c, short) & jnp.isfinite(precision) & (precision > 0)
        old, gradients = slots.recentred(state.tables, c), state.gradients
        if folds:
            old, gradients = _folded(old, state.points, gradients, r, fits)

        at, moves, reference = params, None, state.reference
        if reference is not None:
            reference = narrow.follow(reference, params, old.slot, old.size, fits)
            at = narrow.relative(reference, params)
            before = (jnp.arange(K) > old.slot).astype(c.dtype)  # it moved to where it is
            moves = [(move, before) for move in jax.tree.leaves(reference.move)]
        kept = state.points, gradients
        # Written before it is read, and in a branch, so that compiled code updates in place: a
        # selection would make a copy of the row, and for large rows new memory is slow.
        points, gradients = lax.cond(
            fits, lambda: jax.tree.map(partial(_put, old.slot), kept, (at, updates)), lambda: kept
        )
        newest = _leaf_by_leaf(points, gradients, at, updates)
        rows = _rows(newest, K, c, moves)
        tables = _if(fits, slots.insert(old, rows, precision), state.tables)
        w, report = found.average(tables, old.slot, _coordinates(params))
        moved = fits & (w[old.slot] != 1.0)
        leaves, tree = jax.tree.flatten(updates)

        def averaged() -> list[Array]:
            shifts: list[Any] = moves or [None] * len(leaves)
            centre = None if isinstance(found, models.Gaussian) else c  # whose is 0
            return [
                _shifted(g, slots.weighted_sum(*leaf, centre, w, moved))
                for g, leaf, moved in zip(leaves, newest, shifts, strict=True)
            ]

        # A branch, and not a selection: what is not needed is not read, and the sum is not fused
        # into, and computed by, each of its uses.
        denoised = lax.cond(moved, averaged, lambda: leaves)
        report = _if(fits, report, models.Report(*state[3:8]))
        denoised = jax.tree.unflatten(tree, denoised)
        after = CocoState(points, gradients, tables, *report)._replace(reference=reference)
        return _with_none(denoised, given), after

    return optax.GradientTransformationExtraArgs(init, update)


def _recursive_filter(L: Any, mu: Any, dtype: Any) -> optax.GradientTransformationExtraArgs:
    """Fold all the past into each gradient: a window of two, whose fold is the answer itself."""

    def init(params: Any) -> FoldState:
        points = jax.tree.map(lambda p: _zeros(p, dtype), _edge.parameters(params))
        nothing = slots.origin(jax.tree.leaves(points))
        return FoldState(points, jax.tree.map(jnp.copy, points), nothing)

    def update(
        updates: Any, state: FoldState, params: Any = None, *, noise_variance: Any = 1.0, **_: Any
    ) -> tuple[Any, FoldState]:
        given = updates
        updates, params = _edge.observation(updates, params, state.points, ())
        number = state.precision.dtype
        c, r = centre_and_radius(L, mu, number)
        pairs = _leaf_by_leaf(state.points, state.gradients, params, updates)
        sums = sum((slots.filter_sums(*pair, c) for pair in pairs), start=jnp.zeros(3, number))
        own = _edge.precision(noise_variance, number)
        fits = _is_small(sums[2]) & jnp.isfinite(own) & (own > 0.0)
        weight, precision = slots.fold(
            jnp.sqrt(sums[1]), r * jnp.sqrt(sums[0]), state.precision, own
        )
        moved = fits & (weight > 0.0)
        leaves, tree = jax.tree.flatten(updates)
        points, gradients, denoised = [], [], []
        for g, (X, G, x, rounded) in zip(leaves, pairs, strict=True):
            by = slots.weighted_sum(X[None], G[None], x, rounded, c, weight[None])
            after = jnp.where(fits, jnp.where(moved, _shifted(rounded, by), rounded), G)
            # Not fused into its uses, which read it instead. Written in this order, G, X and at
            # last the parameters, each can take the place of the old one, and nothing is copied.
            after = lax.optimization_barrier(after)  # type: ignore[no-untyped-call]
            here = jnp.where(slots.once_written(after, fits), x, X)
            done = slots.once_written(here, fits)
            denoised.append(
                jnp.where(done, after, g)
                if after.dtype == g.dtype
                else jnp.where(moved, _shifted(g, by), g)
            )
            points.append(here)
            gradients.append(after)
        return _with_none(jax.tree.unflatten(tree, denoised), given), FoldState(
            jax.tree.unflatten(tree, points),
            jax.tree.unflatten(tree, gradients),
            jnp.where(fits, precision, state.precision),
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _folded(
    tables: slots.Products, points: Any, gradients: Any, r: Array, fits: Array
) -> tuple[slots.Products, Any]:
    """Mix the observation that is about to leave, if there is one, into its successor."""
    old, heir, c = tables.slot, slots.successor(tables), tables.centre
    weight, precision = slots.leaving(tables, r)

    def mix(X: Array, G: Array) -> Array:
        pair = X[old][None], G[old][None], X[heir], G[heir]
        return _put(heir, G, _shifted(G[heir], slots.weighted_sum(*pair, c, weight[None])))

    def mixed() -> tuple[slots.Products, Any]:
        after = jax.tree.map(mix, points, gradients)
        window = zip(jax.tree.leaves(points), jax.tree.leaves(after), strict=True)
        # Measured, and not derived from the tables: they do not tell <dx, dh> of a mixture.
        rows = _rows([(X, G, X[heir], G[heir]) for X, G in window], tables.precision.size, c)
        return slots.replace(tables, heir, rows, precision), after

    found: tuple[slots.Products, Any] = lax.cond(
        fits & (weight > 0.0), mixed, lambda: (tables, gradients)
    )
    return found


def _if(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _coordinates(params: Any) -> int:
    """Return the number of real coordinates of a point."""
    return sum(p.size * (1 + jnp.iscomplexobj(p)) for p in jax.tree.leaves(params))


def _rows(leaves: list[_Leaf], K: int, c: Array, moves: Any = None) -> Array:
    each = zip(leaves, moves or [None] * len(leaves), strict=True)
    shares = (slots.new_rows(*leaf, c, moved) for leaf, moved in each)
    return sum(shares, start=jnp.zeros((3, K), c.dtype))


def _stacked_zeros(p: Any, K: int, dtype: Any) -> Array:
    """Return zeros (K, *shape), laid out over devices as the parameter is."""
    return jnp.stack([_zeros(p, dtype)] * K)


def _zeros(p: Any, dtype: Any) -> Array:
    return jnp.zeros_like(p, dtype=_storage(p.dtype, dtype))


def _storage(own: Any, wanted: Any) -> Any:
    if wanted is None:
        return own
    if jnp.issubdtype(own, jnp.complexfloating):
        return jnp.complex128 if wanted == jnp.float64 else jnp.complex64
    return wanted


def _leaf_by_leaf(points: Any, gradients: Any, params: Any, updates: Any) -> list[_Leaf]:
    """Return what is held and what is new of each leaf, the new as it would be stored."""
    trees = (jax.tree.leaves(tree) for tree in (points, gradients, params, updates))
    return [(X, G, x.astype(X.dtype), g.astype(G.dtype)) for X, G, x, g in zip(*trees, strict=True)]


def _with_none(updates: Any, given: Any) -> Any:
    def emptied(g: Any, u: Any) -> Any:
        return None if g is None else u

    return jax.tree.map(emptied, given, updates, is_leaf=lambda g: g is None)


def _put(slot: Array, stack: Array, row: Array) -> Array:
    after: Array = lax.dynamic_update_index_in_dim(stack, row.astype(stack.dtype), slot, 0)
    return after


def _is_measurable(updates: Any, params: Any, c: Array, short: Any) -> Array:
    """Say whether both are finite, and distances to others like them cannot overflow."""
    points = sum((slots.squared_norm(p, c.dtype) for p in jax.tree.leaves(params)), 0.0)
    gradients = sum((slots.squared_norm(g, c.dtype) for g in jax.tree.leaves(updates)), 0.0)
    total = points + gradients + c * c * points
    # bfloat16 reaches as far as float32.
    return _is_small(total if short is None else total.astype(jnp.float32))


def _is_small(squares: Array) -> Array:
    return jnp.isfinite(64.0 * squares)


def _shifted(g: Array, by: Array) -> Array:
    wide = jnp.promote_types(g.dtype, by.dtype)
    return (g.astype(wide) + by).astype(g.dtype)


def _floating(value: Any) -> Any:
    dtype = jnp.dtype(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"state_dtype must be a real floating dtype, got {dtype}.")
    return jax.dtypes.canonicalize_dtype(dtype)
