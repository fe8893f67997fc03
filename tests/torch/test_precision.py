"""Mixed precision, double, complex: nothing scaled, infinite or NaN enters the window."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coco_denoiser.torch import CocoOptimizer, GradientDenoiser
from tests.torch.problems import copies, equal, noisy_gradients, parameters


def coco(tensors: Any, **options: Any) -> CocoOptimizer:
    fused = options.pop("fused", None)
    inner = torch.optim.Adam(tensors, lr=0.1, fused=fused)
    return CocoOptimizer(inner, **{"L": 1.0, "window": 4, **options})


def history(optimizer: CocoOptimizer, prefix: str = "") -> list[torch.Tensor]:
    """Return a copy of everything in the state, or of the window alone."""
    state = optimizer.state_dict()
    entries = [pair for entries in state["state"].values() for pair in entries.items()]
    tensors = [value for name, value in entries if name.startswith(prefix)]
    group = state["param_groups"][0]
    tables = [v for n, v in group.items() if n.startswith("coco_") and not isinstance(v, str)]
    return [torch.as_tensor(v).clone() for v in [*tensors, *tables]]


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_training_is_unscaled_training(fused: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(20, 6, 5), torch.randn(20, 6, 1)
    layers = [nn.Linear(5, 1) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    optimizers = [coco(layer.parameters(), fused=fused) for layer in layers]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for a, b in zip(x, y, strict=True):
        for layer, optimizer, scaled in zip(layers, optimizers, (False, True), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(layer(a), b)
            if scaled:
                torch.autograd.backward(scaler.scale(loss))
                scaler.step(optimizer)
                scaler.update()
            else:
                torch.autograd.backward(loss)
                optimizer.step()
    assert optimizers[0].diagnostics().weights[-1] < 1.0
    # A power of two scales exactly, so even the last bits agree.
    assert equal(list(layers[0].parameters()), list(layers[1].parameters()))
    assert all(map(torch.equal, history(optimizers[0]), history(optimizers[1])))


@pytest.mark.parametrize("fused", [False, True])
def test_overflow_under_a_scaler_leaves_the_window_untouched(fused: bool) -> None:
    tensors = parameters(torch.float32)
    optimizer = coco(tensors, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    scaler.scale(torch.zeros(()))
    noisy_gradients(tensors, 3, optimizer.step)
    before, values = history(optimizer), [p.detach().clone() for p in tensors]
    for p in tensors:
        p.grad = torch.full_like(p, torch.inf)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**9
    assert all(map(torch.equal, history(optimizer), before))
    assert equal(tensors, values)


def test_attributes_that_change_the_scaler_are_not_forwarded() -> None:
    optimizer = coco(parameters(torch.float32), fused=True)
    assert getattr(optimizer.wrapped, "_step_supports_amp_scaling", False)
    assert not getattr(optimizer, "_step_supports_amp_scaling", False)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_without_a_scaler_such_an_observation_is_skipped_or_refused(value: float) -> None:
    tensors = parameters()
    optimizer, used = coco(tensors), list[Any]()
    noisy_gradients(tensors, 5, optimizer.step)
    optimizer.wrapped.register_step_pre_hook(lambda *_: used.extend(p.grad for p in tensors))
    noisy_gradients(tensors, 1, lambda: None)
    gradient = tensors[1].grad
    assert gradient is not None
    gradient[1, 2] = value
    before, values = history(optimizer, "coco_"), [p.detach().clone() for p in tensors]
    optimizer.denoiser.nonfinite = "raise"
    with pytest.raises(ValueError, match="infinity or NaN"):
        optimizer.step()
    assert equal(tensors, values)
    optimizer.denoiser.nonfinite = "skip"
    optimizer.step()
    assert used[1] is gradient  # passed on as it is
    assert all(map(torch.equal, history(optimizer, "coco_"), before))
    assert optimizer.diagnostics().skipped == 2
    with pytest.raises(ValueError, match="infinity or NaN"):
        GradientDenoiser(tensors, L=1.0).denoise()
    assert not GradientDenoiser(tensors, L=1.0, nonfinite="skip").denoise()


def test_bfloat16_parameters_have_a_history_in_float32() -> None:
    tensors = parameters(torch.bfloat16)
    optimizer = coco(tensors, state_dtype=torch.float32)
    wide = [nn.Parameter(p.detach().float()) for p in tensors]
    reference = GradientDenoiser(wide, L=1.0, window=4)
    for seed in range(8):
        noisy_gradients(tensors, 1, lambda: None, seed=seed)
        for p, q in zip(tensors, wide, strict=True):
            q.data = p.detach().float()
            q.grad = None if p.grad is None else p.grad.float()
        optimizer.step()
        reference.denoise()
        assert np.array_equal(optimizer.diagnostics().weights, reference.diagnostics().weights)
    assert optimizer.diagnostics().weights[-1] < 1.0
    state = optimizer.state_dict()["state"][0]
    assert state["coco_point_0"].dtype == state["coco_residual_0"].dtype == torch.float32
    assert state["coco_point_0"].shape == tensors[0].shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("state_dtype", [None, torch.float32, torch.float64])
def test_every_dtype_denoises(dtype: torch.dtype, state_dtype: torch.dtype | None) -> None:
    tensors = parameters(dtype)
    optimizer = coco(tensors, state_dtype=state_dtype)
    noisy_gradients(tensors, 5, optimizer.step)
    assert optimizer.diagnostics().weights[-1] < 1.0
    wanted = state_dtype or (torch.float64 if dtype == torch.float64 else torch.float32)
    assert optimizer.state_dict()["state"][0]["coco_residual_0"].dtype == wanted


def test_mixed_dtypes_are_one_point() -> None:
    mixed = parameters()
    mixed[1] = nn.Parameter(mixed[1].detach().float().clone())
    double = [nn.Parameter(p.detach().double().clone()) for p in mixed]
    some, others = (GradientDenoiser(t, L=1.0, window=3) for t in (mixed, double))
    for seed in range(5):
        noisy_gradients(mixed, 1, lambda: None, seed=seed)
        for p, q in zip(mixed, double, strict=True):
            q.grad = None if p.grad is None else p.grad.double().clone()
        some.denoise()
        others.denoise()
        with torch.no_grad():
            for p, q in zip(mixed, double, strict=True):
                assert p.grad is not None
                assert q.grad is not None
                torch.testing.assert_close(p.grad.double(), q.grad, rtol=1e-5, atol=1e-6)
                p.sub_(p.grad, alpha=0.5)
                q.copy_(p)
    np.testing.assert_allclose(some.diagnostics().weights, others.diagnostics().weights, atol=1e-6)


def test_complex_parameters_are_pairs_of_real_ones() -> None:
    real = parameters()
    complex_ = [nn.Parameter(torch.view_as_complex(p.detach().clone().view(-1, 2))) for p in real]
    mixed = [*complex_[:2], nn.Parameter(real[2].detach().clone())]
    some = CocoOptimizer(torch.optim.SGD(real, lr=0.1), L=1.0, window=4)
    others = CocoOptimizer(torch.optim.SGD(mixed, lr=0.1), L=1.0, window=4)
    for seed in range(6):
        noisy_gradients(real, 1, lambda: None, seed=seed)
        for p, q in zip(real, mixed, strict=True):
            assert p.grad is not None
            g = p.grad.clone()
            q.grad = torch.view_as_complex(g.view(-1, 2)) if q.is_complex() else g
        some.step()
        others.step()
    flat = [torch.view_as_real(q.detach()) if q.is_complex() else q.detach() for q in mixed]
    for p, value in zip(real, flat, strict=True):
        torch.testing.assert_close(p.detach(), value.view(p.shape))
    assert some.diagnostics().weights[-1] < 1.0
    state = others.state_dict()["state"][0]
    assert state["coco_point_0"].dtype == torch.complex128
    assert state["coco_point_0"].shape == mixed[0].shape
    again = copies(mixed)
    fresh = CocoOptimizer(torch.optim.SGD(again, lr=0.1), L=1.0, window=4)
    fresh.load_state_dict(others.state_dict())
    assert all(map(torch.equal, history(fresh), history(others)))


def test_memory_is_what_the_docs_say() -> None:
    for K in (8, 16, 32):
        p = nn.Parameter(torch.ones(161, dtype=torch.bfloat16))
        denoiser = GradientDenoiser(p, L=1.0, window=K)
        p.grad = torch.ones_like(p)
        denoiser.denoise()
        assert denoiser.diagnostics().nbytes == 161 * 8 * K


def test_a_step_has_a_noise_variance_of_its_own() -> None:
    """Two gradients at one point are averaged by their precisions."""
    p: Any = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = CocoOptimizer(torch.optim.SGD([p], lr=0.0), L=1.0, window=4)
    used: list[Any] = []
    optimizer.wrapped.register_step_pre_hook(lambda *_: used.append(p.grad.clone()))
    for value, variance in ((1.0, 1.0), (9.0, 3.0)):
        p.grad = torch.full_like(p, value)
        optimizer.step(noise_variance=variance)
    np.testing.assert_allclose(used[-1], (1.0 + 9.0 / 3.0) / (1.0 + 1.0 / 3.0), rtol=1e-9)
    with pytest.raises(ValueError, match="noise_variance must be positive"):
        optimizer.step(noise_variance=-1.0)
    assert optimizer.diagnostics().observations == 2
