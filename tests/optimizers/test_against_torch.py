"""PyTorch's optimizers and schedule-free, step for step, as independent implementations of ours."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulefree import SGDScheduleFree

from coco_denoiser.optimizers import SGD, Adam, HeavyBall, Optimizer, ScheduleFree
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
