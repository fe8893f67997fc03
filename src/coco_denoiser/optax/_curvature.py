"""Curvature bounds that may be numbers, arrays or traced."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from coco_denoiser import _validation as check
from coco_denoiser import geometry


def centre_and_radius(L: Any, mu: Any, dtype: Any) -> tuple[Array, Array]:
    """Return c and r in a dtype."""
    c, r = geometry.centre_and_radius(jnp.asarray(L, dtype), jnp.asarray(mu, dtype))  # type: ignore[arg-type]
    return jnp.asarray(c), jnp.asarray(r)


def check_curvature(L: Any, mu: Any) -> None:
    """Check bounds that are known before the program runs."""
    if not any(isinstance(value, jax.core.Tracer) for value in (L, mu)):
        check.curvature(*(value.item() if hasattr(value, "item") else value for value in (L, mu)))
