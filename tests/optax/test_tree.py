"""What the leaves may be, what is said of trees that cannot be denoised, and bounds."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser.optax import coco_denoise, gaussian_denoise, hessian_bounds
from tests.optax.streams import K, as_tree, noisy_gradient, same

ONES = {"w": jnp.ones((2, 3))}


@pytest.mark.parametrize("options", [{"window": K}, {"window": 2, "forget": "fold"}])
@pytest.mark.parametrize(
    ("updates", "params", "error", "words"),
    [
        (
            {"w": jnp.ones(6)},
            ONES,
            ValueError,
            "updates must have shape (2, 3) for params['w'], got (6,)",
        ),
        ({"w": jnp.ones((1, 3))}, ONES, ValueError, "got (1, 3)"),
        ({"w": jnp.ones(6)}, {"w": jnp.ones(6)}, ValueError, "points must have shape"),
        ({"v": jnp.ones((2, 3))}, ONES, ValueError, "updates must be a tree like params"),
        ({"v": jnp.ones(2)}, {"v": jnp.ones(2)}, ValueError, "state's points must be a tree"),
        ({"w": np.zeros((2, 3), jax.dtypes.float0)}, ONES, TypeError, "optax.masked"),
        ({"w": jnp.ones((2, 3), int)}, ONES, TypeError, "got int32 at updates['w']"),
        ({"w": jnp.ones((2, 3), complex)}, ONES, TypeError, "updates must be complex where"),
        (ONES, {"w": jnp.ones((2, 3), complex)}, TypeError, "complex64"),
    ],
)
def test_what_does_not_belong_together_is_named(
    options: Any, updates: Any, params: Any, error: Any, words: str
) -> None:
    tx = coco_denoise(1.0, **options)
    with pytest.raises(error, match=re.escape(words)):
        tx.update(updates, tx.init(ONES), params)
    other = coco_denoise(1.0, K + 1).init(ONES)
    with pytest.raises(ValueError, match=r"got \(5, 2, 3\).*another window, call init again"):
        tx.update(ONES, other, ONES)


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (jnp.arange(3), r"got int32 at params\['n'\]\[0\].*optax\.masked"),
        # As an Equinox module is, which holds its activation function.
        (jax.nn.relu, r"must hold arrays, got .* at params\['n'\]\[0\].*equinox\.filter"),
    ],
)
def test_what_is_no_parameter_is_refused_from_the_start_and_later(leaf: Any, words: str) -> None:
    tx, params = coco_denoise(1.0, K), {"n": [leaf]}
    with pytest.raises(TypeError, match=words):
        tx.init(params)
    with pytest.raises(TypeError, match=words):
        tx.update(params, tx.init({"n": [jnp.ones(3)]}), params)


def test_numbers_of_python_are_parameters_too() -> None:
    tx, array = coco_denoise(1.0, K), jnp.array(2.0)
    state, reference, update = tx.init(2.0), tx.init(array), jax.jit(tx.update)
    kinds: list[Any] = [jax.tree.map(lambda v: v.aval, each) for each in (state, reference)]
    assert kinds[0] == kinds[1]
    for seed in range(3):
        g = float(noisy_gradient(array, seed))
        u, state = update(g, state, 2.0)
        v, reference = update(jnp.array(g), reference, array)
        assert u == v
    assert u != g


def test_bounds_are_those_of_the_whole_hessian() -> None:
    def loss(p: dict[str, jax.Array]) -> jax.Array:
        return 3.0 * p["w"] ** 2 + p["v"] @ p["v"] + 4.0 * p["w"] * p["v"][0]

    high, low = 4.0 + 20.0**0.5, 4.0 - 20.0**0.5  # of a leaf alone they would be 6 and 2
    params = {"w": jnp.array(1.0), "v": jnp.ones(2)}
    assert hessian_bounds(loss, params) == pytest.approx((high, low), abs=1e-4)


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
        assert state.window.tables.dtype == ("float64" if wide and not state_dtype else "float32")
        for dtype in kinds:
            assert u[dtype].dtype == dtype
            kept = state.points[dtype].dtype
            stored = "complex64" if dtype.startswith("complex") else "float32"
            assert kept == (stored if state_dtype else dtype)
            # Three gradients at one point: the answer is their mean.
            assert np.allclose(u[dtype].astype(np.complex64), 1 / 3, rtol=1e-2)


@pytest.mark.parametrize(
    ("tree", "tx"),
    [
        ({}, coco_denoise(1.0, K)),
        ({}, gaussian_denoise(window=2)),
        ((), coco_denoise(1.0, 1)),
        ([None, 2.0, optax.MaskedNode()], coco_denoise(1.0, 1)),
    ],
)
def test_what_is_no_leaf_passes(tree: Any, tx: Any) -> None:
    state, advance = tx.init(tree), jax.jit(tx.update)
    for _ in range(3):
        u, state = advance(tree, state, tree)
        assert u == tree


def test_no_update_is_a_zero_and_stays_none() -> None:
    params = as_tree(jnp.float32)
    tx = coco_denoise(1.0, K)
    states, update = [tx.init(params)] * 2, jax.jit(tx.update)
    for seed in range(K):
        zero = noisy_gradient(params, seed) | {"b": jnp.zeros(3)}
        u, first = update(zero | {"b": None}, states[0], params)
        v, second = update(zero, states[1], params)
        states = [first, second]
        assert u["b"] is None
        assert np.allclose(u["w"], v["w"], rtol=1e-3, atol=1e-3)
        assert same((first.points, first.gradients), (second.points, second.gradients))
        params = params | {"w": params["w"] - 0.5 * v["w"]}
