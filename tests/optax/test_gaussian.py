"""The Gaussian model in JAX: the core's answers, in float64 to the last digits."""

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser import Denoiser, Gaussian
from coco_denoiser.models import slope as core
from coco_denoiser.optax import CocoState, coco_denoise, gaussian_denoise
from coco_denoiser.optax.models import gaussian
from coco_denoiser.optax.window import Window
from coco_denoiser.solution import Status
from coco_denoiser.typing import Array, Float64
from tests.optax.streams import as_tree, noisy_gradient, same

K = 6


def distances(v: Float64) -> Float64:
    return np.asarray(np.linalg.norm(v[:, None] - v, axis=-1))


@partial(jax.jit, static_argnums=(4,))
def estimated(points: Any, gradients: Any, variances: Any, slot: Any, d: int, known: Any) -> Any:
    tables = jnp.stack([points, points, gradients])  # the second is not read
    held = Window(slot, slot, variances[0], tables, variances)
    given = {"L": None} | known
    return gaussian(held, slot, d=d, tol=1e-6, **given)


def both(
    x: Float64, g: Float64, variances: Float64, slot: int, dtype: str, **known: Any
) -> tuple[Any, core.Fit]:
    """Return what JAX makes of a window of K slots, of which some are empty, and NumPy."""
    count, d = x.shape
    tables = [np.full((K, K), 7.0) for _ in range(2)]  # no matter what empty slots hold
    for table, v in zip(tables, (x, g), strict=True):
        table[:count, :count] = distances(v)
    arrays = (jnp.asarray(a, dtype) for a in (*tables, np.append(variances, np.zeros(K - count))))
    ours = estimated(*arrays, jnp.asarray(slot), d, known)
    return ours, core.fit(distances(x), distances(g), 1.0 / variances, np.array([slot]), d, **known)


def windows(d: int, number: int) -> Any:
    """Yield paths of all lengths up to K: of any scale, slope and noise; some stand still."""
    rng = np.random.default_rng(d)
    for n in range(number):
        count = 1 + n % K
        x = np.cumsum(rng.normal(size=(count, d)), axis=0)
        if n % 7 == 3:
            x[count // 2 :] = x[-1]
        slope, noise, size = 10.0 ** rng.uniform(-1, 1, size=3)
        g = slope * x @ rng.normal(size=(d, d)) + noise * rng.normal(size=(count, d))
        if n % 7 == 5:
            g[:] = g[0]
        variances = np.ones(count) if n % 2 else np.exp(rng.normal(size=count))
        yield size * x, g, variances, int(rng.integers(count))


@pytest.mark.parametrize(
    ("d", "known", "dtype"),
    [
        (20, {}, "float64"),
        (4, {"L": 1.0}, "float64"),
        (4, {"L": 2.0}, "float64"),
        (20, {}, "float32"),
    ],
)
def test_it_agrees_with_the_core(d: int, known: dict[str, float], dtype: str) -> None:
    wide = dtype == "float64"
    with jax.enable_x64(wide):
        for x, g, variances, slot in windows(d, 60):
            (weights, (gap, violation, *told), _), theirs = both(
                x, g, variances, slot, dtype, **known
            )
            np.testing.assert_allclose(
                weights[: len(x)], theirs.weights[0], atol=1e-10 if wide else 1e-4
            )
            assert not weights[len(x) :].any()
            assert gap <= (1e-13 if wide else 1e-6)
            expected = [theirs.std[0], theirs.noise_std, theirs.scale * np.sqrt(d)]
            expected = [-1.0 if np.isnan(v) else v for v in expected]  # what is not known
            assert violation == -1.0
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
    theirs = core.fit(x, g, np.ones(K), np.array([2]), d)
    np.testing.assert_allclose(weights, theirs.weights[0], atol=1e-4)
    np.testing.assert_allclose(found[2], theirs.std[0], rtol=1e-3)


@pytest.mark.parametrize("known", [{}, {"L": 0.5}])
def test_a_stream_with_variances_is_that_of_the_core(known: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        tx, denoiser = (
            gaussian_denoise(window=K, **known),
            Denoiser(model=Gaussian(**known), window=K),
        )
        update = jax.jit(optax.chain(tx, optax.identity()).update)
        state: Any = (tx.init(jnp.ones(5)), optax.EmptyState())
        x: Array = np.full(5, 3.0)
        for n in range(2 * K):
            v = float(np.exp(rng.normal()))
            g = np.linspace(1.0, 0.2, 5) * x + np.sqrt(v) * rng.normal(size=5)
            theta = denoiser(x, g, noise_variance=v)
            with jax.debug_nans(True), jax.debug_infs(True):
                u, state = update(jnp.asarray(g), state, jnp.asarray(x), noise_variance=v)
                assert np.isnan(state[0].violation)  # unknown, and no debugger minds
            np.testing.assert_allclose(u, theta, atol=1e-9)
            found: CocoState = state[0]
            np.testing.assert_allclose(found.std, denoiser.std, rtol=1e-3)
            assert found.status is (Status.ESTIMATED)
            if known:
                assert n == 0 or found.curvature <= 0.5 * (1 + 1e-9)
            x = x - 0.5 * theta
        assert not np.allclose(u, g, atol=1e-2)


def test_a_variance_that_is_none_changes_nothing() -> None:
    tx = gaussian_denoise(window=K)
    params = as_tree(jnp.float32)
    g, state = noisy_gradient(params, 0), tx.init(params)
    with pytest.raises(ValueError, match="noise_variance must be positive and finite, got 0"):
        tx.update(g, state, params, noise_variance=0.0)
    with pytest.raises(TypeError, match="noise_variance must be a real number, got array"):
        tx.update(g, state, params, noise_variance=np.ones(2))
    u, after = jax.jit(tx.update)(g, state, params, noise_variance=-1.0)  # traced: passed through
    assert same((u, after[:3]), (g, state[:3]))
    assert after.status is Status.REFUSED


def test_the_default_window_is_that_of_the_model() -> None:
    sizes = {
        16: coco_denoise(1.0),
        32: gaussian_denoise(),
        3: gaussian_denoise(1.0, 3),
    }
    for K, tx in sizes.items():
        state = tx.init(jnp.ones(2))
        assert state.points.shape == (K, 2)
        assert state.status is Status.UNCHANGED
    spoken = {
        Status.UNCHANGED: coco_denoise(1.0, 2),
        Status.ESTIMATED: gaussian_denoise(1.0, 1),
    }
    for status, tx in spoken.items():
        _, state = jax.jit(tx.update)(jnp.ones(2), tx.init(jnp.ones(2)), jnp.ones(2))
        assert state.status is status
        assert np.isnan(state.std)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, TypeError, "missing 1 required positional argument: 'L'"),
        (
            {"L": None},
            TypeError,
            "L must be a number, got None. coco_denoiser.optax.hessian_bounds",
        ),
        ({"L": 1.0, "tol": -1.0}, ValueError, "tol must be positive"),
        ({"L": np.ones(2)}, TypeError, "L must be a real number, got array"),
        ({"L": 0.0}, ValueError, "L must be positive"),
        ({"L": 1.0, "mu": 1.0}, ValueError, "mu must be less than L"),
        ({"L": 1.0, "window": 0}, ValueError, "window must be"),
        ({"L": 1.0, "state_dtype": jnp.int32}, TypeError, "state_dtype"),
        ({"L": 1.0, "window": 1, "forget": "fold"}, ValueError, "forget"),
        ({"L": 1.0, "forget": "merge"}, ValueError, "forget"),
    ],
)
def test_bad_settings_are_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        coco_denoise(**options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mu": 0.5}, TypeError, "unexpected keyword argument 'mu'"),
        ({"forget": "fold"}, TypeError, "unexpected keyword argument 'forget'"),
        ({"L": -1.0}, ValueError, "L must be positive"),
        ({"window": "large"}, TypeError, "window must be"),
    ],
)
def test_bad_settings_and_those_of_another_model_are_refused(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        gaussian_denoise(**options)


def test_hyperparameters_may_be_injected() -> None:
    inject = optax.inject_hyperparams(gaussian_denoise, static_args="window")
    tx = inject(L=lambda n: 1.0 / (1 + n), window=3)
    params = as_tree(jnp.float32)
    with pytest.raises(TypeError, match="static_args"):
        optax.inject_hyperparams(coco_denoise)(L=1.0, window=3).init(params)
    state, update = tx.init(params), jax.jit(tx.update)
    for seed in range(4):
        _, state = update(noisy_gradient(params, seed), state, params)
        params = jax.tree.map(lambda p: p + 0.1, params)
    assert state.inner_state.curvature <= 0.2501  # the cap of the last step
