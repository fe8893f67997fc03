"""Folding in JAX: the core's trajectories, in a state of two copies if the window is of two."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.optax import FoldState, coco_denoise
from tests.optax.streams import as_tree, noisy_gradient, same

STEPS = 12
TRACES: list[int] = []  # one for each time that an update was compiled


def flat(tree: Any) -> Any:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize("K", [2, 4])
def test_a_stream_is_folded_as_by_the_core_and_compiled_once(K: int) -> None:
    @jax.jit
    def update(g: Any, state: Any, params: Any, L: Any) -> Any:
        TRACES.append(K)
        return coco_denoise(L, K, mu=0.1, forget="fold").update(g, state, params)

    with jax.enable_x64(True):
        denoiser = Denoiser(1.0, window=K, mu=0.1, forget="fold", tol=1e-12)
        params = as_tree(jnp.float64)
        state = coco_denoise(1.0, K, forget="fold").init(params)
        for seed in range(STEPS):
            g = noisy_gradient(params, seed)
            broken = jax.tree.map(lambda v: v.at[0].set(jnp.nan), g)
            passed, untouched = update(broken, state, params, 1.0)
            assert all(
                np.array_equal(a, b, equal_nan=True)
                for a, b in zip(jax.tree.leaves(passed), jax.tree.leaves(broken), strict=True)
            )
            assert same(untouched, state)
            ours, after = update(g, state, params, 1.0)
            core = denoiser(flat(params), flat(g))
            np.testing.assert_allclose(flat(ours), core, rtol=0, atol=1e-8 * np.abs(core).max())
            types: list[Any] = [jax.tree.map(lambda v: v.dtype, s) for s in (state, after)]
            assert types[0] == types[1]
            state = after
            params = jax.tree.map(lambda p, u: p - 0.7 * u, params, ours)
        held = state.precision[None] if K == 2 else state.tables.precision
        np.testing.assert_allclose(held, 1 / denoiser.state_dict()["variances"], rtol=1e-8)
        assert np.max(held) > 2.0
        assert TRACES.count(K) == 1


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


@pytest.mark.parametrize(("window", "forget"), [(1, "fold"), (2, "merge")])
def test_what_cannot_be_is_refused(window: int, forget: Any) -> None:
    with pytest.raises(ValueError, match="forget"):
        coco_denoise(1.0, window, forget=forget)
