"""Hessian bounds of JAX functions are those of the Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coco_denoiser.optax import hessian_bounds


def test_bounds_are_those_of_the_whole_hessian() -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    params = {"w": jax.random.normal(keys[0], (3, 4)), "v": jax.random.normal(keys[1], (4,))}
    inputs, labels = jax.random.normal(keys[2], (50, 3)), jax.random.normal(keys[3], (50,))

    def loss(p: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((jnp.tanh(inputs @ p["w"]) @ p["v"] - labels) ** 2)

    flat, unravel = jax.flatten_util.ravel_pytree(params)
    eigenvalues = np.linalg.eigvalsh(jax.jit(jax.hessian(lambda x: loss(unravel(x))))(flat))
    low, high = eigenvalues[0], eigenvalues[-1]
    L, mu = hessian_bounds(loss, params)
    # As many products as variables: exact.
    assert (L, mu) == pytest.approx((high, low), abs=1e-4)
