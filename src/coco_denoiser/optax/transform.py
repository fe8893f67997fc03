"""coco_denoise(): the sliding window, as an Optax gradient transformation."""

import math
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from coco_denoiser import _validation as check
from coco_denoiser.models import slope
from coco_denoiser.models.gaussian import Gaussian
from coco_denoiser.optax import certificate, solver, tree
from coco_denoiser.optax import window as windows
from coco_denoiser.optax.state import (
    ESTIMATED,
    REFUSED,
    SOLVED,
    STALLED,
    UNCHANGED,
    UNKNOWN,
    VERSION,
    CocoState,
    FoldState,
    check_version,
)
from coco_denoiser.problem import centre_and_radius
from coco_denoiser.typing import ModelName

_Leaf: TypeAlias = tuple[Array, Array, Array, Array]
_Two: TypeAlias = tuple[Any, Any]  # trees of points and of gradients
_WINDOW = 16  # of the co-coercive model, as in NumPy and PyTorch
# Of points, and of residuals: a square fits, and so do sums of some.
_FARTHEST = {"float64": 1e150, "float32": 1e18}


def coco_denoise(
    L: float | Array | None = None,
    window: int | Literal["auto"] = "auto",
    *,
    model: ModelName | None = None,
    mu: float | Array = 0.0,
    tol: float | Array | None = None,
    forget: Literal["drop", "fold"] = "drop",
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
    size: before them, pass a known L. Momentum averages over time as well, and the delays add up.
    A transformation does not see what follows it in a chain, so nothing warns of either.

    An observation that is not finite, or whose distance to one in the window, of points or
    residuals, exceeds 1e150 (1e18 if sums are in float32), is refused: the gradient is passed
    on unchanged, the window stays as it was, the status is `Status.REFUSED`, and the state counts
    it. Empty slots count as zeros here. Where nothing is averaged, updates are returned unchanged,
    bit for bit. None in place of an update counts as zero, and stays None.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from coco_denoiser.optax import coco_denoise
        >>> tx = optax.chain(coco_denoise(L=1.0), optax.sgd(1.0))
        >>> params = jnp.array([3.0, 4.0])
        >>> state = tx.init(params)
        >>> updates, state = tx.update(0.5 * params, state, params)  # the gradient of |x|^2 / 4
        >>> optax.apply_updates(params, updates)
        Array([1.5, 2. ], dtype=float32)

    Args:
        L: upper bound on the curvature of the objective; may be traced, and may change. The
            Gaussian model takes it as a cap on its slope.
        window: how many observations are kept, K; a Python int. "auto" is 32 for the Gaussian
            model, 16 for the other.
        model: "cocoercive" (the default), which needs L, or "gaussian".
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth; may be traced.
        tol: relative gap and violation to reach; None for 1e-9 in float64 and 1e-6 in float32,
            which cannot resolve less.
        forget: what becomes of the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, which then counts for more. With window=2,
            folding is a recursive filter, which needs no solver. Not for the Gaussian model.
        state_dtype: floating dtype of the window; None for each parameter's own, which holds
            points exactly. Sums are in float64 if a leaf of the window is, else in float32.

    Returns:
        A transformation that needs `params`. Its `update` takes `noise_variance`, that of this
        observation relative to the others', as an extra argument. Its state takes 2 K copies of
        the parameters, or 2 copies with window=2 and forget="fold".

    References:
        Madeira, Negrinho, Xavier and Aguiar, [COCO denoiser: using co-coercivity for variance
        reduction in stochastic convex optimization](https://arxiv.org/abs/2109.03207), 2021.
    """
    is_gaussian = _is_gaussian(model, forget, {"L": L, "mu": mu, "tol": tol})
    K = _size(window, Gaussian.window if is_gaussian else _WINDOW)
    dtype = None if state_dtype is None else _floating(state_dtype)
    folds = check.forgetting(forget, K) == "fold"
    recursive = folds and K == 2

    def init(params: Any) -> CocoState | FoldState:
        points = jax.tree.map(lambda p: _zeros(p, dtype), tree.parameters(params))
        if not recursive:
            points = jax.tree.map(lambda p: jnp.stack([p] * K), points)
        gradients, zero = jax.tree.map(jnp.copy, points), windows.origin(jax.tree.leaves(points))
        told = jnp.zeros_like(zero, shape=(2,)), jnp.zeros_like(zero, jnp.int32)
        rest = jnp.zeros_like(zero, jnp.int32), jnp.full(VERSION, VERSION, jnp.int8)
        if recursive:
            return FoldState(points, gradients, zero, *told, *rest)
        return CocoState(points, gradients, windows.empty(K, zero), *_told(*told), *rest)

    def update(
        updates: Any, state: Any, params: Any = None, *, noise_variance: Any = 1.0, **_: Any
    ) -> tuple[Any, Any]:
        check_version(state)
        lead = () if recursive else (K,)
        new = tree.observation(updates, params, state.points, lead)
        number = windows.number(jax.tree.leaves(state.points))
        precision = tree.precision(noise_variance, number)
        reach = solver.precision(number).tol if tol is None else tol
        c, r = jnp.zeros((), number), None
        if not is_gaussian:
            bounds: list[Any] = [jnp.asarray(v, number) for v in (L, mu)]
            c, r = map(jnp.asarray, centre_and_radius(*bounds))
        advance: Any = _filter if recursive else slide
        theta, state = advance(state, new, precision, c, r, reach)
        return tree.without(updates, theta), state

    def slide(
        state: CocoState, new: _Two, precision: Array, c: Array, r: Any, tol: Any
    ) -> tuple[Any, CocoState]:
        """Take an observation into the window; return its gradient, denoised."""
        held, old = state[:2], windows.recentred(state.tables, c)
        rows = _measured(held, new, c)
        fits = _fits(rows, precision)
        if folds:
            old, held, rows = _folded(old, held, new, rows, r, fits)
        held = _written(old.slot, fits, held, new)
        tables = _if(fits, windows.insert(old, rows, precision), state.tables)
        if is_gaussian:
            d = _coordinates(new[0])
            w, told = _estimate(tables, old.slot, d, L=L, tol=tol)
        else:
            w, told = _project(tables, old.slot, r, tol=tol)
        leaves, structure = jax.tree.flatten(new[1])

        def averaged() -> list[Array]:
            centre = None if is_gaussian else c
            return [
                _shifted(g, windows.weighted_sum(*leaf, centre, w))
                for g, leaf in zip(leaves, _leaf_by_leaf(held, new), strict=True)
            ]

        # A branch, and not a selection: what is not needed is not read, and the sum is not fused
        # into, and computed by, each of its uses.
        theta: list[Array] = lax.cond(fits & (w[old.slot] != 1.0), averaged, lambda: leaves)
        after = CocoState(*held, tables, *_unless_refused(state, fits, *told))
        return jax.tree.unflatten(structure, theta), after

    return optax.GradientTransformationExtraArgs(init, update)


def _is_gaussian(model: Any, forget: Any, settings: dict[str, Any]) -> bool:
    """Return whether the Gaussian model is asked for; refuse settings of the other."""
    known = {
        name: _number(name, value)
        for name, value in settings.items()
        if not isinstance(value, jax.core.Tracer)
    }
    own = {"mu": known.get("mu") or None, "forget='fold'": forget if forget == "fold" else None}
    chosen = check.model(model, settings["L"], cocoercive=own)
    if chosen == "cocoercive" and {"L", "mu"} <= known.keys():
        check.curvature(known["L"], known["mu"])
    for name in ("L", "tol"):
        if known.get(name) is not None:
            check.positive(name, known[name])
    return chosen == "gaussian"


def _number(name: str, value: Any) -> Any:
    """Refuse a schedule or a word in place of a number."""
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
    return tree.plain(value)


def _size(window: Any, default: int) -> int:
    if isinstance(window, jax.Array):
        raise TypeError(
            f"window must be a Python int, got {window}: it is the length of arrays. With "
            "inject_hyperparams, pass static_args='window'."
        )
    return default if window == "auto" else check.count("window", window, optional=False) or 0


def _told(certified: Array, outcome: Array) -> tuple[Array, Array]:
    """Return what is told of a projection: its certificate, and estimates that are unknown."""
    return jnp.append(certified, jnp.full_like(certified, UNKNOWN, shape=(3,))), outcome


def _judged(moved: Array, gap: Array, violation: Array, tol: Any) -> tuple[Array, Array]:
    """Return the certificate (2,), and the outcome that follows from it."""
    good = (gap <= tol) & (violation <= tol)
    outcome = jnp.where(good, jnp.where(moved, SOLVED, UNCHANGED), STALLED)
    return jnp.stack([gap, violation]), outcome.astype(jnp.int32)


def _unless_refused(
    before: CocoState | FoldState, fits: Array, found: Array, outcome: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the last four entries of a state."""
    told = jnp.where(fits, found, UNKNOWN), jnp.where(fits, outcome, REFUSED)
    return *told, before.refused + ~fits, before.version


def _project(
    tables: windows.Tables, slot: Array, r: Any, *, tol: Any
) -> tuple[Array, tuple[Array, Array]]:
    """Return the weights (K,) of the paper's projection for the slot, and what is known of it."""
    w, moved, gap, violation = windows.newest_weights(tables, slot, r, tol=tol)
    return w, _told(*_judged(moved, gap, violation, tol))


def _estimate(
    tables: windows.Tables, slot: Array, d: int, *, L: Any, tol: Any
) -> tuple[Array, tuple[Array, Array]]:
    """Return the weights (K,) of the Gaussian model for the slot, and what is known of it."""
    used = tables.precision > 0.0
    points, gradients = (
        jnp.sqrt(jnp.where(used[:, None] & used, squares, 0.0))
        for squares in (tables.point, tables.residual)
    )
    d = max(d, 1)
    with jax.default_matmul_precision("highest"):
        fitted = slope.fit(points, gradients, tables.precision, slot[None], d, L=L, xp=jnp)
    # Before the second observation there is nothing to estimate.
    alone = used.sum() < 2
    w = jnp.where(alone, jnp.arange(used.size) == slot, fitted.weights[0])
    found = jnp.stack([fitted.std[0], fitted.noise_std, fitted.scale * math.sqrt(d)])
    unknown = jnp.isnan(found) | alone
    outcome = jnp.where(fitted.gap[0] <= tol, ESTIMATED, STALLED).astype(jnp.int32)
    certified = jnp.stack([fitted.gap[0], jnp.full_like(tables.centre, UNKNOWN)])
    return w, (jnp.append(certified, jnp.where(unknown, UNKNOWN, found)), outcome)


def _filter(
    state: FoldState, new: _Two, precision: Array, c: Array, r: Any, tol: Any
) -> tuple[Any, FoldState]:
    """Fold all the past into a gradient: a window of two, whose fold is the answer itself."""
    held = state[:2]
    rows = _measured(jax.tree.map(lambda v: v[None], held), new, c)
    fits = _fits(rows, precision)
    distance, _, apart = jnp.sqrt(rows[:, 0])
    two = apart, r * distance, state.precision, precision
    weight, merged = windows.fold(*two)
    moved = fits & (weight > 0.0)
    told = _judged(moved, *certificate.certify_two(*two, weight), tol)
    leaves, structure = jax.tree.flatten(new[1])
    found: tuple[list[Array], ...] = [], [], []
    for own, (X, G, x, g) in zip(leaves, _leaf_by_leaf(held, new), strict=True):
        by = windows.weighted_sum(X[None], G[None], x, g, c, weight[None])
        after = jnp.where(fits, jnp.where(moved, _shifted(g, by), g), G)
        # Not fused into its uses, which read it instead. Written in this order, G, X and at
        # last the parameters, each can take the place of the old one, and nothing is copied.
        after = lax.optimization_barrier(after)  # type: ignore[no-untyped-call]
        here = jnp.where(windows.once_written(after, fits), x, X)
        done = windows.once_written(here, fits)
        denoised = jnp.where(done, after, own)
        if after.dtype != own.dtype:
            denoised = jnp.where(moved, _shifted(own, by), own)
        for values, value in zip(found, (denoised, here, after), strict=True):
            values.append(value)
    theta, points, gradients = (jax.tree.unflatten(structure, values) for values in found)
    merged = jnp.where(fits, merged, state.precision)
    return theta, FoldState(points, gradients, merged, *_unless_refused(state, fits, *told))


def _folded(
    tables: windows.Tables, held: _Two, new: _Two, rows: Array, r: Any, fits: Array
) -> tuple[windows.Tables, _Two, Array]:
    """Mix the observation that is about to leave, if there is one, into its successor."""
    old, successor, c = tables.slot, windows.successor(tables), tables.centre
    weight, precision = windows.leaving(tables, r)

    def mix(X: Array, G: Array) -> Array:
        pair = X[old][None], G[old][None], X[successor], G[successor]
        by = windows.weighted_sum(*pair, c, weight[None])
        return _put(successor, G, _shifted(G[successor], by))

    def mixed() -> tuple[windows.Tables, _Two, Array]:
        after = held[0], jax.tree.map(mix, *held)
        # Measured, and not derived from the tables: they do not tell <dx, dh> of a mixture.
        own = _measured(after, jax.tree.map(lambda v: v[successor], after), c)
        changed = windows.replace(tables, successor, own, precision)
        return changed, after, _measured(after, new, c)

    after: tuple[windows.Tables, _Two, Array] = lax.cond(
        fits & (weight > 0.0), mixed, lambda: (tables, held, rows)
    )
    return after


def _leaf_by_leaf(held: _Two, new: _Two) -> list[_Leaf]:
    """Return what is held and what is new of each leaf, the new as it would be stored."""
    trees = (jax.tree.leaves(each) for each in (*held, *new))
    return [(X, G, x.astype(X.dtype), g.astype(G.dtype)) for X, G, x, g in zip(*trees, strict=True)]


def _measured(held: _Two, new: _Two, c: Array) -> Array:
    """Return the rows (3, K) of an observation, what is held being (K, *shape)."""
    leaves = tree.joined(_leaf_by_leaf(held, new))
    return sum((windows.new_rows(*leaf, c) for leaf in leaves), start=jnp.zeros((3, 1), c.dtype))


def _fits(rows: Array, precision: Array) -> Array:
    """Return whether an observation is in range: its precision, and how far it is from others."""
    near = (rows[::2] <= _FARTHEST[rows.dtype.name] ** 2).all()
    return near & jnp.isfinite(precision) & (precision > 0.0)


def _if(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _coordinates(params: Any) -> int:
    """Return the number of real coordinates of a point."""
    return sum(p.size * (1 + jnp.iscomplexobj(p)) for p in jax.tree.leaves(params))


def _zeros(p: Any, dtype: Any) -> Array:
    """Return zeros like a parameter, laid out over devices as it is, in the dtype to store."""
    own = p.dtype if dtype is None else dtype
    if jnp.issubdtype(p.dtype, jnp.complexfloating):
        own = jnp.promote_types(own, jnp.complex64)
    return jnp.zeros_like(p, dtype=own)


def _written(slot: Array, fits: Array, held: _Two, new: _Two) -> _Two:
    """Return what is held, (K, *shape), with the observation in a slot, if it fits.

    A large leaf is written in a branch, so that compiled code updates it in place: a selection
    would make a copy, and for large rows new memory is slow. For small ones a selection is
    quicker to compile.
    """

    def written(X: Array, x: Array) -> Array:
        if not tree.is_small(x):
            after: Array = lax.cond(fits, lambda: _put(slot, X, x), lambda: X)
            return after
        here = (jnp.arange(X.shape[0]) == slot) & fits
        return jnp.where(here.reshape(-1, *(1 for _ in x.shape)), x.astype(X.dtype), X)

    after: _Two = jax.tree.map(written, held, new)
    return after


def _put(slot: Array, stack: Array, row: Array) -> Array:
    after: Array = lax.dynamic_update_index_in_dim(stack, row.astype(stack.dtype), slot, 0)
    return after


def _shifted(g: Array, by: Array) -> Array:
    wide = jnp.promote_types(g.dtype, by.dtype)
    return (g.astype(wide) + by).astype(g.dtype)


def _floating(value: Any) -> Any:
    dtype = jnp.dtype(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"state_dtype must be a real floating dtype, got {dtype}.")
    return jax.dtypes.canonicalize_dtype(dtype)
