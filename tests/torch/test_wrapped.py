"""What a wrapped optimizer may need and offer: its loss, its methods, its hooks, its gradients."""

from typing import Any, cast

import numpy as np
import pytest
import pytorch_optimizer
import schedulefree
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coco_denoiser import Denoiser
from coco_denoiser.torch import CocoOptimizer
from tests.torch.problems import begun, copies, equal, flat, noisy_gradients, parameters


def half_square(tensors: list[nn.Parameter]) -> torch.Tensor:
    return 0.5 * torch.cat([p.flatten() for p in tensors]).square().sum()


def test_zero_grad_is_the_wrapped_ones() -> None:
    class Clears(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            cleared.append(set_to_none)
            super().zero_grad(set_to_none)

    cleared: list[bool] = []
    optimizer = CocoOptimizer(Clears(tensors := parameters(), lr=0.1), L=1.0)
    noisy_gradients(tensors, 1, optimizer.step)
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in tensors)
    optimizer.zero_grad()
    assert all(p.grad is None for p in tensors)
    assert cleared == [False, True]


def test_what_the_wrapped_one_has_is_found() -> None:
    tensors = parameters()
    others = copies(tensors)
    alone = schedulefree.SGDScheduleFree(others, lr=0.1)
    optimizer: Any = CocoOptimizer(schedulefree.SGDScheduleFree(tensors, lr=0.1), L=1e9, window=4)
    for each, steps in ((alone, others), (optimizer, tensors)):
        each.train()
        noisy_gradients(steps, 5, each.step)
        each.eval()
    assert equal(tensors, others)
    assert not hasattr(optimizer, "no_such_thing")


def test_a_closure_runs_once_and_the_wrapped_optimizer_is_told_its_loss() -> None:
    tensors = parameters()
    others = copies(tensors)
    alone = pytorch_optimizer.AliG(others, max_lr=0.1)
    optimizer = CocoOptimizer(pytorch_optimizer.AliG(tensors, max_lr=0.1), L=1e9, window=4)
    evaluations: list[Any] = []

    def evaluate(each: Any, steps: list[nn.Parameter]) -> float:
        evaluations.append(each)
        each.zero_grad()
        loss = half_square(steps)
        torch.autograd.backward(loss)
        return float(loss.detach())

    for _ in range(4):
        with torch.no_grad():
            loss = optimizer.step(lambda: evaluate(optimizer, tensors))
        expected = evaluate(alone, others)  # AliG itself evaluates without gradients
        alone.step(lambda: expected)  # noqa: B023
        assert loss == expected
    assert evaluations.count(optimizer) == 4
    assert equal(tensors, others)
    assert not equal(tensors, parameters())


def test_one_that_asks_for_a_gradient_elsewhere_is_refused() -> None:
    tensors = parameters()
    sharp = pytorch_optimizer.SAM(tensors, torch.optim.SGD, lr=0.1)
    optimizer = CocoOptimizer(sharp, L=1.0)

    def closure() -> torch.Tensor:
        loss = half_square(tensors)
        torch.autograd.backward(loss)
        return loss

    with pytest.raises(TypeError, match=r"one gradient per step, got SAM: .*Use a first-order"):
        optimizer.step(closure)


def test_one_that_replaces_the_gradients_is_refused() -> None:
    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for p in self.param_groups[0]["params"]:
                p.grad = torch.ones_like(p)
            return super().step(closure)

    tensors = parameters()
    optimizer = CocoOptimizer(Own(tensors, lr=0.1), L=1.0)
    with pytest.raises(TypeError, match=r"gradients in \.grad, got Own: .*Wrap "):
        noisy_gradients(tensors, 1, optimizer.step)


def test_one_may_exchange_the_memory_of_gradients_and_clear_them() -> None:
    class Bounded(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for p in self.param_groups[0]["params"]:
                p.grad.data = p.grad.data.clamp(-0.5, 0.5)
            loss = super().step(closure)
            self.zero_grad()
            return loss

    tensors = parameters()
    x, core = flat(tensors), Denoiser(1.0, window=4)
    optimizer = CocoOptimizer(Bounded(tensors, lr=0.1), L=1.0, window=4)
    for seed in range(6):
        noisy_gradients(tensors, 1, seed=seed)
        x = x - 0.1 * core(x, flat(tensors, gradients=True)).clip(-0.5, 0.5)
        optimizer.step()
        np.testing.assert_allclose(flat(tensors), x)
        assert all(p.grad is None for p in tensors)


def test_a_hook_may_change_the_arguments() -> None:
    tensors, optimizer = begun(0)
    given = []
    optimizer.register_step_pre_hook(lambda _, args, kwargs: ((args[0], lambda: 3.0), kwargs))
    optimizer.register_step_post_hook(lambda _, args, __: given.append(args[1]()))
    noisy_gradients(tensors, 1, lambda: given.append(optimizer.step()))
    assert given == [3.0, 3.0]


@pytest.mark.filterwarnings("ignore")  # Opacus advises against its fast generator
def test_private_training_denoises_the_private_gradients() -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(32, 3).double(), cast("Any", nn.Linear(3, 1).double())
    inner, tensors = torch.optim.SGD(layer.parameters(), lr=0.2), list(layer.parameters())
    optimizer, core = CocoOptimizer(inner, L=1.0, window=4), Denoiser(1.0, window=4)
    expected: list[Any] = []

    def before(*_: Any) -> None:
        expected.append(core(flat(tensors), flat(tensors, gradients=True)))

    def after(*_: Any) -> None:
        np.testing.assert_allclose(flat(tensors, gradients=True), expected[-1], atol=1e-6)

    optimizer.register_step_pre_hook(before)
    inner.register_step_pre_hook(after)
    module, private, data = PrivacyEngine().make_private(
        module=layer,
        optimizer=optimizer,
        data_loader=DataLoader(TensorDataset(x, x.sum(1)), batch_size=8),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    for a, b in data:
        private.zero_grad()
        torch.autograd.backward((module(a)[:, 0] - b).square().mean())
        private.step()
    assert len(expected) == 4
    assert optimizer.diagnostics().moved > 0.0
    with pytest.raises(TypeError, match=r"got DPOptimizer: .*make_private\(optimizer=CocoOptim"):
        CocoOptimizer(private, L=1.0)
