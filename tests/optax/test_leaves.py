"""What the leaves of parameters and updates may be: any dtype, complex, none, not finite."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.optax import coco_denoise
from tests.optax.streams import K, as_tree, flat, noisy_gradient, same, update


@pytest.mark.parametrize(("wide", "state_dtype"), [(False, None), (True, None), (True, "float32")])
def test_dtypes_are_kept(wide: bool, state_dtype: str | None) -> None:
    kinds = ["bfloat16", "float16", "float32", "complex64"] + ["float64", "complex128"] * wide
    with jax.enable_x64(wide):
        tx = coco_denoise(1.0, K, state_dtype=state_dtype)
        params = {dtype: jnp.ones((2, 2), dtype) for dtype in kinds}
        before = state = tx.init(params)
        mixed = jax.jit(tx.update)
        for n in range(3):
            g = jax.tree.map(lambda p, n=n: (-1.0) ** n * p, params)
            u, state = mixed(g, state, params)
        shapes = [jax.tree.map(lambda a: (a.shape, a.dtype), s) for s in (before, state)]
        assert shapes[0] == shapes[1]
        assert state.tables.point.dtype == ("float64" if wide and not state_dtype else "float32")
        for dtype in kinds:
            assert u[dtype].dtype == dtype
            kept = state.points[dtype].dtype
            stored = "complex64" if dtype.startswith("complex") else "float32"
            assert kept == (stored if state_dtype else dtype)
            # Three gradients at one point: the answer is their mean.
            assert np.allclose(u[dtype].astype(np.complex64), 1 / 3, rtol=1e-2)


def test_a_complex_leaf_is_its_two_parts() -> None:
    z = jnp.asarray([1 + 2j, -3 + 0.5j, 0.1j], jnp.complex64)
    state, core = coco_denoise(1.0, K).init(z), Denoiser(1.0, window=K)
    for seed in range(2 * K):
        g = noisy_gradient(z, seed)
        u, state = update(g, state, z)
        parts = [np.concatenate([v.real, v.imag]).astype(np.float64) for v in (z, g, u)]
        assert np.allclose(parts[2], core(*parts[:2]), rtol=1e-3, atol=1e-3)
        z = z - 0.5 * u


@pytest.mark.parametrize(
    ("tree", "window"),
    [({}, K), ((), 1), ([None, 2.0, optax.MaskedNode()], 1)],
)
def test_what_is_no_leaf_passes(tree: Any, window: int) -> None:
    tx = coco_denoise(1.0, window)
    state, advance = tx.init(tree), jax.jit(tx.update)
    for _ in range(3):
        u, state = advance(tree, state, tree)
        assert u == tree


def test_no_update_is_a_zero_and_stays_none() -> None:
    params = as_tree(jnp.float32)
    states = [coco_denoise(1.0, K).init(params)] * 2
    for seed in range(K):
        zero = noisy_gradient(params, seed) | {"b": jnp.zeros(3)}
        u, first = update(zero | {"b": None}, states[0], params)
        v, second = update(zero, states[1], params)
        states = [first, second]
        assert u["b"] is None
        assert np.allclose(u["w"], v["w"], rtol=1e-3, atol=1e-3)
        assert same((first.points, first.gradients), (second.points, second.gradients))
        params = params | {"w": params["w"] - 0.5 * v["w"]}


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e25])
def test_what_cannot_be_measured_passes_and_leaves_the_window(bad: float) -> None:
    params = as_tree(jnp.float32)
    state = coco_denoise(1.0, K).init(params)
    for seed in range(K + 1):
        g = noisy_gradient(params, seed)
        _, state = update(g, state, params)
        wrong = {"w": g["w"].at[1, 1].set(bad), "b": g["b"]}
        u, after = update(wrong, state, params)
        np.testing.assert_array_equal(flat(u), flat(wrong))
        assert same(after, state)
