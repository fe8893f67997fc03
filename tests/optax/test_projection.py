"""Projections and proximal steps behind a denoised update, under jit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.optax import coco_denoise
from coco_denoiser.optimizers import SGD, project_simplex, run, soft_threshold
from coco_denoiser.typing import Array

NOISE = 0.3 * np.random.default_rng(0).standard_normal((30, 5))
CENTRE, STEP, WEIGHT = np.linspace(-0.5, 2.0, 5), 0.8, 0.3


@pytest.mark.parametrize("kind", ["simplex", "lasso"])
def test_a_map_after_the_update_gives_the_path_of_run(kind: str) -> None:
    transform = optax.chain(coco_denoise(1.0, window=4), optax.sgd(STEP))

    def after(x: jax.Array) -> jax.Array:
        if kind == "simplex":
            return jnp.asarray(optax.projections.projection_simplex(x))
        return jnp.sign(x) * jnp.maximum(jnp.abs(x) - STEP * WEIGHT, 0.0)

    @jax.jit
    def step(
        x: jax.Array, state: optax.OptState, noise: jax.Array
    ) -> tuple[jax.Array, optax.OptState]:
        updates, state = transform.update(x - CENTRE + noise, state, x)
        return after(optax.apply_updates(x, updates)), state

    start = np.full(5, 0.2)
    with jax.enable_x64(True):
        x = jnp.asarray(start)
        state, path = transform.init(x), [start]
        for noise in NOISE:
            x, state = step(x, state, jnp.asarray(noise))
            path.append(np.asarray(x))
    noises = iter(NOISE)

    def gradient(x: Array) -> Array:
        return np.asarray(x - CENTRE + next(noises))

    def prox(x: Array, step: float | Array) -> Array:
        return project_simplex(x) if kind == "simplex" else soft_threshold(x, step * WEIGHT)

    denoised = SGD(STEP, denoiser=Denoiser(1.0, 4))
    expected = run(denoised, gradient, start, steps=30, prox=prox).iterates
    np.testing.assert_allclose(path, expected, atol=1e-5)
    assert np.any(expected[-10:] == 0.0)
