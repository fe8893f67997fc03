"""coco_denoise as an Optax transformation: the contract that Optax's own transformations keep."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from coco_denoiser import Denoiser, Status
from coco_denoiser.optax import coco_denoise, gaussian_denoise
from coco_denoiser.optax.state import VERSION
from tests.optax.streams import (
    K,
    as_tree,
    flat,
    noisy_gradient,
    same,
)

TX = optax.chain(coco_denoise(1.0, K), optax.sgd(0.1))


def step(params: Any, state: Any, seed: Any) -> Any:
    u, state = TX.update(noisy_gradient(params, seed), state, params, value=1.0, anything="else")
    return optax.apply_updates(params, u), state


def test_it_needs_params_and_says_so_as_optax_does() -> None:
    messages, params = set(), as_tree(jnp.float32)
    for tx in (coco_denoise(1.0, K), optax.add_decayed_weights(0.1)):
        with pytest.raises(ValueError, match="params") as error:
            tx.update(params, tx.init(params), None)
        messages.add(str(error.value))
    assert len(messages) == 1


def test_scan_cond_and_vmap_give_what_a_loop_that_donates_gives() -> None:
    def advance(carry: Any, now: Any) -> Any:
        # Not a branch of the batch: one number for all, so that cond stays cond under vmap.
        (n, seed), (params, state) = now, carry
        return jax.lax.cond(n >= 0, lambda: step(params, state, seed), lambda: carry), None

    def trajectory(seeds: Any) -> Any:
        params = as_tree(jnp.float64)
        return jax.lax.scan(advance, (params, TX.init(params)), (jnp.arange(10), seeds))[0][0]

    with jax.enable_x64(True):
        seeds, single = np.arange(30).reshape(3, 10), jax.jit(step, donate_argnums=(0, 1))
        together = jax.jit(jax.vmap(trajectory))(seeds)
        for i, row in enumerate(seeds):
            params = as_tree(jnp.float64)
            state = TX.init(params)
            for seed in row:
                before = state
                params, state = single(params, state, seed)
                assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before[0].points))
            here = jax.tree.map(lambda leaf, i=i: leaf[i], together)
            np.testing.assert_allclose(flat(here), flat(params), rtol=1e-7, atol=1e-7)


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
    assert found[0].window.tables == expected[2]


def test_the_program_hardly_grows_with_the_number_of_small_leaves() -> None:
    sums = []
    for leaves in (2, 12):
        params = {n: jnp.ones(n + 1) for n in range(leaves)}
        tx = gaussian_denoise(window=K)
        lowered = jax.jit(tx.update).lower(params, tx.init(params), params)
        sums.append(lowered.as_text().count("stablehlo.reduce("))
    assert sums[1] - sums[0] == 10  # one for each, the weighted sum


def test_long_leaves_are_folded_as_by_the_core() -> None:
    tx = coco_denoise(1.0, 2, forget="fold")
    rng = np.random.default_rng(0)
    x = rng.normal(size=30_001).astype(np.float32)
    state, update = tx.init(jnp.asarray(x)), jax.jit(tx.update)
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) < 2 * x.size + 32
    denoiser = Denoiser(1.0, window=2, forget="fold")
    for _ in range(4):
        g = 0.5 * x + rng.normal(size=x.size).astype(np.float32)
        ours, state = update(jnp.asarray(g), state, jnp.asarray(x))
        np.testing.assert_allclose(ours, denoiser(x, g), atol=1e-4)
        np.testing.assert_array_equal(state.points[0], x)
        np.testing.assert_array_equal(state.gradients[0], ours)
        x = np.asarray(x - 0.5 * ours)
    assert not np.allclose(ours, g, atol=1e-2)


def test_rows_of_long_leaves_keep_the_digits_of_float32() -> None:
    rng, K = np.random.default_rng(0), 3  # a window of three is soon full
    shapes = {float: [(5, 40_003), (7,)], complex: [(2, 3001), (5,)]}

    def draw(offset: float) -> list[jax.Array]:
        return [
            jnp.asarray(offset + rng.standard_normal((*shape, 2)) @ (1.0, unit), narrow)
            for unit, narrow, kind in ((0.0, jnp.float32, float), (1j, jnp.complex64, complex))
            for shape in shapes[kind]
        ]

    def real(tree: Any) -> np.ndarray:
        whole = flat(tree).astype(np.complex128)
        return np.concatenate([whole.real, whole.imag])

    tx, core = coco_denoise(0.8, K), Denoiser(0.8, window=K)
    state, update = tx.init(draw(0.0)), jax.jit(tx.update)
    for _ in range(K):
        params, g = draw(10.0), draw(0.0)
        u, state = update(g, state, params)
        np.testing.assert_allclose(real(u), core(real(params), real(g)), atol=1e-4)
    (dx, cosines, dh), expected = state.window.tables, core._stream.window.tables
    np.testing.assert_allclose(dx, expected[0], rtol=1e-6)
    np.testing.assert_allclose(cosines, expected[1], rtol=0.0, atol=2e-6)
    np.testing.assert_allclose(dh, expected[2], rtol=1e-6)


def test_a_batch_of_states_has_a_status_each() -> None:
    x, g = jnp.zeros((3, 2)), jnp.array([[1.0, 0.0], [np.nan, 0.0], [2.0, 0.0]])
    tx = coco_denoise(1.0, 2, forget="fold")
    advance = jax.jit(jax.vmap(tx.update))
    state = jax.vmap(tx.init)(x)
    assert state.status.tolist() == 3 * [Status.UNCHANGED]
    _, state = advance(jnp.zeros_like(x), state, x)
    u, state = advance(g, state, x)
    assert state.status.tolist() == [Status.SOLVED, Status.REFUSED, Status.SOLVED]
    assert state.refused.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(u, 0.5 * g)  # the mean of two at one point, or as it came
    np.testing.assert_allclose(state.gap, [0.0, np.nan, 0.0], atol=1e-6)
    np.testing.assert_allclose(state.violation, [0.0, np.nan, 0.0], atol=1e-6)


@pytest.mark.parametrize("options", [{"window": K}, {"window": 2, "forget": "fold"}])
def test_a_state_survives_its_file_and_one_of_another_version_is_refused(options: Any) -> None:
    tx, x = coco_denoise(1.0, **options), jnp.ones(3)
    state: Any = tx.init(x)
    assert same(pickle.loads(pickle.dumps(state)), state)
    # A reader that goes by position, or fills in the leaves of a template, restores the version.
    for version in (jnp.zeros(VERSION + 1, jnp.int8), jnp.array(2)):
        other = state._replace(version=version)
        with pytest.raises(ValueError, match="another release of coco-denoiser has written it"):
            jax.jit(tx.update)(x, other, x)
        for name in ("status", "gap", "violation", "std", "noise_std", "curvature"):
            with pytest.raises(ValueError, match="must have the layout of version 4"):
                getattr(other, name)


def test_the_numbers_of_an_outcome_keep_their_meaning() -> None:
    state = coco_denoise(1.0, K).init(jnp.ones(1))
    names = ["UNCHANGED", "SOLVED", "ESTIMATED", "STALLED", "REFUSED"]
    for number, name in enumerate(names):
        assert state._replace(outcome=jnp.array(number)).status is Status[name]


@pytest.mark.parametrize(("wide", "largest"), [(False, 1e18), (True, 1e150)])
@pytest.mark.parametrize("window", [2, 3])
def test_numbers_too_large_are_refused_and_others_denoised(
    wide: bool, largest: float, window: int
) -> None:
    with jax.enable_x64(wide), jax.debug_nans(True), jax.debug_infs(True):
        tx, x = coco_denoise(1.0, window, forget="fold"), jnp.zeros(2)
        first, update = tx.init(x), jax.jit(tx.update)
        for bad in (1.01 * largest, 100.0 * largest):
            g = jnp.array([bad, 0.0])
            u, state = update(g, first, x)
            np.testing.assert_array_equal(u, g)
            assert same(state[:3], first[:3])
            assert state.status is Status.REFUSED
            assert not Status.REFUSED.success
        g = jnp.array([0.9 * largest, 0.0])
        _, state = update(0.0 * g, first, x)
        u, state = update(g, state, x)
        np.testing.assert_allclose(u, 0.5 * g, rtol=1e-5)
        assert state.status is Status.SOLVED


@pytest.mark.parametrize(
    "tx",
    [
        coco_denoise(1.0, 1),
        coco_denoise(1.0, 2),
        coco_denoise(1.0, 2, forget="fold"),
        coco_denoise(1.0, 4, forget="fold"),
        gaussian_denoise(window=3),
    ],
)
def test_what_jax_is_strict_about_in_a_users_code_is_no_trouble(tx: Any) -> None:
    x = jnp.ones(3)
    with (
        jax.debug_nans(True),
        jax.debug_infs(True),
        jax.checking_leaks(),
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
    ):
        state: Any = tx.init(x)
        for size in (0.0, 1.0, 1.0, 2.0):  # not compiled: debuggers see every operation
            _, state = tx.update(jnp.cos(9.0 * size) * x, state, size * x)
        _, state = jax.jit(tx.update)(x, state, x)
        assert np.isnan(state.violation) or np.isnan(state.std)  # unknown, and nobody minds
    assert state.status.success


@pytest.mark.parametrize("name", ["L", "mu", "tol", "noise_variance"])
def test_numbers_are_checked_also_where_they_are_traced(name: str) -> None:
    def update(value: Any) -> Any:
        settings: dict[str, Any] = {"L": 1.0, name: value}
        extra = {"noise_variance": settings.pop("noise_variance", 1.0)}
        return coco_denoise(window=2, **settings).update(x, state, x, **extra)

    x = jnp.ones(3)
    state = coco_denoise(1.0, 2).init(x)
    with pytest.raises(TypeError, match=f"{name} must be a real number, got "):
        jax.jit(update)(jnp.ones(2))
    if name != "mu":
        with pytest.raises(ValueError, match=f"{name} must be positive and finite, got 0"):
            update(0.0)


@pytest.mark.parametrize("forget", ["fold", "drop"])
def test_traced_numbers_out_of_range_are_refused(forget: Any) -> None:
    @jax.jit
    def update(g: Any, state: Any, L: Any, mu: Any, v: Any) -> Any:
        tx = coco_denoise(L, 2, mu=mu, forget=forget)
        return tx.update(g, state, 0.0 * g, noise_variance=v)

    good, one = (1.0, 0.0, 1.0), jnp.array([1.0, 0.0])
    first = coco_denoise(1.0, 2, forget=forget).init(one)
    _, before = update(one, first, *good)
    for bad in ((-1.0, 0.0), (0.0, -1.0), (1.0, 2.0), (np.nan, 0.0), (1.0, 0.0, -1.0)):
        u, state = update(2.0 * one, before, *bad, *good[len(bad) :])
        np.testing.assert_array_equal(u, 2.0 * one)
        assert same(state[:3], before[:3])
        assert state.status is Status.REFUSED
        u, state = update(3.0 * one, state, *good)
        np.testing.assert_allclose(u, 2.0 * one)  # the mean of the two that were not


@pytest.mark.parametrize(
    ("make", "options", "error", "words"),
    [
        (coco_denoise, {"L": None}, TypeError, "L must be a real number, got None.*hessian_bounds"),
        (coco_denoise, {"L": abs}, TypeError, r"inject_hyperparams.*\(L=schedule"),
        (coco_denoise, {"L": 1.0, "mu": abs}, TypeError, r"inject.*\(mu=schedule"),
        (coco_denoise, {"L": 1.0, "tol": -1.0}, ValueError, "tol must be positive"),
        (coco_denoise, {"L": 0.0}, ValueError, "L must be positive"),
        (coco_denoise, {"L": 1.0, "mu": 1.0}, ValueError, "mu must be less than L"),
        (coco_denoise, {"L": 1.0, "window": 0}, ValueError, "window must be"),
        (coco_denoise, {"L": 1.0, "state_dtype": jnp.int32}, TypeError, "state_dtype"),
        (coco_denoise, {"L": 1.0, "window": 1, "forget": "fold"}, ValueError, "forget"),
        (coco_denoise, {"L": 1.0, "forget": "merge"}, ValueError, "forget"),
        (gaussian_denoise, {"L": -1.0}, ValueError, "L must be positive"),
        (gaussian_denoise, {"window": "large"}, TypeError, "window must be"),
    ],
)
def test_bad_settings_are_refused(
    make: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make(**options)
