"""The Gaussian model in JAX: the core's answers, in float64 to the last digits."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser import Denoiser, Gaussian
from coco_denoiser.models import slope
from coco_denoiser.optax import coco_denoise, gaussian_denoise
from coco_denoiser.optax.models import gaussian
from coco_denoiser.optax.window import Window
from coco_denoiser.solution import Status
from coco_denoiser.typing import Float64
from tests.optax.streams import as_tree, flat, noisy_gradient

K = 6


def distances(v: Float64) -> Float64:
    return np.asarray(np.linalg.norm(v[:, None] - v, axis=-1))


@partial(jax.jit, static_argnums=(4,))
def estimated(points: Any, gradients: Any, variances: Any, slot: Any, d: int, known: Any) -> Any:
    tables = jnp.stack([points, points, gradients])  # the second is not read
    held = Window(slot, slot, variances[0], tables, variances)
    given = {"L": None} | known
    return gaussian(held, slot, d=d, tol=1e-6, **given)


def windows(d: int, number: int) -> Any:
    """Yield paths of all lengths up to K: of any scale, slope and noise; some stand still."""
    rng = np.random.default_rng(d)
    for n in range(number):
        count = 1 + n % K
        x = np.cumsum(rng.normal(size=(count, d)), axis=0)
        if n % 7 == 3:
            x[count // 2 :] = x[-1]
        tilt, noise, size = 10.0 ** rng.uniform(-1, 1, size=3)
        g = tilt * x @ rng.normal(size=(d, d)) + noise * rng.normal(size=(count, d))
        if n % 7 == 5:
            g[:] = g[0]
        variances = np.ones(count) if n % 2 else np.exp(rng.normal(size=count))
        yield size * x, g, variances, int(rng.integers(count))


@pytest.mark.parametrize(
    ("d", "known", "dtype"),
    [(20, {}, "float64"), (4, {"L": 1.0}, "float64"), (20, {}, "float32")],
)
def test_it_agrees_with_the_core(d: int, known: Any, dtype: str) -> None:
    wide = dtype == "float64"
    for x, g, variances, slot in windows(d, 60):
        count = len(x)
        tables = np.full((2, K, K), 7.0)  # no matter what empty slots hold
        tables[:, :count, :count] = distances(x), distances(g)
        arrays = (*tables, np.pad(variances, (0, K - count)))
        with jax.enable_x64(wide):
            given = (jnp.asarray(v, dtype) for v in arrays)
            found = estimated(*given, jnp.asarray(slot), d, known)
        weights, (gap, violation, *told) = jax.tree.map(np.asarray, found[:2])
        theirs = slope.fit(
            distances(x), distances(g), 1.0 / variances, np.array([slot]), d, **known
        )
        np.testing.assert_allclose(weights[:count], theirs.weights[0], atol=1e-10 if wide else 1e-4)
        assert not weights[count:].any()
        assert gap <= (1e-13 if wide else 1e-6)
        assert violation == -1.0
        expected = [theirs.std[0], theirs.noise_std, theirs.scale * np.sqrt(d)]
        expected = [-1.0 if np.isnan(v) else v for v in expected]  # what is not known
        close = 1e-7 if wide else 1e-2
        np.testing.assert_allclose(told[1:], expected[1:], rtol=close, atol=1e-5)
        # The ratios to average over are those of a full window.
        np.testing.assert_allclose(told[0], expected[0], rtol=1e-2, atol=1e-5)


def test_ten_to_the_nine_coordinates_are_no_trouble_in_float32() -> None:
    rng, d = np.random.default_rng(0), 10**9
    steps = np.cumsum(rng.normal(size=(K, K)), axis=0)
    # Distances of independent vectors so long add up as if exactly orthogonal.
    x, noise = distances(steps), 2.0 * d * (1.0 - np.eye(K))
    g = np.sqrt(0.5 * d / 10 * x * x + noise)
    tables = (jnp.asarray(v, "float32") for v in (x, g, np.ones(K)))
    weights, found, _ = estimated(*tables, jnp.asarray(2), d, {})
    theirs = slope.fit(x, g, np.ones(K), np.array([2]), d)
    np.testing.assert_allclose(weights, theirs.weights[0], atol=1e-4)
    np.testing.assert_allclose(found[2], theirs.std[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("tx", "size", "status"),
    [
        (coco_denoise(1.0), 16, Status.UNCHANGED),
        (gaussian_denoise(), 32, Status.ESTIMATED),
        (gaussian_denoise(1.0, 1), 1, Status.ESTIMATED),
    ],
)
def test_the_first_gradient_passes_and_nothing_is_known_of_it(
    tx: Any, size: int, status: Status
) -> None:
    x = jnp.ones(2)
    u, state = jax.jit(tx.update)(2.0 * x, tx.init(x), x)
    assert state.points.shape == (size, 2)
    np.testing.assert_array_equal(u, 2.0 * x)
    assert (tx.init(x).status, state.status) == (Status.UNCHANGED, status)
    assert np.isnan([state.std, state.noise_std, state.curvature]).all()


def test_hyperparameters_may_be_injected() -> None:
    inject = optax.inject_hyperparams(gaussian_denoise, static_args="window")
    tx = inject(L=lambda n: 1.0 / (1 + n), window=3)
    params = as_tree(jnp.float32)
    with pytest.raises(TypeError, match="static_args"):
        optax.inject_hyperparams(coco_denoise)(L=1.0, window=3).init(params)
    state, update = tx.init(params), jax.jit(tx.update)
    core = Denoiser(model=Gaussian(L=lambda: 1.0 / (1 + n)), window=3)
    for n in range(4):
        g = noisy_gradient(params, n)
        _, state = update(g, state, params)
        core(flat(params), flat(g))
        np.testing.assert_allclose(state.inner_state.std, core.std, rtol=1e-3)
        params = jax.tree.map(lambda p: p + 0.1, params)
    assert state.inner_state.curvature <= 0.2501  # the cap of the last step
