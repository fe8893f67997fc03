"""coco_denoise(): the sliding window, as an Optax gradient transformation."""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import DTypeLike

from coco_denoiser import _validation as check
from coco_denoiser.models.gaussian import Gaussian
from coco_denoiser.optax import models, solver, tree
from coco_denoiser.optax.state import CocoState, check_version, empty
from coco_denoiser.optax.step import Model, step
from coco_denoiser.optax.tree import DType, Passed, Tree
from coco_denoiser.problem import centre_and_radius
from coco_denoiser.typing import ModelName

_WINDOW = 16  # of the co-coercive model, as in NumPy and PyTorch


def coco_denoise(
    L: float | Array | None = None,
    window: int | Literal["auto"] = "auto",
    *,
    model: ModelName | None = None,
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

    With `model="gaussian"`, which needs no L, gradients are averaged as those of a field with a
    random slope, whose size and noise are estimated from the window; see
    `coco_denoiser.Denoiser`.

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
    folds = check.forgetting(forget, K) == "fold"
    slots = 1 if folds and K == 2 else K
    dtype = None if state_dtype is None else _floating(state_dtype)

    def init(params: Tree) -> CocoState:
        return empty(tree.parameters(params), slots, K, dtype)

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
        variance = jnp.asarray(_positive("noise_variance", noise_variance), number)
        within = solver.precision(number).tol if tol is None else tol
        answer: Model = partial(models.gaussian, d=tree.coordinates(new[0]), L=L, tol=within)
        centre = radius = None
        if not is_gaussian:
            bounds: list[Any] = [jnp.asarray(v, number) for v in (L, mu)]
            centre, radius = map(jnp.asarray, centre_and_radius(*bounds))
            # Traced, they may be wrong: refused, as an observation without a variance is.
            variance = jnp.where(jnp.minimum(bounds[0], radius) > 0.0, variance, 0.0)
            answer = partial(models.cocoercive, radius=radius, tol=within)
        merged = radius if folds else None
        # Where a user is strict about promotion, that is about code of their own.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            theta, state = step(state, new, variance, answer, centre=centre, radius=merged)
        return tree.without(updates, theta), state

    return optax.GradientTransformationExtraArgs(init, update)


def _is_gaussian(model: str | None, forget: str, settings: dict[str, Passed]) -> bool:
    """Return whether the Gaussian model is asked for; refuse settings of the other."""
    given = {name: _setting(name, value) for name, value in settings.items()}
    known = {name: v for name, v in given.items() if not isinstance(v, jax.core.Tracer)}
    own = {"mu": known.get("mu") or None, "forget='fold'": forget if forget == "fold" else None}
    chosen = check.model(model, settings["L"], cocoercive=own)
    if chosen == "cocoercive" and {"L", "mu"} <= known.keys():
        check.curvature(known["L"], known["mu"])
    for name in ("L", "tol"):
        if given[name] is not None:
            _positive(name, given[name])
    return chosen == "gaussian"


def _setting(name: str, value: Passed) -> Passed:
    """Return a number; refuse a schedule or a word in place of it."""
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
    return _number(name, value)


def _positive(name: str, value: Passed) -> Passed:
    """Return a number; only one that is traced may be out of range."""
    value = _number(name, value)
    return value if isinstance(value, jax.core.Tracer) else check.positive(name, value)


def _number(name: str, value: Passed) -> Passed:
    """Return an array without axes as a number, unless it is traced; refuse one with axes."""
    if np.ndim(value):
        raise TypeError(f"{name} must be a real number, got {value!r}.")
    plain = isinstance(value, jax.core.Tracer) or not hasattr(value, "item")
    return value if plain else value.item()


def _size(window: Passed, default: int) -> int:
    if isinstance(window, jax.Array):
        raise TypeError(
            f"window must be a Python int, got {window}: it is the length of arrays. With "
            "inject_hyperparams, pass static_args='window'."
        )
    return default if window == "auto" else check.count("window", window, optional=False) or 0


def _floating(value: DTypeLike) -> DType:
    dtype = jnp.dtype(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"state_dtype must be a real floating dtype, got {dtype}.")
    return jax.dtypes.canonicalize_dtype(dtype)
