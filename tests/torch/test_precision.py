"""Mixed precision, double, complex: nothing scaled, infinite or NaN enters the window."""

import copy
from contextlib import nullcontext
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coco_denoiser import ConvergenceWarning, Status
from coco_denoiser.models.cocoercive import Cocoercive
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser, denoiser, passes
from coco_denoiser.torch.passes import DEVICE, HOST, PASSES, Passes
from tests.torch.problems import (
    adam,
    begun,
    coco,
    equal,
    history,
    noisy_gradients,
    parameters,
)

WINDOWS = pytest.mark.parametrize(
    "options", [{}, {"window": 2, "forget": "fold"}], ids=["drop", "filter"]
)


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_training_is_unscaled_training_and_overflow_changes_nothing(fused: bool) -> None:
    tensors, others = (parameters(torch.float32) for _ in range(2))
    plain, scaled = (
        coco(torch.optim.Adam(each, lr=0.1, fused=fused), L=0.1) for each in (tensors, others)
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def scaled_step() -> None:
        for p in others:
            p.grad = scaler.scale(p.grad)  # type: ignore[arg-type]
        scaler.step(scaled)
        scaler.update()

    noisy_gradients(tensors, 9, plain.step)
    noisy_gradients(others, 9, scaled_step)
    assert plain.diagnostics().weights[-1] < 1.0
    # A power of two scales exactly, so even the last bits agree.
    for p in others:
        p.grad = torch.full_like(p, torch.inf)
    scaled_step()
    assert scaler.get_scale() == 2.0**11
    assert equal(tensors, others)
    assert equal(history(plain), history(scaled))


LARGEST = {torch.float32: 1e37, torch.float64: 1e150}


@WINDOWS
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("bad", ["nan", "gradient", "point"])
def test_what_no_window_holds_is_skipped_or_refused(
    bad: str, dtype: torch.dtype, options: dict[str, Any]
) -> None:
    tensors, largest = parameters(dtype), LARGEST[dtype]
    some = adam(tensors, **options)
    noisy_gradients(tensors, 5, some.step)
    noisy_gradients(tensors, 1)
    value = torch.nan if bad == "nan" else 1.1 * largest
    if bad == "point":
        tensors[1].data[0, 0] = value
    else:
        tensors[1].grad = torch.full_like(tensors[1], value)
    gradients, before, used = [p.grad for p in tensors], history(some, "coco_"), list[Any]()
    some.wrapped.register_step_pre_hook(lambda *_: used.extend(p.grad for p in tensors))
    some.denoiser.nonfinite = "raise"
    with pytest.raises(ValueError, match=r"infinity or NaN, or .* 1e\+37 in .* and 1e\+150"):
        some.step()
    assert not used
    some.denoiser.nonfinite = "skip"
    with nullcontext() if bad == "nan" else pytest.warns(UserWarning, match="was skipped"):
        assert not some.denoiser.denoise()
    assert equal(history(some, "coco_"), before)
    with nullcontext() if bad == "nan" else pytest.warns(UserWarning, match="was skipped"):
        some.step()
    for found in ([p.grad for p in tensors], used):  # passed on as they are
        assert all(a is b for a, b in zip(found, gradients, strict=True))
    assert some.diagnostics().skipped == 3
    for p in tensors:
        p.data, p.grad = torch.zeros_like(p), torch.full_like(p, 0.9 * largest)
    some.reset()
    some.step()
    assert len(some.denoiser) == 1


def call(function: Any) -> Any:
    return function()


@pytest.mark.parametrize("module", ["train", "torch_train"])
def test_warnings_name_the_line_of_the_user(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    user = FunctionType(call.__code__.replace(co_filename="train.py"), {"__name__": module})

    def tell(message: str, function: Any) -> None:
        with pytest.warns(Warning, match=message) as caught:
            user(function)
        assert [found.filename for found in caught] == ["train.py"]

    tensors, optimizer = begun(3)
    momentum = torch.optim.SGD(tensors, lr=0.1, momentum=0.9)
    tell("momentum", partial(CocoOptimizer, momentum, L=1.0))
    optimizer.param_groups[0]["momentum"] = 0.9  # told once
    tell("SGD has momentum.*may diverge", optimizer.step)
    tell("holds no window", partial(optimizer.load_state_dict, momentum.state_dict()))
    noisy_gradients(tensors, 2, optimizer.step)
    tensors[0].grad = torch.full_like(tensors[0], 1e200)
    tell("an observation was skipped: .*Rescale the loss", optimizer.step)
    tensors[0].data.zero_()  # the wrapped step was as large
    noisy_gradients(tensors, 1, optimizer.step)  # not in a row
    tensors[0].grad.fill_(torch.nan)
    for _ in range(9):
        optimizer.step()
    tell("10 observations in a row were skipped", optimizer.step)
    optimizer.step()
    honest = Cocoercive.estimate

    def short(*given: Any) -> Any:
        return honest(*given)._replace(status=Status.STALLED, gap=0.5)

    monkeypatch.setattr(Cocoercive, "estimate", short)
    tensors[0].data.zero_()  # it was NaN
    noisy_gradients(tensors, 1)
    with pytest.raises(ConvergenceWarning):  # as an error it loses nothing
        optimizer.step()
    tell("relative gap 5.0e-01", optimizer.step)
    found = optimizer.diagnostics()
    assert (found.gap, found.status, len(optimizer.denoiser)) == (0.5, Status.STALLED, 4)


@pytest.mark.parametrize("each", [HOST, DEVICE])
def test_a_residual_that_is_too_large_is_named(each: Passes, monkeypatch: Any) -> None:
    """Neither parameters nor gradients are, but c times the former."""
    monkeypatch.setitem(PASSES, "cpu", each)
    p = nn.Parameter(torch.full((3,), 1e10))
    p.grad = torch.ones(3)
    with pytest.raises(ValueError, match=r"gradients - c \* parameters, c = \(L \+ mu\) / 2, hold"):
        GradientDenoiser([p], L=1e30).denoise()


def test_what_would_be_too_large_when_merged_is_refused() -> None:
    """Where the bounds change, the gradient that is merged enters with their centre."""
    scale, p = 1.0, nn.Parameter(torch.zeros(3))
    model = Cocoercive(lambda: scale, mu=lambda: 0.9 * scale)
    some = GradientDenoiser(p, model=model, window=3, forget="fold")
    for k in range(4):
        p.data, p.grad = torch.full((3,), k * 1e10), torch.ones(3)
        some.denoise()
    before, scale = history(some), 1e30
    with pytest.raises(ValueError, match="exceed the largest magnitude"):
        some.denoise()
    assert equal(history(some), before)


@pytest.mark.parametrize("large", [10**6, 1])
def test_mixed_dtypes_are_one_point(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored of narrow parameters is exact: weights are those of wide ones."""
    monkeypatch.setattr(denoiser, "LARGE", large)  # tensors that are read where they are
    narrow, double = [torch.bfloat16, torch.float16, torch.float64], parameters()
    mixed = [nn.Parameter(p.detach().to(t)) for p, t in zip(double, narrow, strict=True)]
    some, others = (GradientDenoiser(t, L=1.0, window=3) for t in (mixed, double))
    for seed in range(5):
        noisy_gradients(mixed, 1, seed=seed)
        for p, q in zip(mixed, double, strict=True):
            q.data = p.detach().double().clone()
            q.grad = None if p.grad is None else p.grad.double().clone()
        some.denoise()
        others.denoise()
        for p, q in zip(mixed, double, strict=True):
            torch.testing.assert_close(p.grad, None if q.grad is None else q.grad.to(p.dtype))
            p.data.sub_(p.grad, alpha=0.5)  # type: ignore[arg-type]
        a, b = (each.diagnostics().weights for each in (some, others))
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert some.diagnostics().weights[-1] < 1.0
    kept = [state["coco_residual_0"].dtype for state in some.state_dict()["state"].values()]
    assert kept == [torch.float32, torch.float32, torch.float64]


def test_gradients_may_be_wider_than_their_parameters() -> None:
    """Since PyTorch 2.9, where a parameter says so: nothing is rounded to its dtype."""
    narrow: Any = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    if not hasattr(narrow, "grad_dtype"):
        return
    narrow.grad_dtype, wide = torch.float32, nn.Parameter(torch.ones(3))
    some = {p: GradientDenoiser(p, L=0.1, window=3) for p in (narrow, wide)}
    for seed in range(3):
        for p, each in some.items():
            p.data = torch.full_like(p, seed)
            p.grad = torch.randn(3, generator=torch.Generator().manual_seed(seed))
            each.denoise()
        assert torch.equal(narrow.grad, wide.grad)  # type: ignore[arg-type]
    assert some[wide].diagnostics().moved > 0.0


@WINDOWS
def test_complex_parameters_are_pairs_of_real_ones(options: dict[str, Any]) -> None:
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(6, 4, 2, generator=draw, dtype=torch.float64)
    real = [nn.Parameter(start.clone()), nn.Parameter(start[0, :3, 0].clone())]
    empty = nn.Parameter(torch.empty(0, dtype=torch.complex64))  # a shard may be empty
    mixed = [nn.Parameter(torch.view_as_complex(start.clone()).t()), copy.deepcopy(real[1]), empty]
    some, others = (coco(tensors, **options) for tensors in (real, mixed))
    for seed in range(6):
        noisy_gradients(real, 1, seed=seed)
        pairs: Any = real[0].grad
        mixed[0].grad, mixed[1].grad = torch.view_as_complex(pairs).t(), real[1].grad
        some.step()
        others.step()
    torch.testing.assert_close(torch.view_as_complex(real[0].detach()).t(), mixed[0].detach())
    torch.testing.assert_close(real[1].detach(), mixed[1].detach())
    assert some.diagnostics().weights[-1] < 1.0
    point = others.state_dict()["state"][0]["coco_point_0"]
    assert (point.dtype, point.shape) == (torch.complex128, mixed[0].shape)
    fresh = coco(copy.deepcopy(mixed), **options)
    fresh.load_state_dict(others.state_dict())
    assert equal(history(fresh), history(others))


def test_a_step_has_a_noise_variance_of_its_own() -> None:
    """It may be a tensor; contracts/test_stream.py has what it does."""
    ends = list[Any]()
    for variance in (1.0, 3.0, torch.tensor([3.0])):
        tensors, some = begun(3)
        noisy_gradients(tensors, 1, partial(some.step, noise_variance=variance))
        ends.append(tensors)
    assert equal(*ends[1:])
    assert not equal(*ends[:2])
    with pytest.raises(TypeError, match="noise_variance must be a real number"):
        some.step(noise_variance=torch.ones(2))
    some.register_step_pre_hook(lambda _, args, __: (args, {"noise_variance": -1.0}))
    with pytest.raises(ValueError, match="noise_variance must be positive"):
        some.step()
    assert len(some.denoiser) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("used", "skip"), [(2, 0), (6, 1), (6, -1)])
def test_every_device_sums_and_averages_as_the_core_does(
    dtype: torch.dtype, used: int, skip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of close points far from the origin, in double precision, a piece at a time."""
    monkeypatch.setattr(passes, "_BLOCK", 1000)
    D, draw = 20_048, torch.Generator().manual_seed(0)
    centre = torch.randn(D, generator=draw, dtype=torch.float64)
    held = [
        (centre + 1e-3 * torch.randn(*rows, D, generator=draw, dtype=torch.float64)).to(dtype)
        for rows in ((6,), (6,), (), ())
    ]
    found = list[tuple[Any, ...]]()
    for each in (HOST, DEVICE):
        own, sums = [v.clone() for v in held], torch.zeros(3 * used + 2, dtype=torch.float64)
        rows, theta = [each.read(v) for v in own], torch.zeros(D, dtype=dtype)
        each.measure(*rows, 0.5, 1e37, skip, each.read(sums))
        each.commit(
            *rows, 0.5, 3, (np.array([0.1, 0.2, 0.0, 0.3, 0.4]), 0.2, True), each.read(theta)
        )
        found.append((sums.numpy(), theta, *own))
    (core, *written), (device, *others) = found
    scale, eps = core[:-2].max(), torch.finfo(dtype).eps
    # Kernels subtract in double precision, PyTorch in the dtype itself: unbiased rounding.
    rtol, atol = (3e-7, 1e-4 * scale) if dtype is torch.float32 else (1e-12, 1e-12 * scale)
    np.testing.assert_allclose(device[:-2], core[:-2], rtol, atol)
    np.testing.assert_array_equal(device[:-2] == 0.0, core[:-2] == 0.0)
    assert device[-2] == core[-2] == 0.0
    assert device[-1] == pytest.approx(core[-1], rel=1e-6)
    for mine, theirs in zip(written, others, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=8 * eps, atol=30 * eps)
