"""Curvature bounds: checks of given ones, as numbers or traced, and bounds computed from a loss."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from coco_denoiser import _validation as check
from coco_denoiser import geometry
from coco_denoiser.curvature import Curvature, spectrum


def centre_and_radius(L: Any, mu: Any, dtype: Any) -> tuple[Array, Array]:
    """Return c and r in a dtype."""
    c, r = geometry.centre_and_radius(jnp.asarray(L, dtype), jnp.asarray(mu, dtype))  # type: ignore[arg-type]
    return jnp.asarray(c), jnp.asarray(r)


def check_curvature(L: Any, mu: Any) -> None:
    """Check bounds that are known before the program runs."""
    if L is None:
        raise ValueError(
            "L is missing, an upper bound on the curvature. Give L, or use model='gaussian' in "
            "coco_denoise, which needs none."
        )
    for name, value in (("L", L), ("mu", mu)):
        check_bound(name, value)
    if not any(isinstance(value, jax.core.Tracer) for value in (L, mu)):
        check.curvature(*(value.item() if hasattr(value, "item") else value for value in (L, mu)))


def check_bound(name: str, value: Any) -> None:
    """Refuse a schedule or a word in place of a number."""
    if callable(value):
        raise TypeError(
            f"{name} must be a number, got the function {value!r}. For a schedule, "
            "optax.inject_hyperparams(coco_denoise, static_args=('window', 'max_iter'))"
            f"({name}=schedule, ...) calls it at every update."
        )
    if isinstance(value, str):
        raise TypeError(
            f"{name} must be a number, got {value!r}. Leave L out for a model that needs none; "
            "coco_denoiser.optax.hessian_bounds computes L and mu of a loss."
        )


def hessian_bounds(
    loss: Callable[[Any], Any],
    params: Any,
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
    """
    flat, unravel = ravel_pytree(params)
    slope = jax.grad(lambda x: loss(unravel(x)))
    product = jax.jit(lambda v: jax.jvp(slope, (flat,), (v,))[1])
    start = jax.random.normal(jax.random.key(seed), flat.shape, flat.dtype)
    return spectrum(product, start, steps=steps, failure=failure)
