"""Trees of parameters and updates: which are accepted, and the errors for all others."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.tree_util import keystr, tree_map_with_path

from coco_denoiser.curvature import Curvature, spectrum

Tree: TypeAlias = Any  # a pytree: JAX has no type for one
Passed: TypeAlias = Any  # what a caller passed, whatever it is
Number: TypeAlias = float | Array  # the array may be traced
DType: TypeAlias = Any  # JAX has no type for what its arrays' `dtype` is

_SMALL = 1 << 12  # entries of a leaf that is joined with others
_NO_PARAMS = (
    "You are using a transformation that requires the current value of parameters, but you are "
    "not passing `params` when calling `update`."
)
_CALL = (
    "Call update with gradients for all parameters, None included; for other parameters, or "
    "another window, call init again."
)


def arrays(name: str, given: Tree) -> Tree:
    """Return a tree of arrays; Python numbers are accepted too."""
    return tree_map_with_path(lambda path, leaf: _array(name, keystr(path), leaf), given)


def observation(updates: Tree, params: Tree, points: Tree, slots: int) -> tuple[Tree, Tree]:
    """Return parameters, and updates with zeros for None, both like those that init saw.

    Args:
        updates: a tree like the parameters; some may be None.
        params: the parameters.
        points: those of the state, with a leading axis.
        slots: its length.
    """
    if params is None:
        raise ValueError(_NO_PARAMS)
    params = arrays("params", params)

    def filled(g: Passed, p: Tree) -> Tree:
        return jax.tree.map(jnp.zeros_like, p) if g is None else g

    with suppress(ValueError):  # of other trees, which _match names
        updates = jax.tree.map(filled, updates, params, is_leaf=lambda g: g is None)
    updates = arrays("updates", updates)
    _match("updates", updates, params, ())
    _match("the state's points", points, params, (slots,))
    return params, updates


def _match(name: str, given: Tree, params: Tree, lead: tuple[int, ...]) -> None:
    """Refuse a tree unlike the parameters, whose leaves have some more leading axes."""
    structures: list[object] = [jax.tree.structure(each) for each in (params, given)]
    if structures[0] != structures[1]:
        raise ValueError(
            f"{name} must be a tree like params, {structures[0]}, got another. {_CALL}"
        )

    def check(path: tuple[object, ...], p: Array, leaf: Array) -> None:
        where, shape = keystr(path), (*lead, *p.shape)
        if leaf.shape != shape:
            raise ValueError(
                f"{name} must have shape {shape} for params{where}, got {leaf.shape}. {_CALL}"
            )
        if jnp.iscomplexobj(leaf) != jnp.iscomplexobj(p):
            raise TypeError(
                f"{name} must be complex where params are, and real where they are, got "
                f"{leaf.dtype} for params{where} of {p.dtype}."
            )

    tree_map_with_path(check, params, given)


def without(given: Tree, updates: Tree) -> Tree:
    """Return updates, with None where None was given."""
    pairs = given, updates
    return jax.tree.map(lambda g, u: None if g is None else u, *pairs, is_leaf=lambda g: g is None)


def is_small(leaf: Array) -> bool:
    """Return whether to join a leaf with others; on several devices it may be sharded."""
    alone = jax.device_count() == 1 and not any(leaf.aval.sharding.spec)
    return leaf.size <= _SMALL and alone


def joined(leaves: Sequence[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    """Join small leaves end to end, so that a program hardly grows with their number.

    Each is a tuple of arrays of one shape, some of them with leading axes, which are kept.
    """
    whole: list[tuple[Array, ...]] = []
    small: dict[tuple[str, ...], list[list[Array]]] = {}
    for leaf in leaves:
        if is_small(leaf[-1]):
            flat = [v.reshape(*v.shape[: v.ndim - leaf[-1].ndim], -1) for v in leaf]
            small.setdefault(tuple(str(v.dtype) for v in leaf), []).append(flat)
        else:
            whole.append(leaf)
    return whole + [
        tuple(jnp.concatenate(parts, axis=-1) for parts in zip(*group, strict=True))
        for group in small.values()
    ]


def coordinates(params: Tree) -> int:
    """Return the number of real coordinates of a point."""
    return sum(p.size * (1 + jnp.iscomplexobj(p)) for p in jax.tree.leaves(params))


def _array(name: str, where: str, leaf: Passed) -> Array | jax.ShapeDtypeStruct:
    if isinstance(leaf, (int, float, complex)):  # explicitly, so that it is not weakly typed
        leaf = jnp.asarray(leaf, jnp.result_type(leaf))
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        raise TypeError(
            f"{name} must hold arrays, got {type(leaf).__name__} at {name}{where}. Pass the "
            "arrays of the model alone, as with equinox.filter(model, equinox.is_inexact_array)."
        )
    if dtype == jax.dtypes.float0 or not jnp.issubdtype(dtype, jnp.inexact):
        raise TypeError(
            f"{name} must hold real or complex floating-point numbers, got {dtype} at "
            f"{name}{where}. Leave such leaves out with optax.masked, or cast them."
        )
    # Shapes without values, as in jax.eval_shape, are enough here.
    return leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jnp.asarray(leaf)


def hessian_bounds(
    loss: Callable[[Tree], Array],
    params: Tree,
    *,
    seed: int = 0,
    steps: int = 32,
    failure: float = 1e-3,
) -> Curvature:
    """Return L and mu of a loss at these parameters.

    Both hold with probability 1 - failure, there and for the data that `loss` sees; elsewhere the
    curvature differs. See `coco_denoiser.curvature.spectrum`.

    Args:
        loss: a function of the parameters that returns a number.
        params: a pytree of real arrays.
        seed: of the random start.
        steps: Hessian-vector products, at most.
        failure: the probability that one of the bounds does not hold.

    Examples:
        >>> import jax.numpy as jnp
        >>> from coco_denoiser.optax import hessian_bounds
        >>> L, mu = hessian_bounds(lambda x: 3.0 * x[0] ** 2 + x[1] ** 2, jnp.array([1.0, 2.0]))
        >>> round(L, 3), round(mu, 3)  # in float32
        (6.0, 2.0)
    """
    flat, unravel = ravel_pytree(params)
    slope = jax.grad(lambda x: loss(unravel(x)))
    product = jax.jit(lambda v: jax.jvp(slope, (flat,), (v,))[1])
    start = jax.random.normal(jax.random.key(seed), flat.shape, flat.dtype)
    return spectrum(product, start, steps=steps, failure=failure)
