"""coco_denoise(): the sliding window, as an Optax gradient transformation."""

import math
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from coco_denoiser import _validation as check
from coco_denoiser import gaussian
from coco_denoiser.optax import solver, tree
from coco_denoiser.optax import window as windows
from coco_denoiser.problem import centre_and_radius
from coco_denoiser.solution import Status
from coco_denoiser.stream import GAUSSIAN_WINDOW
from coco_denoiser.typing import ModelName

_Leaf: TypeAlias = tuple[Array, Array, Array, Array]
_STATUS = tuple(Status)
_STALLED, _UNCHANGED = _STATUS.index(Status.STALLED), _STATUS.index(Status.UNCHANGED)
_WINDOW = 16  # of the co-coercive model, as in NumPy and PyTorch


class CocoState(NamedTuple):
    """The window, and what the last update found: arrays only.

    Attributes:
        points: the tree of the parameters, its leaves (K, *shape).
        gradients: the same, the noisy gradients.
        tables: small tables of distances, (K, K).
        gap: relative duality gap that the last update reached; for the Gaussian model, the
            relative residual of the linear system.
        estimates: `std`, `noise_std` and `curvature`; infinite where they are unknown, and not
            NaN, so that `jax_debug_nans` can be used.
        outcome: which `status` it is, as a number.
    """

    points: Any
    gradients: Any
    tables: windows.Tables
    gap: Array
    estimates: Array
    outcome: Array

    @property
    def std(self) -> Array:
        """Standard error of every coordinate of the last gradient returned; NaN if unknown."""
        return self._estimate(0)

    @property
    def noise_std(self) -> Array:
        """Standard deviation of the noise of an observation of variance 1; NaN if unknown."""
        return self._estimate(1)

    @property
    def curvature(self) -> Array:
        """Size of the slope that the Gaussian model found, comparable with L; NaN if unknown."""
        return self._estimate(2)

    @property
    def status(self) -> Status:
        """How the last update ended, and by which model; not inside compiled functions."""
        return _STATUS[int(self.outcome)]

    def _estimate(self, index: int) -> Array:
        value = self.estimates[..., index]
        return jnp.where(jnp.isinf(value), jnp.nan, value)


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
    forget: Literal["drop", "fold"] = "drop",
    noise_std: float | Array | None = None,
    state_dtype: Any = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Denoise each gradient together with the K - 1 observed before it.

    At every update, over the last K points $x_i$ (the parameters) and noisy gradients $g_i$,

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 / v_i \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$; the newest $\theta$ replaces the updates. All
    leaves together are one point: norms run over the whole tree. Put it in front of SGD, where
    updates are still gradients:

        tx = optax.chain(coco_denoise(L=4.0), optax.sgd(0.1))

    With `model="gaussian"`, which needs no L, gradients are averaged as those of a field with a
    random slope, whose size and noise are estimated from the window; see
    `coco_denoiser.Denoiser`.

    Adam and similar methods normalise gradients, so denoising increases their effective step
    size; momentum averages over time as well, and the delays add up. A transformation does not
    see what follows it in a chain, so nothing warns of either.

    An observation that is not finite, or so large that its square is not, is skipped: the
    gradient is passed on unchanged, and the window stays as it was. Where nothing is averaged,
    updates are returned unchanged, bit for bit. None in place of an update counts as zero, and
    stays None.

    Args:
        L: upper bound on the curvature of the objective; may be traced, and may change. The
            Gaussian model takes it as a cap on its slope.
        window: how many observations are kept, K; a Python int. "auto" is 32 for the Gaussian
            model, 16 for the other.
        model: "cocoercive" (the default), which needs L, or "gaussian".
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth; may be traced.
        tol: relative gap to reach; None for 1e-9 in float64 and 1e-6 in float32, which cannot
            resolve less.
        forget: what becomes of the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, which then counts for more. With window=2,
            folding is a recursive filter, which needs no solver. Not for the Gaussian model.
        noise_std: for the Gaussian model, the standard deviation of every coordinate of the
            noise, if it is known; otherwise it is estimated too. May be traced.
        state_dtype: floating dtype of the window; None for each parameter's own, which holds
            points exactly. Sums are in float64 if a leaf of the window is, else in float32.

    Returns:
        A transformation that needs `params`. Its `update` takes `noise_variance`, that of this
        observation relative to the others', as an extra argument. Its state takes 2 K copies of
        the parameters, or 2 copies with window=2 and forget="fold".
    """
    is_gaussian = _is_gaussian(model, L, mu, noise_std, forget)
    K = _size(window, GAUSSIAN_WINDOW if is_gaussian else _WINDOW)
    for name, value in (("tol", tol), ("noise_std", noise_std)):
        if value is not None:
            _check(name, value, check.positive)
    dtype = None if state_dtype is None else _floating(state_dtype)
    folds = check.forgetting(forget, K) == "fold"
    if folds and K == 2:
        return _recursive_filter(L, mu, dtype)

    def init(params: Any) -> CocoState:
        params = tree.parameters(params)
        points = jax.tree.map(lambda p: jnp.stack([_zeros(p, dtype)] * K), params)
        gradients = jax.tree.map(jnp.copy, points)
        tables = windows.empty(K, jax.tree.leaves(points))
        return CocoState(points, gradients, tables, *_nothing(tables.centre))

    def update(
        updates: Any, state: CocoState, params: Any = None, *, noise_variance: Any = 1.0, **_: Any
    ) -> tuple[Any, CocoState]:
        given = updates
        updates, params = tree.observation(updates, params, state.points, (K,))
        number = state.gap.dtype
        c, r = (jnp.zeros((), number), None) if is_gaussian else _centre_and_radius(L, mu, number)
        precision = tree.precision(noise_variance, number)
        g = jax.tree.leaves(updates)
        new = tree.joined(list(zip(jax.tree.leaves(params), g, strict=True)))
        fits = _is_measurable(new, c) & jnp.isfinite(precision) & (precision > 0)
        old, gradients = windows.recentred(state.tables, c), state.gradients
        if folds:
            old, gradients = _folded(old, state.points, gradients, r, fits)
        points, gradients = (
            _written(old.slot, fits, stacks, rows)
            for stacks, rows in ((state.points, params), (gradients, updates))
        )
        newest = _leaf_by_leaf(points, gradients, params, updates)
        rows = _rows(tree.joined(newest), K, c)
        tables = _if(fits, windows.insert(old, rows, precision), state.tables)
        reach = solver.precision(number).tol if tol is None else tol
        if is_gaussian:
            d = _coordinates(params)
            w, report = _estimate(tables, old.slot, d, L=L, noise_std=noise_std, tol=reach)
        else:
            w, report = _project(tables, old.slot, r, tol=reach)
        moved = fits & (w[old.slot] != 1.0)

        def averaged() -> list[Array]:
            centre = None if is_gaussian else c
            return [
                _shifted(each, windows.weighted_sum(*leaf, centre, w))
                for each, leaf in zip(g, newest, strict=True)
            ]

        # A branch, and not a selection: what is not needed is not read, and the sum is not fused
        # into, and computed by, each of its uses.
        theta: list[Array] = lax.cond(moved, averaged, lambda: g)
        denoised = jax.tree.unflatten(jax.tree.structure(updates), theta)
        report = _if(fits, report, state[3:])
        return _with_none(denoised, given), CocoState(points, gradients, tables, *report)

    return optax.GradientTransformationExtraArgs(init, update)


def _is_gaussian(model: Any, L: Any, mu: Any, noise_std: Any, forget: Any) -> bool:
    """Say which model is asked for, and refuse settings that it does not have."""
    for name, value in (("L", L), ("mu", mu)):
        _check(name, value)
    traced = [isinstance(value, jax.core.Tracer) for value in (L, mu)]
    own = {
        "mu": None if traced[1] or mu == 0.0 else mu,
        "forget='fold'": forget if forget == "fold" else None,
    }
    chosen = check.model(model, L, cocoercive=own, gaussian={"noise_std": noise_std})
    if chosen == "gaussian" and L is not None:
        _check("L", L, check.positive)
    elif chosen == "cocoercive" and not any(traced):
        check.curvature(tree.plain(L), tree.plain(mu))
    return chosen == "gaussian"


def _check(name: str, value: Any, rule: Any = None) -> None:
    """Refuse a schedule or a word in place of a number, and numbers that break a rule."""
    if callable(value):
        raise TypeError(
            f"{name} must be a number, got the function {value!r}. For a schedule, "
            "optax.inject_hyperparams(coco_denoise, static_args='window')"
            f"({name}=schedule, ...) calls it at every update."
        )
    if isinstance(value, str):
        raise TypeError(
            f"{name} must be a number, got {value!r}. coco_denoiser.optax.hessian_bounds "
            "computes L and mu of a loss."
        )
    if rule is not None and not isinstance(value, jax.core.Tracer):
        rule(name, tree.plain(value))


def _size(window: Any, default: int) -> int:
    if isinstance(window, jax.Array):
        raise TypeError(
            f"window must be a Python int, got {window}: it is the length of arrays. With "
            "inject_hyperparams, pass static_args='window'."
        )
    return default if window == "auto" else check.count("window", window, optional=False) or 0


def _centre_and_radius(L: Any, mu: Any, dtype: Any) -> tuple[Array, Array]:
    c, r = centre_and_radius(jnp.asarray(L, dtype), jnp.asarray(mu, dtype))  # type: ignore[arg-type]
    return jnp.asarray(c), jnp.asarray(r)


def _nothing(like: Array) -> tuple[Array, Array, Array]:
    """Return gap, estimates and outcome of a window without observations."""
    unknown = jnp.full_like(like, jnp.inf, shape=(3,))
    return jnp.zeros_like(like), unknown, jnp.full_like(like, _UNCHANGED, jnp.int32)


def _project(
    tables: windows.Tables, slot: Array, r: Any, *, tol: Any
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Return the weights (K,) of the paper's projection for the slot, and what is known of it."""
    w, gap = windows.newest_weights(tables, slot, r, tol=tol)
    same = jnp.where(w[slot] == 1.0, _UNCHANGED, _STATUS.index(Status.SOLVED))
    outcome = jnp.where(gap <= tol, same, _STALLED).astype(jnp.int32)
    return w, (gap, _nothing(tables.centre)[1], outcome)


def _estimate(
    tables: windows.Tables, slot: Array, d: int, *, L: Any, noise_std: Any, tol: Any
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Return the weights (K,) of the Gaussian model for the slot, and what is known of it."""
    used = tables.precision > 0.0
    points, gradients = (
        jnp.sqrt(jnp.where(used[:, None] & used, squares, 0.0))
        for squares in (tables.point, tables.residual)
    )
    d = max(d, 1)
    with jax.default_matmul_precision("highest"):
        fitted = gaussian.fit(
            points, gradients, tables.precision, slot[None], d, L=L, noise_std=noise_std, xp=jnp
        )
    # Before the second observation there is nothing to estimate.
    alone = used.sum() < 2
    w = jnp.where(alone, jnp.arange(used.size) == slot, fitted.weights[0])
    std = jnp.inf if noise_std is None else noise_std / jnp.sqrt(tables.precision[slot])
    known = jnp.asarray([std, jnp.inf if noise_std is None else noise_std, jnp.inf], w.dtype)
    found = jnp.stack([fitted.std[0], fitted.noise_std, fitted.scale * math.sqrt(d)])
    estimates = jnp.where(alone, known, jnp.where(jnp.isnan(found), jnp.inf, found))
    gap = jnp.where(alone, 0.0, fitted.gap[0])
    outcome = jnp.where(gap <= tol, _STATUS.index(Status.ESTIMATED), _STALLED)
    return w, (gap, estimates, outcome.astype(jnp.int32))


def _recursive_filter(L: Any, mu: Any, dtype: Any) -> optax.GradientTransformationExtraArgs:
    """Fold all the past into each gradient: a window of two, whose fold is the answer itself."""

    def init(params: Any) -> FoldState:
        points = jax.tree.map(lambda p: _zeros(p, dtype), tree.parameters(params))
        nothing = windows.origin(jax.tree.leaves(points))
        return FoldState(points, jax.tree.map(jnp.copy, points), nothing)

    def update(
        updates: Any, state: FoldState, params: Any = None, *, noise_variance: Any = 1.0, **_: Any
    ) -> tuple[Any, FoldState]:
        given = updates
        updates, params = tree.observation(updates, params, state.points, ())
        number = state.precision.dtype
        c, r = _centre_and_radius(L, mu, number)
        pairs = _leaf_by_leaf(state.points, state.gradients, params, updates)
        joined: list[_Leaf] = tree.joined(pairs)
        sums = sum((windows.filter_sums(*leaf, c) for leaf in joined), start=jnp.zeros(3, number))
        own = tree.precision(noise_variance, number)
        fits = _is_small(sums[2]) & jnp.isfinite(own) & (own > 0.0)
        weight, precision = windows.fold(
            jnp.sqrt(sums[1]), r * jnp.sqrt(sums[0]), state.precision, own
        )
        moved = fits & (weight > 0.0)
        leaves, structure = jax.tree.flatten(updates)
        points, gradients, denoised = [], [], []
        for g, (X, G, x, rounded) in zip(leaves, pairs, strict=True):
            by = windows.weighted_sum(X[None], G[None], x, rounded, c, weight[None])
            after = jnp.where(fits, jnp.where(moved, _shifted(rounded, by), rounded), G)
            # Not fused into its uses, which read it instead. Written in this order, G, X and at
            # last the parameters, each can take the place of the old one, and nothing is copied.
            after = lax.optimization_barrier(after)  # type: ignore[no-untyped-call]
            here = jnp.where(windows.once_written(after, fits), x, X)
            done = windows.once_written(here, fits)
            denoised.append(
                jnp.where(done, after, g)
                if after.dtype == g.dtype
                else jnp.where(moved, _shifted(g, by), g)
            )
            points.append(here)
            gradients.append(after)
        return _with_none(jax.tree.unflatten(structure, denoised), given), FoldState(
            jax.tree.unflatten(structure, points),
            jax.tree.unflatten(structure, gradients),
            jnp.where(fits, precision, state.precision),
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _folded(
    tables: windows.Tables, points: Any, gradients: Any, r: Any, fits: Array
) -> tuple[windows.Tables, Any]:
    """Mix the observation that is about to leave, if there is one, into its successor."""
    old, successor, c = tables.slot, windows.successor(tables), tables.centre
    weight, precision = windows.leaving(tables, r)

    def mix(X: Array, G: Array) -> Array:
        pair = X[old][None], G[old][None], X[successor], G[successor]
        by = windows.weighted_sum(*pair, c, weight[None])
        return _put(successor, G, _shifted(G[successor], by))

    def mixed() -> tuple[windows.Tables, Any]:
        after = jax.tree.map(mix, points, gradients)
        window = zip(jax.tree.leaves(points), jax.tree.leaves(after), strict=True)
        # Measured, and not derived from the tables: they do not tell <dx, dh> of a mixture.
        leaves = [(X, G, X[successor], G[successor]) for X, G in window]
        rows = _rows(leaves, tables.precision.size, c)
        return windows.replace(tables, successor, rows, precision), after

    after: tuple[windows.Tables, Any] = lax.cond(
        fits & (weight > 0.0), mixed, lambda: (tables, gradients)
    )
    return after


def _if(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _coordinates(params: Any) -> int:
    """Return the number of real coordinates of a point."""
    return sum(p.size * (1 + jnp.iscomplexobj(p)) for p in jax.tree.leaves(params))


def _rows(leaves: list[_Leaf], K: int, c: Array) -> Array:
    rows = (windows.new_rows(*leaf, c) for leaf in leaves)
    return sum(rows, start=jnp.zeros((3, K), c.dtype))


def _zeros(p: Any, dtype: Any) -> Array:
    """Return zeros like a parameter, laid out over devices as it is, in the dtype to store."""
    own = p.dtype
    if dtype is not None and jnp.issubdtype(own, jnp.complexfloating):
        own = jnp.complex128 if dtype == jnp.float64 else jnp.complex64
    elif dtype is not None:
        own = dtype
    return jnp.zeros_like(p, dtype=own)


def _leaf_by_leaf(points: Any, gradients: Any, params: Any, updates: Any) -> list[_Leaf]:
    """Return what is held and what is new of each leaf, the new as it would be stored."""
    trees = (jax.tree.leaves(each) for each in (points, gradients, params, updates))
    return [(X, G, x.astype(X.dtype), g.astype(G.dtype)) for X, G, x, g in zip(*trees, strict=True)]


def _with_none(updates: Any, given: Any) -> Any:
    def emptied(g: Any, u: Any) -> Any:
        return None if g is None else u

    return jax.tree.map(emptied, given, updates, is_leaf=lambda g: g is None)


def _written(slot: Array, fits: Array, stacks: Any, rows: Any) -> Any:
    """Return stacks (K, *shape) with these rows in a slot, if they fit.

    A large one is written before it is read, and in a branch, so that compiled code updates it in
    place: a selection would make a copy, and for large rows new memory is slow. For small ones a
    selection is quicker to compile.
    """
    before, structure = jax.tree.flatten(stacks)
    after = []
    for X, x in zip(before, jax.tree.leaves(rows), strict=True):
        if tree.is_small(x):
            here = (jnp.arange(X.shape[0]) == slot) & fits
            after.append(jnp.where(here.reshape(-1, *(1 for _ in x.shape)), x.astype(X.dtype), X))
        else:
            after.append(lax.cond(fits, partial(_put, slot, X, x), lambda X=X: X))
    return jax.tree.unflatten(structure, after)


def _put(slot: Array, stack: Array, row: Array) -> Array:
    after: Array = lax.dynamic_update_index_in_dim(stack, row.astype(stack.dtype), slot, 0)
    return after


def _is_measurable(leaves: list[tuple[Array, Array]], c: Array) -> Array:
    """Say whether points and gradients are finite, and distances to others like them are."""
    points, gradients = (
        sum((windows.squared_norm(leaf[n], c.dtype) for leaf in leaves), jnp.zeros_like(c))
        for n in (0, 1)
    )
    return _is_small(points + gradients + c * c * points)


def _is_small(squares: Any) -> Array:
    return jnp.isfinite(64.0 * squares)


def _shifted(g: Array, by: Array) -> Array:
    wide = jnp.promote_types(g.dtype, by.dtype)
    return (g.astype(wide) + by).astype(g.dtype)


def _floating(value: Any) -> Any:
    dtype = jnp.dtype(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"state_dtype must be a real floating dtype, got {dtype}.")
    return jax.dtypes.canonicalize_dtype(dtype)
