"""CocoOptimizer around every first-order optimizer that torch.optim has."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import copies, equal, noisy_gradients, parameters

EVERY = sorted(
    (
        kind
        for kind in vars(torch.optim).values()
        if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
    ),
    key=lambda kind: kind.__name__,
)
REFUSED = (torch.optim.LBFGS, torch.optim.SparseAdam)
FIRST_ORDER = [kind for kind in EVERY if kind not in REFUSED]


pytestmark = pytest.mark.filterwarnings("ignore:Muon has momentum")


def create(kind: type[Optimizer], tensors: list[nn.Parameter]) -> Optimizer:
    return kind(tensors, lr=0.1)  # type: ignore[call-arg]


def wrap(kind: type[Optimizer], tensors: list[nn.Parameter], **options: Any) -> CocoOptimizer:
    return CocoOptimizer(create(kind, tensors), **{"L": 1.0, "window": 4, **options})


def test_the_listing_finds_them_all() -> None:
    names = {kind.__name__ for kind in FIRST_ORDER}
    expected = "SGD Adagrad Adadelta RMSprop Adamax NAdam RAdam Adam AdamW ASGD Rprop Adafactor"
    assert names >= set(expected.split())


@pytest.mark.parametrize("kind", FIRST_ORDER)
def test_steps_after_loading_are_bit_equal(kind: type[Optimizer]) -> None:
    tensors = parameters(torch.float32)
    optimizer = wrap(kind, tensors)
    noisy_gradients(tensors, 3, optimizer.step)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    others = copies(tensors)
    fresh = wrap(kind, others)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for seed in (7, 8):
        noisy_gradients(tensors, 3, optimizer.step, seed=seed)
        noisy_gradients(others, 3, fresh.step, seed=seed)
        assert equal(tensors, others)
    assert optimizer.diagnostics().weights[-1] < 1.0
    assert np.array_equal(optimizer.diagnostics().weights, fresh.diagnostics().weights)


@pytest.mark.parametrize("options", [{"window": 1}, {"L": 1e9}], ids=["window 1", "far apart"])
@pytest.mark.parametrize("kind", FIRST_ORDER)
def test_without_active_constraints_it_is_the_wrapped_optimizer(
    kind: type[Optimizer], options: dict[str, Any]
) -> None:
    tensors = parameters()
    others = copies(tensors)
    alone, around = create(kind, others), wrap(kind, tensors, **options)
    noisy_gradients(others, 6, alone.step)
    noisy_gradients(tensors, 6, around.step)
    assert equal(tensors, others)


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_with_a_reason(kind: type[Optimizer]) -> None:
    with pytest.raises(TypeError, match=rf"optimizer must take .* got {kind.__name__}: .*Use "):
        wrap(kind, parameters())


def test_refuses_what_is_no_optimizer_or_wrapped_already() -> None:
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer, got list"):
        CocoOptimizer([], L=1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="CocoOptimizer already"):
        CocoOptimizer(wrap(torch.optim.SGD, parameters()), L=1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"L": -1.0}, "L must be positive"),
        ({"mu": 2.0}, "mu must be less than L"),
        ({"window": 0}, "window must be a positive integer"),
        ({"state_dtype": torch.bfloat16}, "state_dtype must be"),
        ({"nonfinite": "ignore"}, "nonfinite must be one of"),
        ({"tol": 0.0}, "tol must be positive"),
    ],
)
def test_bad_settings_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(torch.optim.SGD, parameters(), **options)


def test_it_is_an_optimizer_with_the_wrapped_ones_own_objects() -> None:
    inner = create(torch.optim.Adam, parameters())
    outer = CocoOptimizer(inner, L=1.0)
    assert isinstance(outer, Optimizer)
    for name in ("param_groups", "state", "defaults"):
        assert getattr(outer, name) is getattr(inner, name)
        value = copy.copy(getattr(inner, name))
        setattr(outer, name, value)
        assert getattr(inner, name) is value
    assert "Adam" in repr(outer)
    assert "window=16" in repr(outer)


def test_closure_runs_once_with_gradients_and_its_loss_is_returned() -> None:
    tensors = parameters()
    optimizer = wrap(torch.optim.SGD, tensors)
    calls = []

    def closure() -> torch.Tensor:
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = sum(((p - 1) ** 2).sum() for p in tensors)
        assert isinstance(loss, torch.Tensor)
        torch.autograd.backward(loss)
        return loss

    with torch.no_grad():
        loss = optimizer.step(closure)
    assert calls == [True]
    assert float(loss.detach()) > 0
    assert optimizer.step() is None


@pytest.mark.parametrize("fails", [False, True])
def test_gradients_are_put_back(fails: bool) -> None:
    tensors = parameters()
    inner = create(torch.optim.SGD, tensors)
    optimizer = CocoOptimizer(inner, L=0.1, window=4)
    noisy_gradients(tensors, 3, optimizer.step)
    before = [p.grad for p in tensors]
    values = [p.grad.clone() for p in tensors if p.grad is not None]
    seen: list[torch.Tensor] = []

    def spy(*_: Any) -> None:
        seen.extend(p.grad.clone() for p in tensors if p.grad is not None)
        if fails:
            raise RuntimeError("the wrapped step failed")

    inner.register_step_pre_hook(spy)
    if fails:
        with pytest.raises(RuntimeError, match="wrapped step failed"):
            optimizer.step()
    else:
        optimizer.step()
    assert not any(torch.equal(a, b) for a, b in zip(seen, values, strict=True))
    assert all(p.grad is g for p, g in zip(tensors, before, strict=True))
    assert equal(values, [p.grad for p in tensors if p.grad is not None])


def test_hooks_of_both_run() -> None:
    tensors = parameters()
    inner = create(torch.optim.SGD, tensors)
    outer = CocoOptimizer(inner, L=1.0)
    calls: list[str] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_: calls.append(name)

    outer.register_step_pre_hook(note("outer before"))
    inner.register_step_pre_hook(note("inner before"))
    inner.register_step_post_hook(note("inner after"))
    outer.register_step_post_hook(note("outer after"))
    outer.register_state_dict_pre_hook(note("save"))
    outer.register_state_dict_post_hook(note("saved"))
    outer.register_load_state_dict_pre_hook(note("load"))
    outer.register_load_state_dict_post_hook(note("loaded"))
    noisy_gradients(tensors, 1, outer.step)
    outer.load_state_dict(outer.state_dict())
    order = "outer before, inner before, inner after, outer after, save, saved, load, loaded"
    assert calls == order.split(", ")


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_their_own_way(copier: Callable[[Any], Any]) -> None:
    tensors = parameters()
    optimizer = wrap(torch.optim.Adam, tensors)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    noisy_gradients(tensors, 5, optimizer.step)
    scheduler.step()
    others, other = copier((tensors, optimizer))
    assert other.param_groups[0]["params"][0] is others[0]
    noisy_gradients(tensors, 5, optimizer.step, seed=3)
    assert not equal(tensors, others)
    noisy_gradients(others, 5, other.step, seed=3)
    assert equal(tensors, others)


def test_diagnostics_tell_how_far_the_gradient_moved_and_what_the_window_costs() -> None:
    tensors = parameters()
    inner = create(torch.optim.SGD, tensors)
    optimizer = CocoOptimizer(inner, L=0.5, window=4)
    moved = []

    def spy(*_: Any) -> None:
        moved.append(torch.cat([p.grad.flatten() for p in tensors if p.grad is not None]))

    inner.register_step_pre_hook(spy)
    noisy_gradients(tensors, 6, optimizer.step)
    raw = torch.cat([p.grad.flatten() for p in tensors if p.grad is not None])
    found = optimizer.diagnostics()
    assert found.moved == pytest.approx(float((moved[-1] - raw).norm()), rel=1e-9)
    assert found.observations == found.window == len(found.weights) == 4
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.active > 0
    assert found.gap <= 1e-9
    assert found.nbytes >= 2 * 4 * 8 * sum(p.numel() for p in tensors)
    assert "MiB" in str(found)
    optimizer.reset()
    empty = optimizer.diagnostics()
    assert (empty.observations, empty.nbytes, empty.weights.size) == (0, 0, 0)
