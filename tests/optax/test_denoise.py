"""The batch solver in JAX: agreement with the core, batches of windows, derivatives."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

import coco_denoiser
from coco_denoiser.optax import denoise
from coco_denoiser.typing import Float64

# Few shapes: each is compiled once a precision.
SHAPES = [(6, 1), (6, 3), (8, 20)]
KINDS = ["random", "duplicates", "close", "collinear", "inactive", "active", "noiseless", "grid"]
TOLERANCE = {np.float32: 1e-3, np.float64: 1e-6}
compiled = jax.jit(denoise)
precise = jax.jit(lambda x, g, L, mu: denoise(x, g, L=L, mu=mu, tol=1e-14))


def window(
    kind: str, shape: tuple[int, int], seed: int, x_scale: float = 1.0, g_scale: float = 1.0
) -> tuple[Float64, Float64, float]:
    """Return points, gradients and L of one window."""
    rng = np.random.default_rng(seed)
    K, d = shape
    x = rng.uniform(-10, 10, (K, d))
    noise = 10 * rng.standard_normal((K, d))
    if kind == "duplicates":
        x = x[rng.integers(0, max(K // 2, 1), K)]
    elif kind == "close":
        x = x[rng.integers(0, max(K // 2, 1), K)]
        x = x + 10.0 ** -rng.integers(1, 12) * rng.standard_normal((K, d))
    elif kind == "collinear":
        x = rng.uniform(-10, 10, (K, 1)) * rng.standard_normal(d)
    elif kind == "inactive":
        x *= 1e4
    elif kind == "active":
        x *= 1e-4
    elif kind == "noiseless":
        noise *= 0
    elif kind == "grid":
        x = np.round(x / 5)
    g = x * np.linspace(1, 1 / 3, d) + noise
    return x_scale * x, g_scale * g, g_scale / x_scale


def difference(ours: Any, core: Float64, gradients: Float64) -> float:
    size = max(float(np.linalg.norm(core)), float(np.linalg.norm(gradients)), 1e-300)
    return float(np.linalg.norm(np.asarray(ours, dtype=np.float64) - core) / size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=100)
@given(
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 10**6),
    x_scale=st.sampled_from([1e-6, 1e-3, 1.0, 1e6]),
    g_scale=st.sampled_from([1e-6, 1.0, 1e3, 1e6]),
    mu=st.sampled_from([0.0, 0.2, -1.0]),
)
@example(kind="active", shape=(8, 20), seed=0, x_scale=1e6, g_scale=1e-6, mu=0.0)
@example(kind="close", shape=(8, 20), seed=7, x_scale=1.0, g_scale=1.0, mu=0.0)
def test_agrees_with_the_core(
    dtype: Any,
    kind: str,
    shape: tuple[int, int],
    seed: int,
    x_scale: float,
    g_scale: float,
    mu: float,
) -> None:
    x, g, L = window(kind, shape, seed, x_scale, g_scale)
    x, g = x.astype(dtype), g.astype(dtype)
    core = coco_denoiser.solve(x, g, L=L, mu=mu * L, tol=1e-11, throw=False)
    with jax.enable_x64(dtype is np.float64):
        ours = compiled(x, g, L=L, mu=mu * L)
        assert ours.dtype == dtype
    assert difference(ours, core.gradients, g) <= TOLERANCE[dtype]


@pytest.mark.parametrize(("K", "dtype"), [(16, np.float64), (32, np.float64), (32, np.float32)])
def test_wide_windows_agree_as_well(K: int, dtype: Any) -> None:
    for kind in KINDS:
        x, g, L = window(kind, (K, 10), seed=3)
        x, g = x.astype(dtype), g.astype(dtype)
        core = coco_denoiser.denoise(x, g, L=L)
        with jax.enable_x64(dtype is np.float64):
            assert difference(compiled(x, g, L=L), core, g) <= TOLERANCE[dtype]


@pytest.mark.parametrize("kind", ["inactive", "noiseless"])
def test_what_obeys_the_bounds_is_returned_bit_by_bit(kind: str) -> None:
    x, g, _ = window(kind, (8, 20), seed=1)
    x, g = x.astype(np.float32), g.astype(np.float32)
    assert np.array_equal(compiled(x, g, L=1.5, mu=0.1), g)


def test_one_observation_is_returned() -> None:
    assert np.array_equal(denoise(np.ones((1, 3)), np.arange(3.0)[None], L=1.0), [[0, 1, 2]])


def test_a_batch_is_each_window_by_itself() -> None:
    # Alone, the bounds are traced; together, they are numbers.
    windows = [window(kind, (6, 3), seed) for seed, kind in enumerate(KINDS)]
    x, g = (np.stack([w[i] for w in windows]) for i in (0, 1))
    with jax.enable_x64(True):
        together = jax.jit(jax.vmap(partial(denoise, L=1.0)))(x, g)
        for i in range(len(windows)):
            assert np.allclose(together[i], compiled(x[i], g[i], L=1.0), rtol=1e-7, atol=1e-7)


def test_half_precision_keeps_its_dtype() -> None:
    for dtype in (jnp.bfloat16, jnp.float16):
        some = jnp.ones((6, 3), dtype)
        assert jax.eval_shape(partial(denoise, L=1.0), some, some).dtype == dtype


@pytest.mark.parametrize("kind", ["random", "active", "grid", "inactive"])
def test_derivatives_agree_with_finite_differences(kind: str) -> None:
    x, g, _ = window(kind, (6, 3), seed=5)
    if kind == "grid":
        x = x + 1e-3 * np.random.default_rng(0).standard_normal(x.shape)
    with jax.enable_x64(True):
        check_grads(  # type: ignore[no-untyped-call]
            precise, (x, g, 1.0, 0.1), order=1, eps=1e-6, rtol=1e-4, atol=1e-4
        )


def test_derivatives_agree_with_those_of_the_closed_form() -> None:
    def closed_form(x: Any, g: Any, L: Any, mu: Any) -> Any:
        c, r = (L + mu) / 2, (L - mu) / 2
        delta = (g[0] - g[1]) - c * (x[0] - x[1])
        excess = 1 - r * jnp.linalg.norm(x[0] - x[1]) / jnp.linalg.norm(delta)
        step = 0.5 * jnp.maximum(excess, 0.0) * delta
        return jnp.stack([g[0] - step, g[1] + step])

    with jax.enable_x64(True):
        for mode in (jax.jacfwd, jax.jacrev):
            of_ours = jax.jit(mode(lambda x, g, L, mu: denoise(x, g, L=L, mu=mu), range(4)))
            of_closed_form = jax.jit(mode(closed_form, range(4)))
            for seed in range(5):
                x, g, _ = window("random", (2, 3), seed)
                ours, theirs = of_ours(x, g, 0.5, 0.1), of_closed_form(x, g, 0.5, 0.1)
                for a, b in zip(ours, theirs, strict=True):
                    assert np.allclose(a, b, rtol=1e-6, atol=1e-8)


def test_derivatives_are_finite_and_averages_where_points_coincide() -> None:
    x, g, _ = window("duplicates", (6, 3), seed=2)
    with jax.enable_x64(True):
        J = jax.jit(jax.jacrev(lambda x, g: denoise(x, g, L=1.0), (0, 1)))(x, g)
        assert all(np.isfinite(j).all() for j in J)
        # The mean of the answer is the mean of the gradients, whatever they are.
        assert np.allclose(J[1].sum(0), np.broadcast_to(np.eye(3)[:, None], (3, 6, 3)), atol=1e-7)
    derivative = jax.jit(jax.jacfwd(lambda g, x: denoise(x, g, L=1.0)))
    J32 = derivative(g.astype(np.float32), x.astype(np.float32))
    assert np.allclose(J32, J[1], atol=1e-2)


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"L": -1.0}, ValueError, "L"),
        ({"mu": 2.0}, ValueError, "mu"),
        ({"points": np.zeros(3)}, ValueError, "points"),
        ({"gradients": np.zeros((3, 2))}, ValueError, "gradients"),
        ({"gradients": 1j * np.ones((2, 2))}, TypeError, "gradients"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], error: type[Exception], named: str) -> None:
    arguments: dict[str, Any] = {
        "points": np.zeros((2, 2)),
        "gradients": np.zeros((2, 2)),
        "L": 1.0,
    } | change
    with pytest.raises(error, match=named):
        denoise(**arguments)
