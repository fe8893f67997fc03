"""What a wrapped optimizer may need and offer, and what would harm it in silence."""

import pickle
from typing import Any, cast

import numpy as np
import pytest
import pytorch_optimizer
import schedulefree
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coco_denoiser import Denoiser, Gaussian
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser
from tests.torch.problems import begun, coco, copies, equal, flat, noisy_gradients, parameters


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
    alone, inner = (schedulefree.SGDScheduleFree(each, lr=0.1) for each in (others, tensors))
    optimizer: Any = CocoOptimizer(inner, L=1e9, window=4)
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
        loss = 0.5 * torch.cat([p.flatten() for p in steps]).square().sum()
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


class Own(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for p in self.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        return super().step(closure)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (
            lambda tensors: pytorch_optimizer.SAM(tensors, torch.optim.SGD, lr=0.1),
            r"one gradient per step, got SAM: it asks for another one elsewhere.*Use a first-order",
        ),
        (lambda tensors: Own(tensors, lr=0.1), r"gradients in \.grad, got Own: .*Wrap "),
    ],
    ids=["SAM", "Own"],
)
def test_one_that_takes_gradients_of_its_own_is_refused(inner: Any, message: str) -> None:
    tensors = parameters()
    optimizer = CocoOptimizer(inner(tensors), L=1e-3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.stack([(p**4).sum() for p in tensors]).sum()
        torch.autograd.backward(loss)
        return loss

    with pytest.raises(TypeError, match=message):
        optimizer.step(closure)


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
    private.zero_grad()
    torch.autograd.backward(module(x).sum())
    with pytest.raises(TypeError, match=r"got DPOptimizer: .*Wrap the optimizer that it wraps"):
        CocoOptimizer(private, L=1.0).step()


@pytest.mark.parametrize("count", [1, 2])  # a single one is not copied
@pytest.mark.parametrize(
    ("stand_in", "same"),
    [
        (lambda g: torch._neg_view(-g), lambda g: g),  # as .conj().imag has, but contiguous
        (lambda g: torch._efficientzerotensor(g.shape), torch.zeros_like),
        (lambda g: g[:1].expand(g.shape), lambda g: g[:1].repeat(len(g))),
        (lambda g: torch.stack((g, g), dim=1)[:, 0], lambda g: g),
    ],
    ids=["negative", "zero", "expanded", "strided"],
)
def test_gradients_without_plain_memory_count_as_what_they_say(
    stand_in: Any, same: Any, count: int
) -> None:
    some, others = ([nn.Parameter(torch.ones(3)) for _ in range(count)] for _ in range(2))
    pairs = [(t, GradientDenoiser(t, L=0.1, window=3)) for t in (some, others)]
    for seed in range(4):
        for (tensors, denoiser), change in zip(pairs, (stand_in, same), strict=True):
            noisy_gradients(tensors, 1, seed=seed)
            for p in tensors:
                p.grad = change(p.grad) if seed % 2 else p.grad
            assert denoiser.denoise()
        np.testing.assert_array_equal(flat(some, gradients=True), flat(others, gradients=True))
    assert pairs[0][1].diagnostics().moved > 0.0


@pytest.mark.parametrize("kind", [GradientDenoiser, coco])
@pytest.mark.parametrize("action", ["reset", "load_state_dict"])
def test_nothing_is_emptied_or_loaded_in_the_middle_of_a_step(kind: Any, action: str) -> None:
    tensors = parameters()
    interfere = False

    def bound() -> float:
        if interfere:
            getattr(some, action)(*given)
        return 1.0

    some = kind(tensors, L=bound)
    step = some.step if isinstance(some, CocoOptimizer) else some.denoise
    noisy_gradients(tensors, 3, step)
    given, interfere = [some.state_dict()] if action != "reset" else [], True
    with pytest.raises(RuntimeError, match="in the middle of a step"):
        noisy_gradients(tensors, 1, step)
    interfere = False
    noisy_gradients(tensors, 1, step)
    assert len(getattr(some, "denoiser", some)) == 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_adaptive_optimizers_are_known_by_what_they_have() -> None:
    made: list[Any] = [
        torch.optim.AdamW,
        torch.optim.Adafactor,
        torch.optim.Adagrad,
        torch.optim.Rprop,
        pytorch_optimizer.Lion,
        pytorch_optimizer.AdaBelief,
        schedulefree.AdamWScheduleFree,
    ]
    for kind in made:
        with pytest.warns(UserWarning, match="increases its effective step size.*plain SGD"):
            CocoOptimizer(kind(parameters(), lr=0.1), model=Gaussian())
    CocoOptimizer(schedulefree.SGDScheduleFree(parameters(), lr=0.1), model=Gaussian())


RATES = [0.0, 0.01, 0.3, 0.05, 0.05, 0.0, 0.2]


@pytest.mark.parametrize(
    ("options", "copied"), [({"window": 4}, True), ({"window": 2, "forget": "fold"}, False)]
)
def test_a_bound_that_follows_the_rate_is_the_one_given_by_hand(
    options: dict[str, Any], copied: bool
) -> None:
    """Warm-up from 0 and a schedule; in float64, as a bound of 1e30 is not exact in float32."""
    tensors: Any = parameters()
    optimizer = CocoOptimizer(torch.optim.SGD(tensors, lr=1.0), L="1/lr", **options)
    assert "L='1/lr'" in repr(optimizer)
    if copied:
        tensors, optimizer = pickle.loads(pickle.dumps((tensors, optimizer)))
    rate = iter(RATES)
    core = Denoiser(L=lambda: 1.0 / max(next(rate), 1e-30), **options)
    for step, lr in enumerate(RATES):
        optimizer.param_groups[0]["lr"] = lr
        noisy_gradients(tensors, 1, seed=step)
        x = flat(tensors)
        expected = x - lr * core(x, flat(tensors, gradients=True))
        optimizer.step()
        np.testing.assert_allclose(flat(tensors), expected, atol=1e-9)
        assert 1.0 / max(lr, 1e-30) == optimizer.diagnostics().L


def test_of_groups_with_other_rates_the_smallest_positive_one_counts() -> None:
    tensors = parameters()
    groups = [{"params": [p], "lr": lr} for p, lr in zip(tensors, (0.5, 0.1, 0.0), strict=True)]
    optimizer = CocoOptimizer(torch.optim.SGD(groups, lr=1.0), L="1/lr")
    noisy_gradients(tensors, 3, optimizer.step)
    assert optimizer.diagnostics().L == 10.0
