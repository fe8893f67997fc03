"""What a wrapped optimizer may need and offer, and what would harm it in silence."""

import copy
import pickle
import warnings
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import pytorch_optimizer
import schedulefree
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from coco_denoiser import Cocoercive, Denoiser, Gaussian
from coco_denoiser.torch import GradientDenoiser
from tests.torch.problems import alike, coco, equal, flat, noisy_gradients, parameters

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_optimizers as database

REFUSED: tuple[Any, ...] = (torch.optim.LBFGS, torch.optim.SparseAdam)
TAKEN = [info for info in database.optim_db if info.optim_cls not in REFUSED]


def settings(info: Any) -> list[dict[str, Any]]:
    """Every set in PyTorch's own database; a step to differentiate takes no parameters."""
    inputs_of = vars(database)["_get_optim_inputs_including_global_cliquey_kwargs"]
    found = inputs_of("cpu", torch.float64, info, skip=("differentiable",))
    return [each.kwargs for each in found if not each.kwargs.get("differentiable")]


@pytest.mark.filterwarnings("ignore")  # what PyTorch thinks of some of its settings
@pytest.mark.parametrize("info", TAKEN, ids=lambda info: info.optim_cls.__name__)
def test_every_setting_is_kept(info: Any) -> None:
    """Where no constraint is active it is the wrapped optimizer, with states loaded in between."""
    assert len(settings(info)) > 1
    for kwargs in settings(info):
        tensors, others, states = parameters(), parameters(), list[Any]()
        for _ in range(3):
            inner, alone = (
                info.optim_cls(each, **copy.deepcopy(kwargs)) for each in (tensors, others)
            )
            around = coco(inner, model=Cocoercive(1e9, mu=-1e9))
            for each, state in zip((around, alone), states, strict=False):
                each.load_state_dict(state)
            assert alike(tensors, around, others, alone, 2), kwargs
            states = copy.deepcopy([around.state_dict(), alone.state_dict()])
        assert len(around.denoiser) == 4


def test_what_the_wrapped_one_has_is_found() -> None:
    tensors, others = parameters(), parameters()
    alone, inner = (schedulefree.SGDScheduleFree(each, lr=0.1) for each in (others, tensors))
    optimizer: Any = coco(inner, L=1e9)
    alone.train()
    optimizer.train()
    assert alike(tensors, optimizer, others, alone, 5)
    alone.eval()
    optimizer.eval()
    assert equal(tensors, others)
    assert not hasattr(optimizer, "no_such_thing")


def test_a_closure_runs_once_and_the_wrapped_optimizer_is_told_its_loss() -> None:
    tensors, others, evaluations = parameters(), parameters(), list[float]()
    alone, inner = (pytorch_optimizer.AliG(each, max_lr=0.1) for each in (others, tensors))
    optimizer = coco(inner, L=1e9)

    def evaluate(each: Any, points: list[nn.Parameter]) -> float:
        each.zero_grad()
        loss = 0.5 * torch.cat([p.flatten() for p in points]).square().sum()
        torch.autograd.backward(loss)
        evaluations.append(float(loss.detach()))
        return evaluations[-1]

    for _ in range(4):
        evaluations.clear()
        with torch.no_grad():
            loss = optimizer.step(lambda: evaluate(optimizer, tensors))
        assert evaluations == [loss]
        assert evaluate(alone, others) == loss  # AliG itself evaluates without gradients
        alone.step(lambda: loss)  # noqa: B023
        assert equal(tensors, others)
    assert not equal(tensors, parameters())


def test_one_that_evaluates_again_is_refused() -> None:
    inner: Any = pytorch_optimizer.SAM(tensors := parameters(), torch.optim.SGD, lr=0.1)
    message = (
        r"one gradient per step, got SAM: it asks for another one elsewhere.*Use a first-order"
    )
    with pytest.raises(TypeError, match=message):
        coco(inner).step(lambda: noisy_gradients(tensors, 1))


def test_one_may_exchange_the_memory_of_gradients_and_clear_them_in_its_own_way() -> None:
    class Bounded(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            for p in self.param_groups[0]["params"]:
                p.grad.data = p.grad.data.clamp(-0.5, 0.5)
            loss = super().step(closure)
            self.zero_grad()
            return loss

        def zero_grad(self, set_to_none: bool = True) -> None:
            cleared.append(set_to_none)
            super().zero_grad(set_to_none)

    cleared = list[bool]()
    tensors = parameters()
    x, core = flat(tensors), Denoiser(1.0, window=4)
    optimizer = coco(Bounded(tensors, lr=0.1))
    for seed in range(6):
        noisy_gradients(tensors, 1, seed=seed)
        x = x - 0.1 * core(x, flat(tensors, gradients=True)).clip(-0.5, 0.5)
        optimizer.step()
        np.testing.assert_allclose(flat(tensors), x)
        assert all(p.grad is None for p in tensors)
    optimizer.zero_grad(set_to_none=False)
    assert cleared == [True] * 6 + [False]


@pytest.mark.filterwarnings("ignore")  # Opacus advises against its fast generator
def test_private_training_denoises_the_private_gradients() -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(32, 3).double(), cast("Any", nn.Linear(3, 1).double())
    tensors = list(layer.parameters())
    optimizer, core, seen = coco(tensors), Denoiser(1.0, window=4), list[Any]()
    for each in (optimizer, optimizer.wrapped):
        each.register_step_pre_hook(lambda *_: seen.append(flat(tensors, gradients=True)))
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
        before = flat(tensors)
        private.step()
        np.testing.assert_allclose(seen[-1], core(before, seen[-2]), atol=1e-6)
    assert len(seen) == 2 * 4
    assert optimizer.diagnostics().moved > 0.0
    private.zero_grad()
    torch.autograd.backward(module(x).sum())  # of which its step makes gradients of its own
    message = r"gradients in \.grad, got DPOptimizer: .*Wrap the optimizer that it wraps"
    with pytest.raises(TypeError, match=message):
        coco(private).step()


@pytest.mark.parametrize("count", [1, 2])  # a single one is not copied
@pytest.mark.parametrize(
    "stand_in",
    [
        lambda g: torch._neg_view(-g),  # as .conj().imag has, but contiguous
        lambda g: torch._efficientzerotensor(g.shape),
        lambda g: g[:1].expand(g.shape),
        lambda g: torch.stack((g, g), dim=1)[:, 0],
    ],
    ids=["negative", "zero", "expanded", "strided"],
)
def test_gradients_without_plain_memory_count_as_what_they_say(stand_in: Any, count: int) -> None:
    tensors = [nn.Parameter(torch.ones(3)) for _ in range(count)]
    some, plain = (GradientDenoiser(tensors, L=0.1, window=3) for _ in range(2))
    for seed in range(4):
        found = list[Any]()
        for each in (some, plain):
            noisy_gradients(tensors, 1, seed=seed)
            for p in tensors:
                gradient: Any = stand_in(p.grad) if seed % 2 else p.grad
                p.grad = gradient if each is some else torch.zeros(3).copy_(gradient)
            assert each.denoise()
            found.append(flat(tensors, gradients=True))
        np.testing.assert_array_equal(*found)
    assert some.diagnostics().moved > 0.0


def test_nothing_is_emptied_or_loaded_in_the_middle_of_a_step() -> None:
    def busy() -> float:
        load = [partial(some.load_state_dict, state) for some in (optimizer, denoiser)]
        calls: list[Any] = [denoiser.denoise, denoiser.reset, optimizer.reset, *load]
        for call in calls:
            with pytest.raises(RuntimeError, match="in the middle of a step"):
                call()
        return 1.0

    optimizer = coco(tensors := parameters(), L=busy)
    denoiser, state = optimizer.denoiser, optimizer.state_dict()
    noisy_gradients(tensors, 3, optimizer.step)
    assert len(optimizer.denoiser) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_adaptive_optimizers_are_known_by_what_they_have() -> None:
    torchs = [getattr(torch.optim, name) for name in ("AdamW", "Adafactor", "Adagrad", "Rprop")]
    for kind in (*torchs, pytorch_optimizer.Lion, schedulefree.AdamWScheduleFree):
        with pytest.warns(UserWarning, match="increases its effective step size.*plain SGD"):
            coco(kind(parameters(), lr=0.1), model=Gaussian())
    coco(schedulefree.SGDScheduleFree(parameters(), lr=0.1), model=Gaussian())


def test_a_bound_that_follows_the_rate_is_the_inverse_of_the_smallest_positive_one() -> None:
    """Warm-up from 0, and a schedule."""
    optimizer = coco([{"params": [p]} for p in parameters()], L="1/lr")
    assert "L='1/lr'" in repr(optimizer)
    optimizer = pickle.loads(pickle.dumps(optimizer))
    tensors = [p for group in optimizer.param_groups for p in group["params"]]
    for seed, rate in enumerate((0.0, 0.01, 0.3, 0.05, 0.05, 0.0, 0.2)):
        for group, lr in zip(optimizer.param_groups, (3.0 * rate, rate, 0.0), strict=True):
            group["lr"] = lr
        noisy_gradients(tensors, 1, optimizer.step, seed=seed)
        assert 1.0 / max(rate, 1e-30) == optimizer.diagnostics().L
    assert optimizer.diagnostics().moved > 0.0
