"""Momentum, transport and schedule-free, against packages and defining laws."""

from typing import Any

import numpy as np
import optax
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulefree import SGDScheduleFree

from coco_denoiser.optimizers import (
    IGT,
    GradientEMA,
    ScheduleFree,
)
from coco_denoiser.problems import Quadratic
from coco_denoiser.typing import Array

seeds = st.integers(0, 10**6)
momenta = st.floats(0, 0.99)


@settings(max_examples=10)
@given(seed=seeds, beta=momenta)
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
@given(seed=seeds, beta=momenta, step_size=st.floats(1e-3, 10))
def test_schedule_free_is_that_of_its_package(seed: int, beta: float, step_size: float) -> None:
    rng = np.random.default_rng(seed)
    x: Array = rng.standard_normal(4)
    parameter = torch.nn.Parameter(torch.tensor(x))
    theirs = SGDScheduleFree([parameter], lr=step_size, momentum=beta or 1e-300, foreach=False)
    ours = ScheduleFree(step_size, beta=beta or 1e-300)
    theirs.train()
    for _ in range(20):
        g = rng.standard_normal(4)
        parameter.grad = torch.tensor(g)
        theirs.step()
        x = ours.step(x, g)
        assert np.allclose(x, parameter.detach().numpy(), rtol=1e-9, atol=1e-9)
    if beta > 0.01:  # they get x back from y by a division by beta
        theirs.eval()
        assert np.allclose(ours.answer(x), parameter.detach().numpy(), rtol=1e-6, atol=1e-6)


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
