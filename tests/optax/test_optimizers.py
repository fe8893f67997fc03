"""On top of every Optax optimizer that the NumPy side has, the same paths as there."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser import Denoiser, optimizers
from coco_denoiser.optax import coco_denoise

EIGENVALUES = np.linspace(1, 1 / 3, 5)
PAIRS = {
    "SGD": (optax.sgd(0.7), optimizers.SGD(0.7)),
    "Adam": (optax.adam(0.1), optimizers.Adam(0.1)),
}


COCO = coco_denoise(1.0, 4, tol=1e-12)
# Compiled once for all.
SHARED = optax.GradientTransformationExtraArgs(COCO.init, jax.jit(COCO.update))


@pytest.mark.parametrize("name", PAIRS)
def test_the_path_is_that_of_the_numpy_optimizer_with_its_denoiser(name: str) -> None:
    inner, reference = PAIRS[name]
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        tx = optax.chain(SHARED, inner)
        x = jnp.linspace(-3, 4, 5)
        state = tx.init(x)
        y = np.asarray(x)
        denoiser = Denoiser(1.0, window=4, tol=1e-12)
        for n in rng.standard_normal((12, 5)):
            g = EIGENVALUES * y + n
            denoised = denoiser(y, g)
            y = reference.step(y, denoised)
            u, state = tx.update(EIGENVALUES * x + n, state, x)
            x = optax.apply_updates(x, u)
            assert np.allclose(x, y, rtol=1e-6, atol=1e-6)
        assert not np.allclose(denoised, g)


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
