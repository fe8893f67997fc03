"""Folding in JAX: the core's trajectories, in a state of two copies if the window is of two."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.optax import FoldState, coco_denoise
from tests.optax.streams import as_tree, flat, noisy_gradient, same


@pytest.mark.parametrize("K", [2, 4])
def test_it_is_compiled_once_and_passes_on_what_is_not_finite(K: int) -> None:
    tx, params = coco_denoise(1.0, K, forget="fold"), as_tree(jnp.float32)
    state, update = tx.init(params), cast("Any", jax.jit(tx.update))
    for seed in range(K + 2):
        g = noisy_gradient(params, seed)
        broken = g | {"b": g["b"].at[0].set(jnp.nan)}
        passed, untouched = update(broken, state, params)
        np.testing.assert_array_equal(flat(passed), flat(broken))
        assert same(untouched, state)
        _, state = update(g, state, params)
    assert update._cache_size() == 1


def test_long_leaves_are_folded_as_by_the_core() -> None:
    tx = coco_denoise(1.0, 2, forget="fold")
    rng = np.random.default_rng(0)
    x = rng.normal(size=30_001).astype(np.float32)
    state, update = tx.init(jnp.asarray(x)), jax.jit(tx.update)
    denoiser = Denoiser(1.0, window=2, forget="fold")
    for _ in range(4):
        g = 0.5 * x + rng.normal(size=x.size).astype(np.float32)
        ours, state = update(jnp.asarray(g), state, jnp.asarray(x))
        np.testing.assert_allclose(ours, denoiser(x, g), atol=1e-4)
        np.testing.assert_array_equal(state.points, x)
        np.testing.assert_array_equal(state.gradients, ours)
        x = np.asarray(x - 0.5 * ours)
    assert not np.allclose(ours, g, atol=1e-2)


def test_with_a_window_of_two_the_state_is_two_copies_and_a_number() -> None:
    params = as_tree(jnp.float32)
    state = coco_denoise(1.0, 2, forget="fold").init(params)
    assert isinstance(state, FoldState)
    sizes = [leaf.size for leaf in jax.tree.leaves(state)]
    assert sum(sizes) == 2 * flat(params).size + 1
