"""CocoOptimizer is an optimizer like any other: closures, hooks, gradients, directions."""

import copy
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import pytorch_optimizer
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from coco_denoiser import Cocoercive, Denoiser, Gaussian, Status
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser
from tests.torch.problems import coco, copies, equal, flat, noisy_gradients, parameters


def test_it_is_an_optimizer_with_the_wrapped_ones_own_objects() -> None:
    inner = torch.optim.Adam(parameters(), lr=0.1, fused=True)
    outer = CocoOptimizer(inner, L=1.0)
    assert isinstance(outer, Optimizer)
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
    assert "Adam" in repr(outer)
    assert "window=16" in repr(outer)
    gaussian = CocoOptimizer(torch.optim.SGD(parameters(), lr=0.1), model=Gaussian())
    assert gaussian.denoiser.window == 32
    assert "model=Gaussian(" in repr(gaussian)


@pytest.mark.parametrize("fails", [False, True])
def test_gradients_are_put_back(fails: bool) -> None:
    tensors = parameters()
    inner = torch.optim.SGD(tensors, lr=0.1)
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


def test_hooks_of_both_run_and_those_for_all_optimizers_once() -> None:
    tensors = parameters()
    inner = torch.optim.SGD(tensors, lr=0.1)
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
    handles = [
        register_optimizer_step_pre_hook(note("any before")),
        register_optimizer_step_post_hook(note("any after")),
    ]
    try:
        noisy_gradients(tensors, 1, lambda: calls.append(str(outer.step())))
    finally:
        for handle in handles:
            handle.remove()
    outer.load_state_dict(outer.state_dict())
    assert calls == [
        *("outer before", "any before", "inner before", "inner after", "any after", "outer after"),
        "None",  # without a closure there is no loss
        *("save", "saved", "load", "loaded"),
    ]


@pytest.mark.parametrize(
    "options", [{}, {"forget": "fold"}, {"window": 2, "forget": "fold"}], ids=str
)
def test_diagnostics_tell_what_was_done_how_good_it_is_and_what_it_costs(
    options: dict[str, Any],
) -> None:
    tensors = parameters()
    frozen = nn.Parameter(torch.ones(1000), requires_grad=False)  # costs nothing
    inner = torch.optim.SGD([*tensors, frozen], lr=0.1)
    optimizer, core = coco(inner, L=0.5, **options), Denoiser(0.5, **{"window": 4, **options})
    used: list[Any] = []
    inner.register_step_pre_hook(lambda *_: used.append(flat(tensors, gradients=True).copy()))
    for seed in range(9):
        noisy_gradients(tensors, 1, seed=seed)
        raw = flat(tensors, gradients=True)
        theta = core(flat(tensors), raw)
        optimizer.step()
        np.testing.assert_allclose(used[-1], theta, rtol=1e-9)
        found, answer = optimizer.diagnostics(), core.solution
        assert found.moved == pytest.approx(np.linalg.norm(theta - raw), rel=1e-6)
        assert found.weights.sum() == pytest.approx(1.0)
        if seed == 0:  # one observation has no answer
            continue
        assert found.status is answer.status
        assert answer.status is (Status.SOLVED if found.moved else Status.UNCHANGED)
        assert max(found.gap, found.violation) <= 1e-9
        assert found.gap == pytest.approx(answer.gap, abs=1e-12)
        assert found.violation == pytest.approx(answer.violation, abs=1e-12)
    assert found.moved > 0.0
    again = copy.deepcopy(optimizer).diagnostics()
    np.testing.assert_array_equal(again.weights, found.weights)
    assert again[1:] == pytest.approx(found[1:], nan_ok=True)
    held = 1 if options.get("window") == 2 else 4
    assert len(optimizer.denoiser) == held
    # As docs/torch.md says: 2 K copies, or two; here in double precision.
    assert found.nbytes == 2 * held * 8 * sum(p.numel() for p in tensors)
    assert f"forget={options.get('forget', 'drop')!r}" in repr(optimizer)
    optimizer.reset()
    empty = optimizer.diagnostics()
    assert (len(optimizer.denoiser), empty.nbytes, empty.weights.size) == (0, 0, 0)


@pytest.mark.parametrize("options", [{"window": 4}, {"window": 2, "forget": "fold"}], ids=str)
@pytest.mark.parametrize("count", [1, 30])
def test_a_step_passes_few_functions_however_many_tensors(
    options: dict[str, Any], count: int
) -> None:
    tensors, passed = [nn.Parameter(torch.ones(3)) for _ in range(count)], list[str]()
    optimizer = coco(tensors, **options)

    def record(frame: Any, event: str, _: object) -> None:
        if event == "call" and "coco_denoiser" in frame.f_code.co_filename:
            passed.append(frame.f_code.co_name)

    for seed in range(6):
        noisy_gradients(tensors, 1, seed=seed)
        passed.clear()
        sys.setprofile(record)
        try:
            optimizer.step()
        finally:
            sys.setprofile(None)
    assert optimizer.diagnostics().moved > 0.0
    assert len(passed) <= 34


@pytest.mark.parametrize("options", [{"window": 4}, {"window": 2, "forget": "fold"}], ids=str)
def test_maximising_the_negative_is_minimising(options: dict[str, Any]) -> None:
    some = parameters()
    others = copies(some)
    bounds = [iter([1.0, 0.3, 2.5, 2.5, 0.7, 1.0] * 2) for _ in range(2)]
    down, up = (
        CocoOptimizer(
            torch.optim.SGD(tensors, lr=0.3, maximize=maximize),
            model=Cocoercive(lambda mine=mine: next(mine), mu=-0.2),
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


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: coco(torch.optim.LBFGS(p)), TypeError, r"take one .* got LBFGS: .*Use "),
        (lambda p: coco(coco(p)), TypeError, "got CocoOptimizer: wrap the one inside"),
        (lambda p: CocoOptimizer(p, L=1.0), TypeError, "got list: wrap one, CocoOptimizer"),
        (lambda p: coco(p, lr=0.1), TypeError, "unexpected keyword argument 'lr'"),
        (lambda p: coco(p, mu=0.1), TypeError, "unexpected keyword argument 'mu'"),
        (lambda p: coco(p, model=Gaussian(mu=0.1)), TypeError, "argument 'mu'"),  # type: ignore[call-arg]
        (lambda p: coco(p, L=1.0, model=Gaussian()), ValueError, "L is an option of the model"),
        (lambda p: coco(p, model="gaussian"), TypeError, "must be a model, such as Gaussian"),
        (lambda p: coco(p, L=None), ValueError, "Pass L .* or model=Gaussian"),
        (lambda p: coco(p, window=0), ValueError, "window must be a positive integer"),
        (lambda p: coco(p, nonfinite="ignore"), ValueError, "nonfinite must be one of"),
        (
            lambda p: coco(p, forget="fold", model=Gaussian()),
            ValueError,
            "only supported by Cocoercive",
        ),
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


def test_a_misspelt_argument_of_a_step_is_refused_and_seen_by_type_checkers() -> None:
    optimizer = CocoOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1), L=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'variance'"):
        optimizer.step(variance=2.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'variance'"):
        optimizer.denoiser.denoise(variance=2.0)  # type: ignore[call-arg]
