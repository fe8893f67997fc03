"""A window in bfloat16: half the memory, and points as close as they were, far from the start."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.optax import coco_denoise

K = 4
MODELS = pytest.mark.parametrize("bounds", [{}, {"L": 1.0, "mu": 0.1}], ids=["gaussian", "coco"])


@MODELS
@pytest.mark.parametrize("length", [12, 20_000], ids=["short", "in blocks"])
def test_only_roundings_are_lost_however_far_the_points_travel(bounds: Any, length: int) -> None:
    rng = np.random.default_rng(0)
    tx, core = coco_denoise(window=K, storage="bfloat16", **bounds), Denoiser(window=K, **bounds)
    start = np.float32(1000.0) + rng.normal(size=length).astype(np.float32)
    x = {"a": jnp.asarray(start[:5]), "b": jnp.asarray(start[5:])}
    state, update = tx.init(x), jax.jit(tx.update)
    worst = 0.0
    for n in range(4 * K):
        flat = np.concatenate([x["a"], x["b"]]).astype(float)
        g = 0.5 * (flat - 1000.0 + 0.5 * n) + rng.normal(size=length)
        leaves = {"a": jnp.asarray(g[:5], "float32"), "b": jnp.asarray(g[5:], "float32")}
        u, state = update(leaves, state, x)
        theta = core(flat, g)
        worst = max(worst, float(np.max(np.abs(np.concatenate([u["a"], u["b"]]) - theta))))
        # A thousand from zero, points in bfloat16 would coincide, or be four apart.
        x = jax.tree.map(lambda p, v: p - 0.01 * v - 0.5, x, u)
    assert worst < 0.02
    assert not np.allclose(theta, g, atol=0.1)
    full = jax.tree.leaves(coco_denoise(window=K).init(x)[:2])
    kept = jax.tree.leaves((state.points, state.gradients, state.reference))
    assert sum(v.nbytes for v in full) == 8 * K * length
    assert sum(v.nbytes for v in kept) == (4 * K + 6) * length


@MODELS
def test_states_keep_their_types_and_what_is_refused_leaves_no_trace(bounds: Any) -> None:
    with jax.enable_x64(True):
        tx = coco_denoise(window=2, storage="bfloat16", **bounds)
        kinds = {"z": "complex64", "w": "float64", "h": "float16"}
        x = {name: jnp.ones(3, kind) for name, kind in kinds.items()}
        before = state = tx.init(x)
        update = jax.jit(tx.update)
        for n in range(3):
            g = jax.tree.map(lambda p, n=n: (-1.0) ** n * p, x)
            u, state = update(g, state, x)
        types = [jax.tree.map(lambda a: (a.shape, a.dtype), s) for s in (before, state)]
        assert types[0] == types[1]
        assert state.tables.point.dtype == "float64"
        assert {str(v.dtype) for v in jax.tree.leaves(state.points)} == {"bfloat16", "complex64"}
        assert {name: str(v.dtype) for name, v in u.items()} == kinds
        for bad in (np.nan, 1e30):  # whose square float64 holds, and bfloat16 does not
            wrong = g | {"w": g["w"].at[1].set(bad)}
            u, after = update(wrong, state, x)
            same = jax.tree.map(np.array_equal, (u["z"], after), (wrong["z"], state))
            assert all(jax.tree.leaves(same))


def test_what_it_does_not_go_with_is_said() -> None:
    with pytest.raises(ValueError, match="storage must be"):
        coco_denoise(storage="int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"storage='bfloat16' goes with forget='drop' only"):
        coco_denoise(1.0, 3, forget="fold", storage="bfloat16")
