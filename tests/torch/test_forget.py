"""Folding in PyTorch: what the NumPy denoiser does, in two copies of the parameters."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import coco_denoiser
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser
from tests.torch.problems import copies, equal, noisy_gradients, parameters
from tests.torch.test_agreement import join, schedule, split
from tests.torch.test_precision import history

WINDOWS = pytest.mark.parametrize("window", [2, 4])


def folding(tensors: Any, **options: Any) -> CocoOptimizer:
    inner = torch.optim.Adam(tensors, lr=0.1)
    return CocoOptimizer(inner, **{"L": 1.0, "forget": "fold", **options})


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    bounds=st.lists(st.sampled_from([0.3, 1.0, 2.5]), min_size=6, max_size=6),
    maximize=st.booleans(),
)
def test_a_new_centre_leaves_the_past_its_gradient(
    seed: int, bounds: list[float], maximize: bool
) -> None:
    rng = np.random.default_rng(seed)
    points, gradients = rng.standard_normal((2, 6, 12))
    tensors = [nn.Parameter(t) for t in split(points[0])]
    denoiser = GradientDenoiser(tensors, L=schedule(bounds), window=2, forget="fold")
    sign = -1.0 if maximize else 1.0
    past, variance = gradients[0], 1.0
    for k, L in enumerate(bounds):
        for p, x, g in zip(tensors, split(points[k]), split(sign * gradients[k]), strict=True):
            p.data.copy_(x)
            p.grad = g
        with torch.no_grad():
            changed = denoiser.observe(tensors, maximize=maximize)
        found = {id(p): theta for p, theta in changed or ()}
        theta = sign * join([found.get(id(p), p.grad) for p in tensors])
        if k:
            both = coco_denoiser.denoise(
                points[k - 1 : k + 1],
                np.stack((past, gradients[k])),
                L=L,
                noise_variance=np.array([variance, 1.0]),
            )
            np.testing.assert_allclose(theta, both[-1], atol=1e-8)
            w = denoiser.diagnostics().weights[0]
            variance = (1 - w) ** 2 + w**2 * variance
        past = theta


@WINDOWS
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_their_own_way(window: int, copier: Callable[[Any], Any]) -> None:
    tensors = parameters()
    optimizer = folding(tensors, window=window)
    noisy_gradients(tensors, 6, optimizer.step)
    others, other = copier((tensors, optimizer))
    noisy_gradients(tensors, 5, optimizer.step, seed=3)
    assert not equal(tensors, others)
    noisy_gradients(others, 5, other.step, seed=3)
    assert equal(tensors, others)


@WINDOWS
def test_a_state_of_the_other_kind_is_refused_as_a_whole(window: int) -> None:
    tensors = parameters()
    fold, drop = (folding(copies(tensors), window=window, forget=f) for f in ("fold", "drop"))
    for saved, loading in ((fold, drop), (drop, fold)):
        message = (
            f"saved with forget={saved.denoiser.forget}, this one has "
            f"forget={loading.denoiser.forget}"
        )
        with pytest.raises(ValueError, match=message):
            loading.load_state_dict(saved.state_dict())
        assert not loading.state


@WINDOWS
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 3e38])
def test_a_step_that_cannot_be_stored_changes_nothing(window: int, value: float) -> None:
    tensors = parameters(torch.float32)
    optimizer = folding(tensors, window=window)
    noisy_gradients(tensors, 6, optimizer.step)
    tensors[1].data[0, 0] = -1e38  # with c = 1/2, a gradient of 3e38 has no residual in float32
    before, window_before = copies(tensors), history(optimizer)
    optimizer.denoiser.nonfinite = "raise"
    for p in tensors:
        p.grad = torch.ones_like(p)
    tensors[1].grad = torch.full_like(tensors[1], value)
    with pytest.raises(ValueError, match="infinity or NaN"):
        optimizer.step()
    assert equal(tensors, before)
    assert optimizer.diagnostics().skipped == 1
    assert all(map(torch.equal, history(optimizer), window_before))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_window_of_two_takes_two_copies_of_the_parameters(dtype: torch.dtype) -> None:
    tensors = [nn.Parameter(torch.ones(16, 20, dtype=dtype)) for _ in range(3)]
    optimizer = folding(tensors, window=2)
    noisy_gradients(tensors, 4, optimizer.step)
    assert optimizer.diagnostics().nbytes == 2 * sum(p.nbytes for p in tensors)


@WINDOWS
def test_diagnostics_tell_how_far_the_gradient_moved(window: int) -> None:
    tensors = parameters()
    inner = torch.optim.SGD(tensors, lr=0.1)
    optimizer = CocoOptimizer(inner, L=0.5, window=window, forget="fold")
    seen: list[torch.Tensor] = []

    def gradients() -> torch.Tensor:
        return torch.cat([p.grad.flatten() for p in tensors if p.grad is not None])

    inner.register_step_pre_hook(lambda *_: seen.append(gradients()))
    noisy_gradients(tensors, 7, optimizer.step)
    found = optimizer.diagnostics()
    assert found.moved == pytest.approx(float((seen[-1] - gradients()).norm()), rel=1e-6)
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.active > 0
    assert found.observations == len(optimizer.denoiser) == (1 if window == 2 else window)
    assert "forget='fold'" in repr(optimizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forget": "keep"}, "forget must be one of 'drop', 'fold', got 'keep'"),
        (
            {"L": None, "model": "gaussian"},
            "forget='fold' is only supported with model='cocoercive'",
        ),
        ({"window": 1}, "window of at least 2, got window=1.*Use window=2"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        folding(parameters(), **options)


@WINDOWS
def test_complex_parameters_are_pairs_and_layouts_do_not_matter(window: int) -> None:
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(6, 4, 2, generator=draw, dtype=torch.float64)
    pairs = nn.Parameter(start.clone())
    other = nn.Parameter(torch.view_as_complex(start.clone()).t())
    inner = [torch.optim.SGD([p], lr=0.3) for p in (pairs, other)]
    some, others = (CocoOptimizer(o, L=1.0, window=window, forget="fold") for o in inner)
    for _ in range(8):
        pairs.grad = pairs.detach() + torch.randn(6, 4, 2, generator=draw, dtype=torch.float64)
        other.grad = torch.view_as_complex(pairs.grad).t()
        some.step()
        others.step()
    assert some.diagnostics().weights[-1] < 1.0
    torch.testing.assert_close(torch.view_as_complex(pairs.detach()).t(), other.detach())
