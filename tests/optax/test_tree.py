"""What the leaves may be, what is said of trees that cannot be denoised, and bounds."""

import re
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser import Denoiser, Status
from coco_denoiser.optax import coco_denoise, gaussian_denoise, hessian_bounds
from tests.optax.streams import K, as_tree, flat, noisy_gradient, same, update

ONES = {"w": jnp.ones((2, 3))}
WINDOWS: list[Any] = [{"window": K}, {"window": 2, "forget": "fold"}]


@pytest.mark.parametrize("options", WINDOWS, ids=["window", "filter"])
@pytest.mark.parametrize(
    ("updates", "params", "error", "words"),
    [
        ({"w": jnp.ones(6)}, ONES, ValueError, "updates must have the shapes of params, got (6,)"),
        ({"w": jnp.ones((1, 3))}, ONES, ValueError, "got (1, 3) at updates['w']"),
        ({"w": jnp.ones(6)}, {"w": jnp.ones(6)}, ValueError, "Call init again"),
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
    with pytest.raises(ValueError, match=r"of this window.*\(5, 2, 3\).*Call init again"):
        tx.update(ONES, other, ONES)


def test_integers_are_refused_from_the_start() -> None:
    with pytest.raises(TypeError, match=r"got int32 at params\['n'\]\[0\].*optax\.masked"):
        coco_denoise(1.0, K).init({"n": [jnp.arange(3)]})


def test_numbers_of_python_are_parameters_too() -> None:
    state, reference = coco_denoise(1.0, K).init(2.0), coco_denoise(1.0, K).init(jnp.array(2.0))
    kinds: list[Any] = [jax.tree.map(lambda v: v.aval, each) for each in (state, reference)]
    assert kinds[0] == kinds[1]
    for seed in range(3):
        g = float(noisy_gradient(jnp.array(2.0), seed))
        u, state = update(g, state, 2.0)
        v, reference = update(jnp.array(g), reference, jnp.array(2.0))
        assert u == v
    assert u != g


@pytest.mark.parametrize("name", ["L", "mu"])
def test_schedules_and_words_are_no_bounds(name: str) -> None:
    schedule = optax.constant_schedule(1.0)
    settings: dict[str, Any] = {"L": 2.0, "window": K}
    with pytest.raises(TypeError, match=rf"{name} must be .*inject_hyperparams.*\({name}=schedule"):
        coco_denoise(**settings | {name: schedule})
    with pytest.raises(TypeError, match=f"{name} must be a number, got 'Auto'.*hessian_bounds"):
        coco_denoise(**settings | {name: "Auto"})


@pytest.mark.parametrize("options", WINDOWS, ids=["window", "filter"])
def test_a_model_with_functions_among_its_leaves_is_named(options: Any) -> None:
    """As an Equinox module is, which holds its activation function."""
    tx, model = coco_denoise(1.0, **options), {"w": jnp.ones(2), "activation": jax.nn.relu}
    words = r"must hold arrays, got .* at params\['activation'\].*equinox\.filter"
    with pytest.raises(TypeError, match=words):
        tx.init(model)
    with pytest.raises(TypeError, match=words):
        tx.update(model, tx.init({"w": jnp.ones(2)}), model)


def test_bounds_are_those_of_the_whole_hessian() -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    params = {"w": jax.random.normal(keys[0], (3, 4)), "v": jax.random.normal(keys[1], (4,))}
    inputs, labels = jax.random.normal(keys[2], (50, 3)), jax.random.normal(keys[3], (50,))

    def loss(p: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((jnp.tanh(inputs @ p["w"]) @ p["v"] - labels) ** 2)

    flat, unravel = jax.flatten_util.ravel_pytree(params)
    eigenvalues = np.linalg.eigvalsh(jax.jit(jax.hessian(lambda x: loss(unravel(x))))(flat))
    low, high = eigenvalues[0], eigenvalues[-1]
    L, mu = hessian_bounds(loss, params)
    # Twice as many products as variables: exact.
    assert (L, mu) == pytest.approx((high, low), abs=1e-4)


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


@pytest.mark.parametrize("options", [*WINDOWS, {"window": K, "forget": "fold"}])
def test_what_cannot_be_measured_passes_and_leaves_the_window(options: Any) -> None:
    tx, params = coco_denoise(1.0, **options), as_tree(jnp.float32)
    state, update = tx.init(params), cast("Any", jax.jit(tx.update))
    for seed in range(K + 2):  # while the window fills up, and after
        g = noisy_gradient(params, seed)
        for bad in (np.nan, np.inf, 1e25):
            wrong = g | {"w": g["w"].at[1, 1].set(bad)}
            u, after = update(wrong, state, params, value=bad)
            np.testing.assert_array_equal(flat(u), flat(wrong))
            assert same(after[:3], state[:3])
            assert after.status is Status.REFUSED
            assert after.refused == state.refused + 1
        _, state = update(g, after, params, value=1.0)
    assert update._cache_size() == 1
