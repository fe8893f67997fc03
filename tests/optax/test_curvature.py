"""Hessian bounds of JAX functions are those of the Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coco_denoiser import curvature
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


@pytest.mark.parametrize("x", [0.0, 1.0])
def test_a_logistic_loss_is_within_the_bounds_from_its_data(x: float) -> None:
    features = np.random.default_rng(0).normal(size=(30, 5))
    known = curvature.linear_model("logistic", features, regularization=0.1)

    def loss(p: jax.Array) -> jax.Array:
        return jnp.mean(jnp.logaddexp(0.0, features @ p)) + 0.05 * p @ p

    found = hessian_bounds(loss, jnp.full(5, x))
    assert found.L <= known.L * (1.0 + 1e-5)
    assert found.mu >= known.mu * (1.0 - 1e-5)
    # At 0 every example has the largest second derivative that a logistic loss has.
    assert (pytest.approx(known.L, rel=1e-4) == found.L) == (x == 0.0)
