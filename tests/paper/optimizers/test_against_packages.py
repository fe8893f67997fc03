"""PyTorch's optimizers and schedule-free, step for step, as independent implementations of ours."""

from typing import Any

import numpy as np
import optax
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulefree import SGDScheduleFree

from coco_denoiser.paper.optimizers import (
    IGT,
    SGD,
    Adam,
    GradientEMA,
    HeavyBall,
    Optimizer,
    ScheduleFree,
)
from coco_denoiser.paper.problems import Quadratic
from coco_denoiser.typing import Array

PAIRS: list[tuple[type[Optimizer], type[torch.optim.Optimizer], dict[str, Any], dict[str, Any]]] = [
    (SGD, torch.optim.SGD, {}, {}),
    (HeavyBall, torch.optim.SGD, {"beta": 0.3}, {"momentum": 0.3}),
    (Adam, torch.optim.Adam, {"beta1": 0.5, "eps": 1e-3}, {"betas": (0.5, 0.999), "eps": 1e-3}),
    *((ScheduleFree, SGDScheduleFree, {"beta": beta}, {"momentum": beta}) for beta in (0.3, 0.9)),
]


@pytest.mark.parametrize(("ours", "theirs", "options", "their_options"), PAIRS)
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), step_size=st.floats(1e-4, 10), scale=st.floats(1e-6, 1e6))
def test_same_gradients_same_path(
    ours: type[Optimizer],
    theirs: type[torch.optim.Optimizer],
    options: dict[str, Any],
    their_options: dict[str, Any],
    seed: int,
    step_size: float,
    scale: float,
) -> None:
    rng = np.random.default_rng(seed)
    x: Array = rng.standard_normal(6)
    parameter = torch.nn.Parameter(torch.tensor(x, dtype=torch.float64))
    reference = theirs([parameter], lr=step_size, **their_options)  # type: ignore[call-arg]
    optimizer = ours(step_size, **options)
    if isinstance(reference, SGDScheduleFree):
        reference.train()
    for _ in range(30):
        g = scale * rng.standard_normal(6)
        g[rng.random(6) < 0.2] = 0
        parameter.grad = torch.tensor(g, dtype=torch.float64)
        reference.step()
        x = optimizer.step(x, g)
        expected = parameter.detach().numpy()
        assert np.allclose(x, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())
    if isinstance(reference, SGDScheduleFree):
        reference.eval()
        expected = parameter.detach().numpy()
        assert np.allclose(optimizer.answer(x), expected, atol=1e-11 * np.abs(expected).max())


seeds = st.integers(0, 10**6)


@settings(max_examples=10)
@given(seed=seeds, beta=st.floats(0, 0.99))
def test_gradient_ema_is_that_of_optax(seed: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    theirs = optax.chain(optax.ema(beta, debias=True), optax.scale(-0.3))
    state: Any = theirs.init(np.zeros(3, np.float32))
    ours, x = GradientEMA(0.3, beta=beta), np.zeros(3, np.float32)
    expected = x
    for _ in range(10):
        g = rng.standard_normal(3).astype(np.float32)
        update, state = theirs.update(g, state)
        x, expected = ours.step(x, g), np.asarray(optax.apply_updates(expected, update))
        assert np.allclose(x, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=20)
@given(seed=seeds, step_size=st.floats(0.01, 1.5), tail=st.sampled_from([1.0, 0.5, 0.25, 0.3]))
def test_igt_averages_gradients_as_if_all_were_asked_at_the_current_point(
    seed: int, step_size: float, tail: float
) -> None:
    problem, rng = Quadratic.spaced(4), np.random.default_rng(seed)
    optimizer = IGT(step_size, tail=tail)
    w: Array = rng.standard_normal(4)
    weights = np.zeros(0)
    noise = np.zeros((0, 4))
    for k in range(1, 20):
        x, n = optimizer.answer(w), rng.standard_normal(4)
        w = optimizer.step(w, problem.gradient(w) + n)
        weights = np.append(weights * optimizer._keep(k), 1 - optimizer._keep(k))
        noise = np.vstack([noise, n])
        assert optimizer._v is not None
        transported = problem.gradient(x) + weights @ noise
        assert np.allclose(optimizer._v, transported, atol=1e-9 * (1 + np.abs(w).max()))
        assert np.isclose(weights.sum(), 1)
        if tail == 1:
            assert np.allclose(weights, 1 / k)
        if tail != 0.3 and k >= 1 / tail:
            assert np.isclose(weights @ weights, 1 / (tail * k))
