"""Behind a privatiser, what it returns is denoised."""

import jax.numpy as jnp
import numpy as np
import optax

from coco_denoiser import Denoiser
from coco_denoiser.optax import coco_denoise


def test_after_a_privatiser_the_private_gradients_are_denoised() -> None:
    """Clipped, summed, scaled by the batch and only then denoised: with the same key, as alone."""
    private = optax.contrib.differentially_private_aggregate(1.0, 0.5, key=3)
    tx = optax.chain(private, coco_denoise(1.0, 2, forget="fold"))
    x, denoiser = jnp.linspace(-1, 2, 5), Denoiser(1.0, window=2, forget="fold")
    state, alone = tx.init(x), private.init(x)
    for batch in np.random.default_rng(0).standard_normal((4, 8, 5)).astype(np.float32):
        u, state = tx.update(jnp.asarray(batch), state, x)
        g, alone = private.update(jnp.asarray(batch), alone)
        expected = denoiser(np.asarray(x, dtype=float), np.asarray(g, dtype=float))
        np.testing.assert_allclose(u, expected, atol=1e-5)
        x = x - 0.1 * u
    assert not np.allclose(u, g, atol=1e-3)
