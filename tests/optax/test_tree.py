"""What is said of trees that cannot be denoised, and of bounds that are none."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from coco_denoiser.optax import coco_denoise
from tests.optax.streams import K, noisy_gradient, update

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


@pytest.mark.parametrize("options", WINDOWS, ids=["window", "filter"])
def test_a_state_of_another_window_is_refused(options: Any) -> None:
    state = coco_denoise(1.0, K + 1).init(ONES)
    with pytest.raises(ValueError, match=r"of this window.*\(5, 2, 3\).*Call init again"):
        coco_denoise(1.0, **options).update(ONES, state, ONES)


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
