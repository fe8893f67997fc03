"""CocoOptimizer is an optimizer like any other: closures, hooks, gradients, directions."""

import copy
import inspect
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_optimizer
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from coco_denoiser import Cocoercive, Denoiser
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser
from tests.torch.problems import begun, coco, flat, noisy_gradients, parameters

ROOT = str(Path(inspect.getfile(CocoOptimizer)).parents[1])


def test_it_is_an_optimizer_with_the_wrapped_ones_own_objects() -> None:
    inner = torch.optim.Adam(parameters(), lr=0.1, fused=True)
    outer = CocoOptimizer(inner, model=Cocoercive(1.0, mu=0.1))
    for name in ("param_groups", "state", "defaults"):
        assert getattr(outer, name) is getattr(inner, name)
        value = copy.copy(getattr(inner, name))
        setattr(outer, name, value)
        assert getattr(inner, name) is value
    # Schedulers and Accelerate replace `step` on the instance, and need a bound method for it.
    assert inspect.ismethod(outer.step)
    assert outer.step.__self__ is outer
    # Lightning refuses to clip gradients, and GradScaler to unscale them, where this is true.
    assert not getattr(outer, "_step_supports_amp_scaling", False)
    assert outer.denoiser.window == 16
    for shown in ("Adam", "window=16", "model=Cocoercive(L=1.0, mu=0.1"):
        assert shown in repr(outer)


@pytest.mark.parametrize("fails", [False, True])
def test_gradients_are_put_back(fails: bool) -> None:
    tensors = parameters()
    optimizer, seen = coco(tensors, L=0.1), list[Any]()
    noisy_gradients(tensors, 3, optimizer.step)
    before, values = [p.grad for p in tensors], flat(tensors, gradients=True)

    def spy(*_: Any) -> None:
        seen.append(flat(tensors, gradients=True))
        if fails:
            raise RuntimeError("the wrapped step failed")

    optimizer.wrapped.register_step_pre_hook(spy)
    with pytest.raises(RuntimeError, match="wrapped step") if fails else nullcontext():
        optimizer.step()
    assert not np.allclose(seen[0], values)
    assert all(p.grad is g for p, g in zip(tensors, before, strict=True))
    np.testing.assert_array_equal(flat(tensors, gradients=True), values)


def test_hooks_of_both_run_and_those_for_all_optimizers_once() -> None:
    tensors, optimizer = begun(0)
    calls: list[Any] = []
    hooks: dict[str, Any] = {
        "before": optimizer.register_step_pre_hook,
        "before inside": optimizer.wrapped.register_step_pre_hook,
        "after inside": optimizer.wrapped.register_step_post_hook,
        "after": optimizer.register_step_post_hook,
        "save": optimizer.register_state_dict_pre_hook,
        "saved": optimizer.register_state_dict_post_hook,
        "load": optimizer.register_load_state_dict_pre_hook,
        "loaded": optimizer.register_load_state_dict_post_hook,
        "before any": register_optimizer_step_pre_hook,
        "after any": register_optimizer_step_post_hook,
    }
    handles = [add(lambda *_, name=name: calls.append(name)) for name, add in hooks.items()]
    noisy_gradients(tensors, 1, lambda: calls.append(optimizer.step()))
    for handle in handles[-2:]:
        handle.remove()
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == [
        *("before", "before any", "before inside", "after inside", "after any", "after"),
        None,  # without a closure there is no loss
        *("save", "saved", "load", "loaded"),
    ]
    # A hook may change the arguments, and others are told.
    optimizer.register_step_pre_hook(lambda _, args, kwargs: ((args[0], lambda: 3.0), kwargs))
    optimizer.register_step_post_hook(lambda _, args, __: calls.append(args[1]()))
    assert optimizer.step() == calls[-1] == 3.0


@pytest.mark.parametrize(
    "options", [{}, {"forget": "fold"}, {"window": 2, "forget": "fold"}], ids=str
)
def test_diagnostics_are_those_of_numpys_denoiser(options: dict[str, Any]) -> None:
    tensors = parameters()
    frozen = nn.Parameter(torch.ones(1000), requires_grad=False)  # costs nothing
    inner = torch.optim.SGD([*tensors, frozen], lr=0.1)
    optimizer, core = coco(inner, L=0.5, **options), Denoiser(0.5, **{"window": 4, **options})
    for seed in range(9):
        noisy_gradients(tensors, 1, seed=seed)
        raw = flat(tensors, gradients=True)
        theta = core(flat(tensors), raw)
        optimizer.step()
        found, answer = optimizer.diagnostics(), core.solution
        assert found.moved == pytest.approx(np.linalg.norm(theta - raw), rel=1e-6)
        assert found.weights.sum() == pytest.approx(1.0)
        if seed:  # one observation has no answer
            assert found.status is answer.status
            told = answer.gap, answer.violation
            assert (found.gap, found.violation) == pytest.approx(told, abs=1e-12)
    assert found.moved > 0.0
    held = 1 if options.get("window") == 2 else 4
    # As docs/torch.md says: 2 K copies, or two; here in double precision.
    assert found.nbytes == 2 * held * 8 * sum(p.numel() for p in tensors)
    optimizer.reset()
    empty = optimizer.diagnostics()
    assert (len(optimizer.denoiser), empty.nbytes, empty.weights.size) == (0, 0, 0)


@pytest.mark.parametrize("L", [1.0, "1/lr"])
@pytest.mark.parametrize("forget", ["drop", "fold"])
@pytest.mark.parametrize("count", [1, 30])
def test_a_step_passes_few_functions_however_many_tensors(L: Any, forget: Any, count: int) -> None:
    tensors, passed = [nn.Parameter(torch.ones(3)) for _ in range(count)], list[str]()
    optimizer = coco(tensors, L=L, forget=forget)

    def record(frame: Any, event: str, _: object) -> None:
        if event == "call" and ROOT in frame.f_code.co_filename:
            passed.append(frame.f_code.co_name)

    for seed in range(8):
        noisy_gradients(tensors, 1, seed=seed)
        passed.clear()
        sys.setprofile(record)
        try:
            optimizer.step()
        finally:
            sys.setprofile(None)
    assert optimizer.diagnostics().moved > 0.0
    assert 10 < len(passed) <= 35


@pytest.mark.parametrize("options", [{"window": 4}, {"window": 2, "forget": "fold"}], ids=str)
def test_maximising_the_negative_is_minimising(options: dict[str, Any]) -> None:
    some, others, optimizers = parameters(), parameters(), list[CocoOptimizer]()
    for tensors, maximize in ((some, False), (others, True)):
        bounds = iter([1.0, 0.3, 2.5, 2.5, 0.7, 1.0] * 2)
        inner = torch.optim.SGD(tensors, lr=0.3, maximize=maximize)
        model = Cocoercive(partial(next, bounds), mu=-0.2)
        optimizers.append(CocoOptimizer(inner, model=model, **options))
    for seed in range(12):
        noisy_gradients(some, 1, seed=seed)
        for p, q in zip(some, others, strict=True):
            q.grad = -p.grad  # type: ignore[operator]
        for optimizer in optimizers:
            optimizer.step()
        np.testing.assert_allclose(flat(some), flat(others), atol=1e-12)
    assert optimizers[1].diagnostics().moved > 0.0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: coco(torch.optim.LBFGS(p)), TypeError, r"take one .* got LBFGS: .*Use "),
        (lambda p: coco(coco(p)), TypeError, "got CocoOptimizer: wrap the one inside"),
        (lambda p: CocoOptimizer(p, L=1.0), TypeError, "got list: wrap one, CocoOptimizer"),
        (lambda p: coco(p, lr=0.1), TypeError, "unexpected keyword argument 'lr'"),
        # Type checkers see these too, through what keeps torch.compile out.
        (lambda p: coco(p).step(variance=2.0), TypeError, "'variance'"),  # type: ignore[call-arg]
        (lambda p: coco(p).denoiser.denoise(v=2.0), TypeError, "'v'"),  # type: ignore[call-arg]
        (lambda p: coco(p, model="gaussian"), TypeError, "must be a model, such as Gaussian"),
        (lambda p: coco(p, window=None), TypeError, "window must be a positive integer"),
        (lambda p: coco(p, nonfinite="ignore"), ValueError, "nonfinite must be one of"),
        (
            lambda p: CocoOptimizer(pytorch_optimizer.AliG(p, max_lr=0.1), L="1/lr"),
            ValueError,
            "groups have an lr",
        ),
        (
            lambda p: coco([{"params": p[:1]}, {"params": p[1:], "maximize": True}]).step(),
            ValueError,
            "maximize must be the same",
        ),
        (
            lambda p: GradientDenoiser([{"params": p}], L=1.0),  # type: ignore[list-item]
            TypeError,
            "parameters must be tensors, got a dict",
        ),
    ],
)
def test_refused_with_a_reason(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(parameters())
