"""The state of `coco_denoise`: what is kept from one update to the next, and what it tells."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from coco_denoiser.optax.window import Tables
from coco_denoiser.solution import Status

VERSION = 3  # of what a state holds
# What saved states hold: a number keeps its meaning for ever.
UNCHANGED, SOLVED, ESTIMATED, STALLED, REFUSED = range(5)
_STATUS = {
    UNCHANGED: Status.UNCHANGED,
    SOLVED: Status.SOLVED,
    ESTIMATED: Status.ESTIMATED,
    STALLED: Status.STALLED,
    REFUSED: Status.REFUSED,
}
UNKNOWN = -1.0  # as everything that is told is at least 0; NaN and infinity upset debuggers


class CocoState(NamedTuple):
    """The window, and what the last update found: arrays only.

    Attributes:
        points: the tree of the parameters, its leaves (K, *shape).
        gradients: the same, the noisy gradients.
        tables: small tables of distances, (K, K).
        found: (5,), `gap`, `violation`, `std`, `noise_std` and `curvature`; -1 where they are
            unknown, so that `jax_debug_nans` and `jax_debug_infs` can be used.
        outcome: which `status` it is, as a number.
        refused: how many observations were refused until now.
        version: as many entries as the version of this layout, so that a state of another one is
            refused while `update` is compiled.
    """

    points: Any
    gradients: Any
    tables: Tables
    found: Array
    outcome: Array
    refused: Array
    version: Array

    @property
    def gap(self) -> Array:
        """Relative duality gap; for the Gaussian model the residual of its linear system."""
        return _known(self.found, 0)

    @property
    def violation(self) -> Array:
        """Worst excess of a pair's distance over its bound, relative to that; NaN if unknown."""
        return _known(self.found, 1)

    @property
    def std(self) -> Array:
        """Standard error of every coordinate of the last gradient returned; NaN if unknown."""
        return _known(self.found, 2)

    @property
    def noise_std(self) -> Array:
        """Standard deviation of the noise of an observation of variance 1; NaN if unknown."""
        return _known(self.found, 3)

    @property
    def curvature(self) -> Array:
        """Size of the slope that the Gaussian model found, comparable with L; NaN if unknown."""
        return _known(self.found, 4)

    @property
    def status(self) -> Any:
        """How the last update ended, a `Status`, or an array of them; not in compiled functions."""
        return _status(self)


class FoldState(NamedTuple):
    """The past of a window of two that folds: arrays only.

    Attributes:
        points: the last point, a tree like the parameters.
        gradients: its denoised gradient.
        precision: that of the gradient, in fresh observations; 0 if there is none.
        found: (2,), `gap` and `violation`; -1 where they are unknown.
        outcome: which `status` it is, as a number.
        refused: how many observations were refused until now.
        version: as many entries as the version of this layout.
    """

    points: Any
    gradients: Any
    precision: Array
    found: Array
    outcome: Array
    refused: Array
    version: Array

    @property
    def gap(self) -> Array:
        """Relative duality gap of the last two points; NaN if unknown."""
        return _known(self.found, 0)

    @property
    def violation(self) -> Array:
        """Excess of their distance over its bound, relative to that; NaN if unknown."""
        return _known(self.found, 1)

    @property
    def status(self) -> Any:
        """How the last update ended, a `Status`, or an array of them; not in compiled functions."""
        return _status(self)


def _known(found: Array, index: int) -> Array:
    # By NumPy where it can be: JAX's debuggers would stop at a NaN that says "unknown".
    xp: Any = jnp if isinstance(found, jax.core.Tracer) else np
    value = xp.asarray(found)[..., index]
    known: Array = xp.where(value < 0.0, xp.nan, value)
    return known


def _status(state: CocoState | FoldState) -> Any:
    check_version(state)
    named = [_STATUS[code] for code in np.ravel(state.outcome).tolist()]
    return np.reshape(np.array(named, object), np.shape(state.outcome))[()]


def check_version(state: Any) -> None:
    """Refuse a state whose numbers mean something else."""
    found = np.shape(getattr(state, "version", ()))[-1:]
    if found != (VERSION,):
        raise ValueError(
            f"the state must have the layout of version {VERSION}, got "
            f"{f'version {found[0]}' if found else 'one without a version'}: another release of "
            "coco-denoiser has written it. Call init again, or restore it with that release."
        )
