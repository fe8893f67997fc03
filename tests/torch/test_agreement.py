"""The same trajectory as in NumPy, and the same with the sign of the objective changed."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coco_denoiser import Denoiser
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser
from tests.torch.problems import copies, equal, flat, noisy_gradients, parameters


@pytest.mark.parametrize(
    "options",
    [{"L": 0.8}, {"model": "gaussian"}, {"L": 2.0, "model": "gaussian"}],
    ids=["cocoercive", "gaussian", "capped"],
)
def test_same_trajectory_as_in_numpy(options: dict[str, Any]) -> None:
    denoiser = Denoiser(window=6, **options)
    tensors = parameters()
    optimizer = CocoOptimizer(torch.optim.SGD(tensors, lr=0.5), window=6, **options)
    moved = 0
    for seed in range(20):
        noisy_gradients(tensors, 1, seed=seed)
        x, g = flat(tensors), flat(tensors, gradients=True)
        optimizer.step()
        np.testing.assert_allclose(flat(tensors), x - 0.5 * denoiser(x, g), atol=1e-7)
        moved += optimizer.diagnostics().moved > 0.0
    assert moved > 10
    if "model" in options:
        assert optimizer.diagnostics().std == pytest.approx(denoiser.std, rel=1e-6)
        other = CocoOptimizer(torch.optim.SGD(tensors, lr=0.5), L=1.0, window=6)
        with pytest.raises(ValueError, match="saved with model=gaussian, this one has model=coco"):
            other.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("options", [{"window": 4}, {"window": 2, "forget": "fold"}], ids=str)
def test_maximising_the_negative_is_minimising(options: dict[str, Any]) -> None:
    some = parameters()
    others = copies(some)
    bounds = [iter([1.0, 0.3, 2.5, 2.5, 0.7, 1.0] * 2) for _ in range(2)]
    down, up = (
        CocoOptimizer(
            torch.optim.SGD(tensors, lr=0.3, maximize=maximize),
            L=lambda mine=mine: next(mine),
            mu=-0.2,
            **options,
        )
        for tensors, mine, maximize in zip((some, others), bounds, (False, True), strict=True)
    )
    for seed in range(12):
        noisy_gradients(some, 1, seed=seed)
        for p, q in zip(some, others, strict=True):
            q.grad = -p.grad  # type: ignore[operator]
        down.step()
        up.step()
        np.testing.assert_allclose(flat(some), flat(others), atol=1e-12)
    assert up.diagnostics().moved > 0.0


def test_groups_that_disagree_about_the_direction_are_refused() -> None:
    some, other = (nn.Parameter(torch.ones(2)) for _ in range(2))
    groups: list[Any] = [{"params": [some]}, {"params": [other], "maximize": True}]
    optimizer = CocoOptimizer(torch.optim.SGD(groups, lr=0.1), L=1.0)
    with pytest.raises(ValueError, match="maximize must be the same"):
        optimizer.step()


def test_denoise_in_place_is_what_the_optimizer_sees() -> None:
    some = parameters()
    others = copies(some)
    outer = CocoOptimizer(torch.optim.Adam(some, lr=0.1), L=1.0, window=4)
    inner, denoiser = torch.optim.Adam(others, lr=0.1), GradientDenoiser(others, L=1.0, window=4)

    def by_hand() -> None:
        place = [p.grad for p in others]
        assert denoiser.denoise()
        assert all(p.grad is g for p, g in zip(others, place, strict=True))
        inner.step()

    noisy_gradients(some, 10, outer.step)
    noisy_gradients(others, 10, by_hand)
    assert equal(some, others)
