"""coco_denoise as an Optax transformation: the contract that Optax's own transformations keep."""

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from coco_denoiser.optax import CocoState, coco_denoise
from tests.optax.streams import (
    CHAIN,
    STEPS,
    TRACES,
    K,
    as_tree,
    make_step,
    noisy_gradient,
    run,
    same,
    step,
    update,
)


def test_bounds_that_change_are_those_of_a_window_that_always_had_them() -> None:
    with jax.enable_x64(True):
        params, gradients = [], []
        tx = optax.inject_hyperparams(coco_denoise, static_args="window")(
            L=lambda count: 1.0 + 0.1 * count, window=K, mu=lambda count: 0.05 * count
        )
        state = tx.init(as_tree(jnp.float64))
        scheduled = jax.jit(tx.update)
        p = as_tree(jnp.float64)
        for seed in range(2 * K):
            params.append(p)
            gradients.append(noisy_gradient(p, seed))
            u, state = scheduled(gradients[-1], state, p)
            replay = coco_denoise(1.0, K).init(p)
            for x, g in zip(params[-K:], gradients[-K:], strict=True):
                expected, replay = update(g, replay, x, 1.0 + 0.1 * seed, 0.05 * seed)
            for a, b in zip(jax.tree.leaves(u), jax.tree.leaves(expected), strict=True):
                assert np.allclose(a, b, rtol=1e-7, atol=1e-7)
            p = jax.tree.map(lambda x, y: x - 0.5 * y, p, u)


@pytest.mark.parametrize("window", [1, K])
def test_where_nothing_is_active_updates_are_bit_equal(window: int) -> None:
    params = as_tree(jnp.float32)
    state = coco_denoise(1.0, window).init(params)
    alone = jax.jit(coco_denoise(1.0, 1).update)
    for seed in range(2 * K):
        params = jax.tree.map(lambda p: p + 1.0, params)
        g = noisy_gradient(params, seed)
        g["b"] = g["b"].at[0].set(-0.0)
        if window == 1:
            u, state = alone(g, state, params)
        else:
            u, state = update(g, state, params, 1e6)
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
    params = as_tree(jnp.float32)
    state = tx.init(params)
    _, state = update(noisy_gradient(params, 0), state, params, 1.0)
    assert TRACES
    traces = len(TRACES)
    for seed in range(1, 2 * K):  # while the window fills up, and after
        _, state = update(noisy_gradient(params, seed), state, params, 1.0 + seed)
    assert len(TRACES) == traces
    assert int(state.tables.size) == K


def test_scan_cond_and_vmap_give_what_a_loop_gives() -> None:
    def trajectory(seeds: Any) -> Any:
        # Not a branch of the batch: one number for all, so that cond stays cond under vmap.
        def advance(carry: Any, now: Any) -> Any:
            n, seed = now
            params, state = carry
            g = noisy_gradient(params, seed)
            u, state = jax.lax.cond(
                n >= 0,
                lambda: CHAIN.update(g, state, params),
                lambda: (g, state),
            )
            return (optax.apply_updates(params, u), state), None

        params = as_tree(jnp.float64)
        return jax.lax.scan(advance, (params, CHAIN.init(params)), (jnp.arange(STEPS), seeds))[0][0]

    with jax.enable_x64(True):
        seeds = np.arange(3 * STEPS).reshape(3, STEPS)
        together = jax.jit(jax.vmap(trajectory))(seeds)
        for i, row in enumerate(seeds):
            looped, _ = run(as_tree(jnp.float64), row)
            for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(looped), strict=True):
                assert np.allclose(a[i], b, rtol=1e-7, atol=1e-7)


def test_multisteps_denoises_the_mean_gradient() -> None:
    every = optax.MultiSteps(coco_denoise(1.0, K), every_k_schedule=2)
    params = as_tree(jnp.float32)
    state, advance = every.init(params), jax.jit(every.update)
    expected = coco_denoise(1.0, K).init(params)
    for seed in range(2 * K):
        halves = [noisy_gradient(params, 2 * seed + n) for n in (0, 1)]
        for g in halves:
            u, state = advance(g, state, params)
        mean = jax.tree.map(lambda a, b: (a + b) / 2, *halves)
        v, expected = update(mean, expected, params)
        for a, b in zip(jax.tree.leaves(u), jax.tree.leaves(v), strict=True):
            assert np.allclose(a, b, rtol=1e-3, atol=1e-3)
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, u)


def test_parts_and_masks_have_a_window_of_their_own() -> None:
    params = {"a": jnp.linspace(-1, 2, 3), "b": jnp.ones(3)}
    coco = coco_denoise(1.0, K)
    masked = optax.masked(coco, {"a": True, "b": False})
    parts = optax.partition({"one": coco, "other": coco}, {"a": "one", "b": "other"})
    by_mask, by_part = jax.jit(masked.update), jax.jit(parts.update)
    states = masked.init(params), parts.init(params)
    alone = {name: coco.init(params[name]) for name in params}
    for seed in range(2 * K):
        g = noisy_gradient(params, seed)
        expected = {}
        for name, part in params.items():
            expected[name], alone[name] = update(g[name], alone[name], part)
        u, first = by_mask(g, states[0], params)
        v, second = by_part(g, states[1], params)
        states = first, second
        assert np.array_equal(u["b"], g["b"])
        for ours, name in ((u, "a"), (v, "a"), (v, "b")):
            assert np.allclose(ours[name], expected[name], rtol=1e-3, atol=1e-3)
        params = jax.tree.map(lambda p, d: p - 0.5 * d, params, v)
        assert not np.allclose(v["b"], g["b"]) or seed == 0


def test_injected_hyperparameters_need_a_static_window() -> None:
    with pytest.raises(TypeError, match="static_args"):
        optax.inject_hyperparams(coco_denoise)(L=1.0, window=K).init(as_tree(jnp.float32))


@pytest.mark.parametrize(
    "spelling", [optax.tree.map_params, optax.tree_map_params, optax.tree_utils.tree_map_params]
)
def test_map_params_finds_the_window(spelling: Any) -> None:
    state = CHAIN.init(as_tree(jnp.float32))
    marked = spelling(CHAIN, lambda _: "window", state, transform_non_params=lambda _: "table")
    assert jax.tree.leaves(marked[0].points) == ["window"] * 2
    assert jax.tree.leaves(marked[0].gradients) == ["window"] * 2
    assert set(jax.tree.leaves((marked[0].tables, marked[0].gap))) == {"table"}


def test_params_and_state_may_be_donated() -> None:
    with jax.enable_x64(True):
        kept, _ = run(as_tree(jnp.float64))
        params = as_tree(jnp.float64)
        state, giving = CHAIN.init(params), make_step(CHAIN, donate_argnums=(0, 1))
        for seed in range(STEPS):
            before = state
            params, state = giving(params, state, seed)
            assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before[0].points))
        for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(params), strict=True):
            assert np.allclose(a, b, rtol=1e-7, atol=1e-7)


def test_a_state_saved_as_plain_arrays_goes_on_as_if_never_saved() -> None:
    with jax.enable_x64(True):
        params, state = run(as_tree(jnp.float64))
        assert isinstance(state[0], CocoState)
        leaves, tree = jax.tree.flatten(state)
        file = io.BytesIO()
        np.savez(file, *leaves)
        file.seek(0)
        with np.load(file, allow_pickle=False) as saved:
            loaded = jax.tree.unflatten(tree, [jnp.asarray(saved[name]) for name in saved.files])
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


def test_shardings_of_parameters_are_those_of_the_window_behind_its_slots() -> None:
    tx = optax.chain(coco_denoise(1.0, K), optax.sgd(0.1, momentum=0.5))
    params, specs = {"w": jnp.ones((4, 2))}, {"w": P("data")}  # type: ignore[no-untyped-call]
    found = optax.tree.map_params(
        tx,
        lambda leaf, spec, p: P(*(None,) * (leaf.ndim - p.ndim), *spec),  # type: ignore[no-untyped-call]
        tx.init(params),
        specs,
        params,
        transform_non_params=lambda _: P(),  # type: ignore[no-untyped-call]
    )
    expected: list[Any] = [P(None, "data"), P("data"), P()]  # type: ignore[no-untyped-call]
    assert found[0].points["w"] == found[0].gradients["w"] == expected[0]
    assert found[1][0].trace["w"] == expected[1]
    assert found[0].tables.point == expected[2]


def test_the_program_hardly_grows_with_the_number_of_small_leaves() -> None:
    sums = []
    for leaves in (2, 40):
        params = {n: jnp.ones(n + 1) for n in range(leaves)}
        tx = coco_denoise(model="gaussian", window=K)
        lowered = jax.jit(tx.update).lower(params, tx.init(params), params)
        sums.append(lowered.as_text().count("stablehlo.reduce("))
    assert sums[1] - sums[0] == 38  # one for each, the weighted sum
