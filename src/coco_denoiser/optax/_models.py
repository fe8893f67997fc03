"""Which model averages the window, and what it says of its answer."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from coco_denoiser import _validation as check
from coco_denoiser.models.choice import GAUSSIAN_WINDOW, named
from coco_denoiser.optax import _gaussian
from coco_denoiser.optax import _window as slots
from coco_denoiser.optax._curvature import centre_and_radius, check_bound, check_curvature
from coco_denoiser.optax._solver import default_tolerance
from coco_denoiser.solution import Status

STATUS = tuple(Status)
_WINDOW = 8  # of the co-coercive model, as in PyTorch


class Report(NamedTuple):
    """What is known about an answer, in numbers; infinite where the model says nothing."""

    gap: Array
    std: Array
    noise_std: Array
    curvature: Array
    outcome: Array  # index of the status


def nothing(like: Array) -> Report:
    """Return the report of a window without observations."""
    # No array twice: a buffer cannot be donated twice.
    std, noise_std, curvature = (jnp.full_like(like, jnp.inf) for _ in range(3))
    outcome = jnp.full_like(like, STATUS.index(Status.UNCHANGED), jnp.int32)
    return Report(jnp.zeros_like(like), std, noise_std, curvature, outcome)


@dataclass(frozen=True)
class CoCoercive:
    """The paper's projection."""

    L: Any
    mu: Any
    tol: Any
    max_iter: Any

    def bounds(self, dtype: Any) -> tuple[Array, Array]:
        """Return centre and radius."""
        return centre_and_radius(self.L, self.mu, dtype)

    def average(self, tables: slots.Products, slot: Array, d: int) -> tuple[Array, Report]:
        """Return the weights (K,) of the average that denoises the slot."""
        del d
        c = tables.centre
        _, r = self.bounds(c.dtype)
        tol = default_tolerance(c.dtype) if self.tol is None else self.tol
        w, gap, iterations = slots.newest_weights(tables, slot, r, tol=tol, max_iter=self.max_iter)
        short = jnp.where(
            iterations >= self.max_iter,
            STATUS.index(Status.ITERATION_LIMIT),
            STATUS.index(Status.STALLED),
        )
        done = jnp.where(
            w[slot] == 1.0, STATUS.index(Status.UNCHANGED), STATUS.index(Status.SOLVED)
        )
        return w, nothing(c)._replace(gap=gap, outcome=jnp.where(gap <= tol, done, short))


@dataclass(frozen=True)
class Gaussian:
    """A random slope, see `coco_denoiser.models.gaussian`."""

    L: Any
    noise_std: Any
    tol: Any

    def bounds(self, dtype: Any) -> tuple[Array, Array]:
        """Return a centre of 0: gradients themselves are averaged. There is no radius."""
        return jnp.zeros((), dtype), jnp.full((), jnp.inf, dtype)

    def average(self, tables: slots.Products, slot: Array, d: int) -> tuple[Array, Report]:
        """Return the weights (K,) of the average that denoises the slot."""
        found = _gaussian.fit(
            tables.point,
            tables.residual,
            tables.precision,
            slot,
            d=max(d, 1),
            L=self.L,
            noise_std=self.noise_std,
        )
        tol = default_tolerance(tables.centre.dtype) if self.tol is None else self.tol
        fine, short = STATUS.index(Status.ESTIMATED), STATUS.index(Status.STALLED)
        outcome = jnp.where(found.gap <= tol, fine, short)
        weights, gap, std, noise_std, curvature = found
        return weights, Report(gap, std, noise_std, curvature, outcome)


def choose(
    model: str | None, L: Any, mu: Any, *, tol: Any, max_iter: Any, noise_std: Any
) -> CoCoercive | Gaussian:
    """Return the model that goes with some settings; refuse those that it has no use for."""
    if named(model, given=L is not None) == "cocoercive":
        check_curvature(L, mu)
        check.absent("noise_std", noise_std, "model='gaussian'")
        return CoCoercive(L, mu, tol, max_iter)
    for name, value in (("L", L), ("noise_std", noise_std)):
        if value is not None:
            check_bound(name, value)
            if not isinstance(value, jax.core.Tracer):
                check.positive(name, value.item() if hasattr(value, "item") else value)
    check_bound("mu", mu)
    if not isinstance(mu, jax.core.Tracer) and mu != 0.0:
        raise ValueError(f"mu goes with model='cocoercive' only, got mu={mu}. Leave it out.")
    return Gaussian(L, noise_std, tol)


def size(window: Any, model: CoCoercive | Gaussian) -> int:
    """Return how many observations are kept: "auto" is a default of the model's own."""
    if isinstance(window, jax.Array):
        raise TypeError(
            f"window must be a Python int, got {window}: it is the length of arrays. With "
            "inject_hyperparams, pass static_args=('window', 'max_iter')."
        )
    if window == "auto":
        return GAUSSIAN_WINDOW if isinstance(model, Gaussian) else _WINDOW
    K = check.count("window", window, optional=False)
    assert K is not None  # noqa: S101
    return K
