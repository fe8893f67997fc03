"""coco_denoise as an Optax transformation: the contract that Optax's own transformations keep."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.optax import CocoState, coco_denoise

K, STEPS = 4, 10
PARAMS = {"w": np.linspace(-2, 3, 6).reshape(2, 3), "b": np.ones(3)}


def noisy_gradient(params: Any, seed: Any, noise: float = 1.0) -> Any:
    """The gradient of a quadratic with curvatures from 1/3 to 1, and noise."""
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), max(len(leaves), 1))
    return jax.tree.unflatten(
        tree,
        [
            jnp.linspace(1, 1 / 3, p.size).reshape(p.shape).astype(p.dtype) * p
            + noise * jax.random.normal(key, p.shape, p.dtype)
            for p, key in zip(leaves, keys, strict=False)
        ],
    )


def make_step(tx: Any, **options: Any) -> Any:
    def step(params: Any, state: Any, seed: Any) -> Any:
        updates, state = tx.update(noisy_gradient(params, seed), state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(step, **options)


def as_tree(dtype: Any, params: Any = PARAMS) -> Any:
    return jax.tree.map(lambda p: jnp.asarray(p, dtype), params)


def run(tx: Any, params: Any, steps: int = STEPS) -> Any:
    state, step = tx.init(params), make_step(tx)
    for seed in range(steps):
        params, state = step(params, state, seed)
    return params, state


def same(a: Any, b: Any) -> bool:
    trees: list[Any] = [jax.tree.structure(a), jax.tree.structure(b)]
    return trees[0] == trees[1] and all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_stream_is_denoised_as_by_the_core(dtype: Any) -> None:
    with jax.enable_x64(dtype == jnp.float64):
        tx, denoiser = coco_denoise(1.0, K, mu=0.1), Denoiser(1.0, window=K, mu=0.1)
        params = as_tree(dtype)
        state, update = tx.init(params), jax.jit(tx.update)
        for seed in range(3 * K):
            g = noisy_gradient(params, seed)
            ours, state = update(g, state, params)
            flat = [np.concatenate([np.ravel(t[k]) for k in "bw"]) for t in (params, g, ours)]
            core = denoiser(*(v.astype(np.float64) for v in flat[:2]))
            tolerance = 1e-6 if dtype == jnp.float64 else 1e-3
            assert np.linalg.norm(flat[2] - core) <= tolerance * np.linalg.norm(flat[1])
            params = jax.tree.map(lambda p, u: p - 0.7 * u, params, ours)


def test_bounds_that_change_are_those_of_a_window_that_always_had_them() -> None:
    with jax.enable_x64(True):
        params, gradients = [], []
        tx = optax.inject_hyperparams(coco_denoise, static_args=("window", "max_iter"))(
            L=lambda count: 1.0 + 0.1 * count, window=K, mu=lambda count: 0.05 * count
        )
        state = tx.init(as_tree(jnp.float64))
        update = jax.jit(tx.update)
        fixed = jax.jit(lambda L, mu, *rest: coco_denoise(L, K, mu=mu).update(*rest))
        p = as_tree(jnp.float64)
        for seed in range(2 * K):
            params.append(p)
            gradients.append(noisy_gradient(p, seed))
            u, state = update(gradients[-1], state, p)
            replay = coco_denoise(1.0, K).init(p)
            for x, g in zip(params[-K:], gradients[-K:], strict=True):
                expected, replay = fixed(1.0 + 0.1 * seed, 0.05 * seed, g, replay, x)
            for a, b in zip(jax.tree.leaves(u), jax.tree.leaves(expected), strict=True):
                assert np.allclose(a, b, rtol=1e-7, atol=1e-7)
            p = jax.tree.map(lambda x, y: x - 0.5 * y, p, u)


@pytest.mark.parametrize("window", [1, K])
def test_where_nothing_is_active_updates_are_bit_equal(window: int) -> None:
    params = as_tree(jnp.float32)
    tx = coco_denoise(1.0 if window == 1 else 1e6, window)
    state, update = tx.init(params), jax.jit(tx.update)
    for seed in range(2 * K):
        params = jax.tree.map(lambda p: p + 1.0, params)
        g = noisy_gradient(params, seed)
        g["b"] = g["b"].at[0].set(-0.0)
        u, state = update(g, state, params)
        assert same(u, g)
        assert np.signbit(u["b"][0])


def test_it_needs_params_and_says_so_as_optax_does() -> None:
    tx = coco_denoise(1.0, K)
    reference = optax.add_decayed_weights(0.1)
    messages = []
    for each in (tx, reference):
        with pytest.raises(ValueError, match="params") as error:
            each.update(as_tree(jnp.float32), each.init(as_tree(jnp.float32)), None)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_extra_arguments_are_accepted_and_the_second_call_does_not_recompile() -> None:
    tx = coco_denoise(1.0, K)
    assert isinstance(tx, optax.GradientTransformationExtraArgs)
    traces = 0

    @jax.jit
    def update(g: Any, state: Any, params: Any, L: Any) -> Any:
        nonlocal traces
        traces += 1
        return coco_denoise(L, K).update(g, state, params, value=1.0, anything="else")

    params = as_tree(jnp.float32)
    state = tx.init(params)
    for seed in range(2 * K):  # while the window fills up, and after
        _, state = update(noisy_gradient(params, seed), state, params, 1.0 + seed)
    assert traces == 1
    assert int(state.tables.size) == K


def test_scan_and_cond_give_what_a_loop_gives() -> None:
    tx = optax.chain(coco_denoise(1.0, K), optax.sgd(0.5))
    params = as_tree(jnp.float32)
    looped, _ = run(tx, params)

    def step(carry: Any, seed: Any) -> Any:
        params, state = carry
        g = noisy_gradient(params, seed)
        u, state = jax.lax.cond(seed >= 0, lambda: tx.update(g, state, params), lambda: (g, state))
        return (optax.apply_updates(params, u), state), None

    (scanned, _), _ = jax.lax.scan(step, (params, tx.init(params)), jnp.arange(STEPS))
    for a, b in zip(jax.tree.leaves(looped), jax.tree.leaves(scanned), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_batch_of_trajectories_is_each_by_itself() -> None:
    tx = optax.chain(coco_denoise(1.0, K), optax.sgd(0.5))

    def trajectory(seed: Any) -> Any:
        def step(carry: Any, n: Any) -> Any:
            params, state = carry
            u, state = tx.update(noisy_gradient(params, 100 * seed + n), state, params)
            return (optax.apply_updates(params, u), state), None

        params = as_tree(jnp.float64)
        return jax.lax.scan(step, (params, tx.init(params)), jnp.arange(STEPS))[0][0]

    with jax.enable_x64(True):
        together = jax.jit(jax.vmap(trajectory))(jnp.arange(5))
        for seed in range(5):
            alone = jax.jit(trajectory)(seed)
            for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
                assert np.allclose(a[seed], b, rtol=1e-7, atol=1e-7)


def test_multisteps_denoises_the_mean_gradient() -> None:
    every = optax.MultiSteps(optax.chain(coco_denoise(1.0, K), optax.sgd(0.5)), every_k_schedule=2)
    params = as_tree(jnp.float32)
    state, update = every.init(params), jax.jit(every.update)
    for seed in range(2 * K):
        u, state = update(noisy_gradient(params, seed), state, params)
        params = optax.apply_updates(params, u)
    assert int(state.inner_opt_state[0].tables.size) == K


def test_masked_leaves_are_left_alone() -> None:
    params = as_tree(jnp.float32)
    tx = optax.masked(coco_denoise(1.0, K), {"w": True, "b": False})
    alone = coco_denoise(1.0, K)
    state, other = tx.init(params), alone.init({"w": params["w"]})
    for seed in range(2 * K):
        g = noisy_gradient(params, seed)
        u, state = tx.update(g, state, params)
        v, other = alone.update({"w": g["w"]}, other, {"w": params["w"]})
        assert np.array_equal(u["b"], g["b"])
        assert np.array_equal(u["w"], v["w"])


def test_in_a_partition_each_part_has_its_own_window() -> None:
    params = as_tree(jnp.float32)
    parts = {name: coco_denoise(1.0, K) for name in params}
    tx = optax.partition(parts, {name: name for name in params})
    state = tx.init(params)
    others = {name: parts[name].init(params[name]) for name in params}
    for seed in range(2 * K):
        g = noisy_gradient(params, seed)
        u, state = tx.update(g, state, params)
        for name in params:
            v, others[name] = parts[name].update(g[name], others[name], params[name])
            assert np.array_equal(u[name], v)


def test_injected_hyperparameters_need_a_static_window() -> None:
    with pytest.raises(TypeError, match="static_args"):
        optax.inject_hyperparams(coco_denoise)(L=1.0, window=K).init(as_tree(jnp.float32))


def test_map_params_finds_the_window() -> None:
    params = as_tree(jnp.float32)
    tx = optax.chain(coco_denoise(1.0, K), optax.adam(0.1))
    _, state = run(tx, params, 2)
    marked = optax.tree_utils.tree_map_params(
        tx, lambda _: "window", state, transform_non_params=lambda _: "table"
    )
    assert jax.tree.leaves(marked[0].points) == ["window"] * 2
    assert jax.tree.leaves(marked[0].gradients) == ["window"] * 2
    assert set(jax.tree.leaves(marked[0].tables)) == {"table"}


def test_params_and_state_may_be_donated() -> None:
    tx = optax.chain(coco_denoise(1.0, K), optax.adam(0.1))
    kept, _ = run(tx, as_tree(jnp.float32))
    params = as_tree(jnp.float32)
    state, step = tx.init(params), make_step(tx, donate_argnums=(0, 1))
    for seed in range(STEPS):
        params, state = step(params, state, seed)
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(params), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("state_dtype", [None, "float32"])
def test_dtypes_are_kept(dtype: str, state_dtype: str | None) -> None:
    with jax.enable_x64(dtype == "float64"):
        tx = coco_denoise(1.0, K, state_dtype=state_dtype)
        params = {"a": jnp.ones((2, 2), dtype), "b": jnp.ones(3, dtype)}
        before = tx.init(params)
        update = jax.jit(tx.update)
        state = before
        for n in range(3):
            g = jax.tree.map(lambda p, n=n: (-1.0) ** n * p, params)
            u, state = update(g, state, params)
        kinds = [jax.tree.map(lambda a: (a.shape, a.dtype), s) for s in (before, state)]
        assert kinds[0] == kinds[1]
        assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(u))
        kept = state.points["a"].dtype
        assert kept == (state_dtype or dtype) or dtype == "complex64"
        # Three gradients at one point: the answer is their mean.
        assert np.allclose(u["a"].astype(np.complex64), 1 / 3, rtol=1e-2)


def test_a_complex_leaf_is_its_two_parts() -> None:
    tx = coco_denoise(1.0, K)
    z = jnp.asarray([1 + 2j, -3 + 0.5j, 0.1j], jnp.complex64)
    state, other = tx.init(z), tx.init((z.real, z.imag))
    for seed in range(2 * K):
        g = noisy_gradient(z, seed)
        u, state = tx.update(g, state, z)
        (re, im), other = tx.update((g.real, g.imag), other, (z.real, z.imag))
        assert np.allclose(u, re + 1j * im, rtol=1e-3, atol=1e-3)
        z = z - 0.5 * u


@pytest.mark.parametrize("tree", [{}, (), {"a": optax.MaskedNode()}, [None]])
def test_trees_without_leaves_pass(tree: Any) -> None:
    tx = coco_denoise(1.0, K)
    state = tx.init(tree)
    for _ in range(3):
        u, state = jax.jit(tx.update)(tree, state, tree)
        assert u == tree


def test_placeholder_leaves_pass() -> None:
    tx = coco_denoise(1.0, K)
    params = {"a": jnp.ones(2), "b": None, "c": optax.MaskedNode()}
    state = tx.init(params)
    u, _ = tx.update(params, state, params)
    assert u["b"] is None
    assert isinstance(u["c"], optax.MaskedNode)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e25])
def test_what_cannot_be_measured_passes_and_leaves_the_window(bad: float) -> None:
    tx = coco_denoise(1.0, K)
    params = as_tree(jnp.float32)
    state, update = tx.init(params), jax.jit(tx.update)
    for seed in range(K + 1):
        g = noisy_gradient(params, seed)
        _, state = update(g, state, params)
        wrong = {"w": g["w"].at[1, 1].set(bad), "b": g["b"]}
        u, after = update(wrong, state, params)
        assert all(
            np.array_equal(x, y, equal_nan=True)
            for x, y in zip(jax.tree.leaves(u), jax.tree.leaves(wrong), strict=True)
        )
        assert same(after, state)


def test_it_composes_with_apply_if_finite() -> None:
    tx = optax.apply_if_finite(optax.chain(coco_denoise(1.0, K), optax.sgd(0.5)), 3)
    params = as_tree(jnp.float32)
    state = tx.init(params)
    g = noisy_gradient(params, 0)
    g["b"] = g["b"].at[0].set(np.nan)
    u, state = tx.update(g, state, params)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(u))
    assert int(state.inner_state[0].tables.size) == 0


def test_a_state_saved_as_plain_arrays_goes_on_as_if_never_saved() -> None:
    tx = optax.chain(coco_denoise(1.0, K), optax.adam(0.1))
    params, state = run(tx, as_tree(jnp.float32))
    assert isinstance(state[0], CocoState)
    leaves, tree = jax.tree.flatten(state)
    saved = pickle.dumps([np.asarray(leaf) for leaf in leaves])
    loaded = jax.tree.unflatten(tree, [jnp.asarray(a) for a in pickle.loads(saved)])
    step = make_step(tx)
    assert same(step(params, state, 99), step(params, loaded, 99))


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"L": 0.0}, ValueError, "L"),
        ({"L": 1.0, "mu": 1.0}, ValueError, "mu"),
        ({"L": 1.0, "window": 0}, ValueError, "window"),
        ({"L": 1.0, "state_dtype": jnp.int32}, TypeError, "state_dtype"),
    ],
)
def test_bad_settings_are_named(
    options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        coco_denoise(**({"window": K} | options))
