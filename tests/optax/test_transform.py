"""coco_denoise as an Optax transformation: the contract that Optax's own transformations keep."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from coco_denoiser.optax import coco_denoise
from tests.optax.streams import (
    CHAIN,
    STEPS,
    K,
    as_tree,
    flat,
    make_step,
    noisy_gradient,
    run,
    update,
)


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
    programs = cast("Any", update)._cache_size()
    for seed in range(1, 2 * K):  # while the window fills up, and after
        _, state = update(noisy_gradient(params, seed), state, params, 1.0 + seed)
    assert cast("Any", update)._cache_size() == programs > 0
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
            here = jax.tree.map(lambda leaf, i=i: leaf[i], together)
            np.testing.assert_allclose(flat(here), flat(looped), rtol=1e-7, atol=1e-7)


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


def test_params_and_state_may_be_donated() -> None:
    with jax.enable_x64(True):
        kept, _ = run(as_tree(jnp.float64))
        params = as_tree(jnp.float64)
        state, giving = CHAIN.init(params), make_step(CHAIN, donate_argnums=(0, 1))
        for seed in range(STEPS):
            before = state
            params, state = giving(params, state, seed)
            assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before[0].points))
        np.testing.assert_allclose(flat(kept), flat(params), rtol=1e-7, atol=1e-7)


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
