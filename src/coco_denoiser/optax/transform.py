"""The sliding window as Optax gradient transformations, one for each model."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import DTypeLike

from coco_denoiser import _validation as check
from coco_denoiser.models import Cocoercive, Gaussian
from coco_denoiser.optax import models, solver, tree
from coco_denoiser.optax.state import CocoState, check_version, empty
from coco_denoiser.optax.step import step
from coco_denoiser.optax.tree import Number, Passed, Tree
from coco_denoiser.problem import centre_and_radius

WindowSize: TypeAlias = int | Literal["auto"]
# A step of one model: state, point and gradient, variance and tolerance.
_Step: TypeAlias = Callable[[CocoState, tuple[Tree, Tree], Array, Number], tuple[Tree, CocoState]]


def coco_denoise(
    L: float | Array,
    window: WindowSize = "auto",
    *,
    mu: float | Array = 0.0,
    tol: float | Array | None = None,
    forget: Literal["drop", "fold"] = "drop",
    state_dtype: DTypeLike | None = None,
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

    `gaussian_denoise` needs no L.

    Adam and similar methods normalise gradients, so denoising increases their effective step
    size: before them, pass a known L. Momentum averages over time as well, and the delays add up.
    A transformation does not see what follows it in a chain, so nothing warns of either.

    An observation that is not finite, or whose distance to one in the window, of points or
    residuals, exceeds 1e150 (1e18 if sums are in float32), is refused: the gradient is passed
    on unchanged, the window stays as it was, the status is `Status.REFUSED`, and the state counts
    it. So is one whose bounds, where they are traced, are none: L must be positive, and mu less.
    Empty slots count as zeros here. Where nothing is averaged, updates are returned unchanged,
    bit for bit. None in place of an update counts as zero, and stays None.

    Examples:
        >>> import jax
        >>> import optax
        >>> from coco_denoiser.optax import coco_denoise
        >>> tx = optax.chain(coco_denoise(L=1.0), optax.sgd(1.0))
        >>> params = jax.numpy.array([3.0, 4.0])
        >>> state = tx.init(params)
        >>> gradient = 0.5 * params  # of |x|^2 / 4
        >>> updates, state = jax.jit(tx.update)(gradient, state, params)
        >>> optax.apply_updates(params, updates)
        Array([1.5, 2. ], dtype=float32)

    Args:
        L: upper bound on the curvature of the objective; may be traced, and may change.
        window: how many observations are kept, K; a Python int. "auto" is 16.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth; may be traced.
        tol: relative gap and violation to reach; None for 1e-9 in float64 and 1e-6 in float32,
            which cannot resolve less.
        forget: what becomes of the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, which then counts for more. With window=2,
            folding is a recursive filter, which needs no solver.
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
    L, mu = _number("L", L, positive=True), _number("mu", mu)
    if not isinstance(L, jax.core.Tracer) and not isinstance(mu, jax.core.Tracer):
        check.curvature(L, mu)
    K = _size(window, Cocoercive.window)
    folds = check.forgetting(forget, K) == "fold"

    def advance(
        state: CocoState, new: tuple[Tree, Tree], variance: Array, tol: Number
    ) -> tuple[Tree, CocoState]:
        bounds: list[Any] = [jnp.asarray(v, variance.dtype) for v in (L, mu)]
        centre, radius = map(jnp.asarray, centre_and_radius(*bounds))
        # Traced, they may be wrong: refused, as an observation without a variance is.
        variance = jnp.where(jnp.minimum(bounds[0], radius) > 0.0, variance, 0.0)
        model = partial(models.cocoercive, radius=radius, tol=tol)
        merged = radius if folds else None
        return step(state, new, variance, model, centre=centre, radius=merged)

    return _transformation(advance, K, 1 if folds and K == 2 else K, tol, state_dtype)


def gaussian_denoise(
    L: float | Array | None = None,
    window: WindowSize = "auto",
    *,
    tol: float | Array | None = None,
    state_dtype: DTypeLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Average each gradient with the K - 1 before it, as those of a field with a random slope.

    $g_i = \theta + E (x_i - x_K) + n_i$ with Gaussian E and n, whose sizes are estimated from the
    window: neither L nor the noise has to be known. The estimate of $\theta$ by generalised least
    squares replaces the updates; the state tells its standard error, `std`. All else is as in
    `coco_denoise`.

    Examples:
        >>> import jax
        >>> import optax
        >>> from coco_denoiser.optax import gaussian_denoise
        >>> tx = optax.chain(gaussian_denoise(), optax.sgd(1.0))
        >>> params = jax.numpy.array([3.0, 4.0])
        >>> state = tx.init(params)
        >>> for gradient in (params, 3.0 * params):  # at one point
        ...     updates, state = jax.jit(tx.update)(gradient, state, params)
        >>> updates
        Array([-6., -8.], dtype=float32)

    Args:
        L: a cap on the slope; may be traced, and may change.
        window: how many observations are kept, K; a Python int. "auto" is 32.
        tol: relative residual of the linear system to reach; None as in `coco_denoise`.
        state_dtype: floating dtype of the window, as in `coco_denoise`.

    Returns:
        A transformation that needs `params`. Its `update` takes `noise_variance`, too.
    """
    cap = None if L is None else _number("L", L, positive=True)
    K = _size(window, Gaussian.window)

    def advance(
        state: CocoState, new: tuple[Tree, Tree], variance: Array, tol: Number
    ) -> tuple[Tree, CocoState]:
        model = partial(models.gaussian, d=tree.coordinates(new[0]), L=cap, tol=tol)
        return step(state, new, variance, model, centre=None, radius=None)

    return _transformation(advance, K, K, tol, state_dtype)


def _transformation(
    advance: _Step, K: int, slots: int, tol: Passed, state_dtype: DTypeLike | None
) -> optax.GradientTransformationExtraArgs:
    """Return the transformation that makes these steps, in a window of K, of which some stored."""
    if tol is not None:
        tol = _number("tol", tol, positive=True)
    dtype = None if state_dtype is None else jax.dtypes.canonicalize_dtype(state_dtype)
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"state_dtype must be a real floating dtype, got {dtype}.")

    def init(params: Tree) -> CocoState:
        return empty(tree.arrays("params", params), slots, K, dtype)

    def update(
        updates: Tree,
        state: CocoState,
        params: Tree = None,
        *,
        noise_variance: Passed = 1.0,
        **_: object,
    ) -> tuple[Tree, CocoState]:
        check_version(state)
        new = tree.observation(updates, params, state.points, slots)
        number = state.window.centre.dtype
        variance = jnp.asarray(_number("noise_variance", noise_variance, positive=True), number)
        within = solver.precision(number).tol if tol is None else tol
        # Where a user is strict about promotion, that is about code of their own.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            theta, state = advance(state, new, variance, within)
        return tree.without(updates, theta), state

    return optax.GradientTransformationExtraArgs(init, update)


def _number(name: str, value: Passed, *, positive: bool = False) -> Passed:
    """Return a finite number; only one that is traced may be out of range."""
    scalar = np.ndim(value) == 0
    if scalar and isinstance(value, jax.core.Tracer):
        return value
    plain = value.item() if scalar and isinstance(value, jax.Array) else value
    try:
        return check.positive(name, plain) if positive else check.number(name, plain)
    except TypeError:
        raise TypeError(
            f"{name} must be a real number, got {value!r}. For a schedule, "
            f"optax.inject_hyperparams(..., static_args='window')({name}=schedule, ...) calls it "
            "at every update; coco_denoiser.optax.hessian_bounds computes L and mu of a loss; "
            "coco_denoiser.optax.gaussian_denoise needs none."
        ) from None


def _size(window: Passed, default: int) -> int:
    if isinstance(window, jax.Array):
        raise TypeError(
            f"window must be a Python int, got {window}: it is the length of arrays. With "
            "inject_hyperparams, pass static_args='window'."
        )
    return default if window == "auto" else check.count("window", window, optional=False) or 0
