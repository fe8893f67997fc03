"""Live groups, gradients that are missing, and a history that nobody else can touch."""

import copy
import operator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coco_denoiser import Cocoercive, Denoiser
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser, denoiser
from tests.torch.problems import (
    alike,
    begun,
    coco,
    equal,
    flat,
    noisy_gradients,
    parameters,
    saved,
)


def freeze(p: nn.Parameter) -> None:
    p.requires_grad_(False)
    p.grad = None


def replace(p: nn.Parameter, value: torch.Tensor) -> None:
    p.grad, p.data = None, value


def fail(optimizer: CocoOptimizer) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cocoercive, "estimate", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            optimizer.step()


@pytest.mark.parametrize(
    "change",
    [
        lambda optimizer, _: optimizer.add_param_group({"params": parameters()[:1], "lr": 0.5}),
        lambda optimizer, _: optimizer.wrapped.add_param_group({"params": parameters()[:1]}),
        lambda optimizer, _: operator.setitem(
            optimizer.param_groups[0]["params"], 0, parameters()[0]
        ),
        lambda _, p: freeze(p),
        lambda _, p: replace(p, p.detach().reshape(4, 3).clone()),
        lambda _, p: replace(p, p.detach().float()),
        lambda optimizer, _: fail(optimizer),
    ],
    ids=["added", "added inside", "exchanged", "frozen", "shape", "dtype", "failed"],
)
def test_what_changes_the_point_or_fails_begins_a_new_window(change: Any) -> None:
    tensors, optimizer = begun(3)
    change(optimizer, tensors[0])
    optimizer.load_state_dict(saved(optimizer))
    members = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    others, fresh = copy.deepcopy((members, optimizer))
    fresh.reset()
    assert alike(members, optimizer, others, fresh, 5)
    assert optimizer.diagnostics().moved > 0.0
    thawed = not tensors[0].requires_grad
    tensors[0].requires_grad_()
    noisy_gradients(tensors, 1, optimizer.step)
    assert len(optimizer.denoiser) == (1 if thawed else 4)


@pytest.mark.parametrize(("set_to_none", "large"), [(True, 10**6), (False, 10**6), (False, 3)])
def test_history_is_aliased_by_nothing(
    set_to_none: bool, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denoiser, "LARGE", large)  # tensors that are read where they are
    tensors, optimizer = begun(0)
    reference = Denoiser(L=1.0, window=4)
    for seed in range(6):
        noisy_gradients(tensors, 1, seed=seed)
        x = flat(tensors)
        theta = reference(x, flat(tensors, gradients=True))
        optimizer.step()
        np.testing.assert_allclose(flat(tensors), x - 0.1 * theta, atol=1e-9)
        # What a loop may do between steps: none of it may reach the window.
        optimizer.zero_grad(set_to_none=set_to_none)
        with torch.no_grad():
            for p in tensors:
                p.mul_(1.5)
                if p.grad is not None:
                    p.grad.fill_(torch.nan)


def test_a_step_in_inference_mode_is_a_step() -> None:
    tensors, optimizer = begun(0)
    with torch.inference_mode():
        noisy_gradients(tensors, 2, optimizer.step)
    assert alike(tensors, optimizer, *begun(2), 3)


def test_a_missing_gradient_counts_as_zero() -> None:
    tensors, others = parameters(), parameters()
    some, zeros = coco(tensors), coco(others)
    draw = np.random.default_rng(0)
    for seed in range(12):
        missing = draw.random(3) < 0.5
        for each in (tensors, others):
            noisy_gradients(each, 1, seed=seed)
        for absent, p, q in zip(missing, tensors, others, strict=True):
            if absent:
                p.grad, q.grad = None, torch.zeros_like(q)
        some.step()
        zeros.step()
        some.load_state_dict(saved(some))  # which gradients there were is part of the state
        assert [p.grad is None for p in tensors] == missing.tolist()
        assert equal(tensors, others)
    assert zeros.diagnostics().weights[-1] < 1.0


def test_parameters_never_used_are_left_alone() -> None:
    before, tensors = parameters(), parameters()
    optimizer = coco(torch.optim.AdamW(tensors, lr=0.1, weight_decay=0.5), L=0.5)
    noisy_gradients(tensors[:2], 6, optimizer.step)
    assert optimizer.diagnostics().weights[-1] < 1.0
    assert torch.equal(tensors[2], before[2])
    assert tensors[2] not in optimizer.state


def test_sparse_gradients_are_refused() -> None:
    embedding = nn.Embedding(4, 2, sparse=True)
    optimizer = coco(embedding.parameters())
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(TypeError, match=r"gradients must be dense.*sparse=False"):
        optimizer.step()


def test_a_gradient_of_another_size_is_never_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denoiser, "LARGE", 1)
    tensor = nn.Parameter(torch.ones(4))
    tensor.grad, some = torch.ones(4), GradientDenoiser(tensor, L=1.0)
    tensor.grad.data = torch.ones(2)
    with pytest.raises(RuntimeError, match="size"):
        some.denoise()
    assert some  # true, and empty
    assert "with 0 observations" in repr(some)


def test_memory_formats_are_no_obstacle() -> None:
    ends = []
    for layout in (torch.contiguous_format, torch.channels_last):
        weight = torch.linspace(-1.0, 1.0, 108).view(4, 3, 3, 3).to(memory_format=layout)
        tensors = [nn.Parameter(weight)]
        optimizer = coco(torch.optim.Adam(tensors, lr=0.1, fused=True), window=3)
        noisy_gradients(tensors, 5, optimizer.step)
        ends.append((tensors[0].detach().contiguous(), optimizer.diagnostics().weights.tolist()))
    torch.testing.assert_close(*ends)
