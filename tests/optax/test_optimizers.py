"""On top of every Optax optimizer that the NumPy side has, the same paths as there."""

from typing import Any

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
    "AdaMax": (optax.adamax(0.1), optimizers.AdaMax(0.1)),
    "AdaGrad": (
        optax.adagrad(0.1, initial_accumulator_value=0.0, eps=0.0),
        optimizers.AdaGrad(0.1, eps=1e-300),
    ),
    "RMSprop": (
        optax.rmsprop(0.1, decay=0.99, eps=0.0, eps_in_sqrt=False),
        optimizers.RMSprop(0.1, eps=1e-300),
    ),
    "Adadelta": (optax.adadelta(1.0, rho=0.9, eps=1e-6), optimizers.Adadelta(1.0)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_path_is_that_of_the_numpy_optimizer_with_its_denoiser(name: str) -> None:
    inner, reference = PAIRS[name]
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((12, 5))
    with jax.enable_x64(True):
        tx = optax.chain(coco_denoise(1.0, 4), inner)
        x = jnp.linspace(-3, 4, 5)
        state = tx.init(x)

        @jax.jit
        def step(x: Any, state: Any, noise: Any) -> Any:
            u, state = tx.update(EIGENVALUES * x + noise, state, x)
            return optax.apply_updates(x, u), state

        y = np.asarray(x)
        denoiser = Denoiser(1.0, window=4, tol=1e-12)
        for n in noise:
            y = reference.step(y, denoiser(y, EIGENVALUES * y + n))
            x, state = step(x, state, n)
            assert np.allclose(x, y, rtol=1e-6, atol=1e-6)


def test_nadam_is_denoised_too() -> None:
    # Optax and PyTorch define Nadam differently, so there is no common path; both descend.
    tx = optax.chain(coco_denoise(1.0, 4), optax.nadam(0.1))
    x = jnp.linspace(-3, 4, 5)
    state, update = tx.init(x), jax.jit(tx.update)
    start = float(jnp.linalg.norm(x))
    for seed in range(60):
        g = EIGENVALUES * x + 0.1 * jax.random.normal(jax.random.key(seed), (5,))
        u, state = update(g, state, x)
        x = optax.apply_updates(x, u)
    assert jnp.linalg.norm(x) < 0.5 * start
