"""The state of `coco_denoise`: what is kept from one update to the next, and what it tells."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from coco_denoiser.optax import window as windows
from coco_denoiser.optax.tree import DType, Tree
from coco_denoiser.solution import Status

VERSION = 4  # of what a state holds
# What saved states hold: a number keeps its meaning for ever.
_STATUS = Status.UNCHANGED, Status.SOLVED, Status.ESTIMATED, Status.STALLED, Status.REFUSED
UNCHANGED, SOLVED, ESTIMATED, STALLED, REFUSED = range(5)
UNKNOWN = -1.0  # as everything that is told is at least 0; NaN and infinity upset debuggers


class CocoState(NamedTuple):
    """The window, and what the last update found: arrays only.

    Examples:
        >>> import jax.numpy as jnp
        >>> from coco_denoiser.optax import coco_denoise
        >>> tx, params = coco_denoise(L=4.0, window=4), jnp.ones(3)
        >>> updates, state = tx.update(jnp.ones(3), tx.init(params), params)
        >>> state.status.success, bool(state.gap < 1e-6)
        (True, True)

    Attributes:
        points: the tree of the parameters, its leaves (slots, *shape): K, or one if a window of
            two folds.
        gradients: the same, the noisy gradients; in place of folded ones their mixture.
        window: distances, cosines and variances, named as in `coco_denoiser.window`.
        found: (5,), `gap`, `violation`, `std`, `noise_std` and `curvature`; -1 where they are
            unknown, so that `jax_debug_nans` and `jax_debug_infs` can be used; with the Gaussian
            model under `jit`.
        outcome: which `status` it is, as a number.
        refused: how many observations were refused until now.
        version: as many entries as the version of this layout, so that a state of another one is
            refused while `update` is compiled.
    """

    points: Tree
    gradients: Tree
    window: windows.Window
    found: Array
    outcome: Array
    refused: Array
    version: Array

    @property
    def gap(self) -> Array:
        """Relative duality gap; for the Gaussian model the residual of its linear system."""
        return _known(self, 0)

    @property
    def violation(self) -> Array:
        """Worst excess of a pair's distance over its bound, relative to that; NaN if unknown."""
        return _known(self, 1)

    @property
    def std(self) -> Array:
        """Standard error of every coordinate of the last gradient returned; NaN if unknown."""
        return _known(self, 2)

    @property
    def noise_std(self) -> Array:
        """Standard deviation of the noise of an observation of variance 1; NaN if unknown."""
        return _known(self, 3)

    @property
    def curvature(self) -> Array:
        """Size of the slope that the Gaussian model found, comparable with L; NaN if unknown."""
        return _known(self, 4)

    @property
    def status(self) -> Any:  # a `Status`, or an array of objects
        """How the last update ended, a `Status`, or an array of them; not in compiled functions."""
        check_version(self)
        named = [_STATUS[code] for code in np.ravel(self.outcome).tolist()]
        return np.reshape(np.array(named, object), np.shape(self.outcome))[()]


def empty(params: Tree, slots: int, K: int, dtype: DType) -> CocoState:
    """Return a state without observations.

    Args:
        params: the tree of the parameters, arrays.
        slots: how many observations are stored.
        K: how many an answer is made of.
        dtype: the floating dtype to store; None for each parameter's own.
    """
    zeros = jax.tree.map(lambda p: _zeros(p, dtype), params)
    points = jax.tree.map(lambda p: jnp.stack([p] * slots), zeros)
    zero = _origin(jax.tree.leaves(points))
    rest = [jnp.zeros_like(zero, jnp.int32) for _ in range(2)]
    found = jnp.asarray([0.0, 0.0, UNKNOWN, UNKNOWN, UNKNOWN], zero.dtype) + zero
    version = jnp.full(VERSION, VERSION, jnp.int8)
    gradients, window = jax.tree.map(jnp.copy, points), windows.empty(K, zero)
    return CocoState(points, gradients, window, found, rest[0], rest[1], version)


def _zeros(p: Array, dtype: DType) -> Array:
    """Return zeros like a parameter, laid out over devices as it is, in the dtype to store."""
    own = p.dtype if dtype is None else dtype
    if jnp.issubdtype(p.dtype, jnp.complexfloating):
        own = jnp.promote_types(own, jnp.complex64)
    return jnp.zeros_like(p, dtype=own)


def _origin(leaves: list[Array]) -> Array:
    """Return a zero of the dtype to sum in, that of the widest leaf but float32 at least.

    Under shard_map it varies over the devices if a leaf does, as sums will.
    """
    wide = any(leaf.dtype in (jnp.float64, jnp.complex128) for leaf in leaves)
    zero = jnp.zeros((), jnp.float64 if wide else jnp.float32)
    # Only traced values can vary; others may have a sharding, which a zero cannot have.
    traced = (leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer))
    return sum((jnp.zeros_like(leaf, zero.dtype, shape=()) for leaf in traced), start=zero)


def _known(state: CocoState, index: int) -> Array:
    check_version(state)
    found = state.found
    # By NumPy where it can be: JAX's debuggers would stop at a NaN that says "unknown".
    xp: Any = jnp if isinstance(found, jax.core.Tracer) else np
    value = xp.asarray(found)[..., index]
    known: Array = xp.where(value < 0.0, xp.nan, value)
    return known


def check_version(state: object) -> None:
    """Refuse a state whose numbers mean something else."""
    found = np.shape(getattr(state, "version", ()))[-1:]
    if found != (VERSION,):
        raise ValueError(
            f"the state must have the layout of version {VERSION}, got "
            f"{f'version {found[0]}' if found else 'one without a version'}: another release of "
            "coco-denoiser has written it. Call init again, or restore it with that release."
        )
