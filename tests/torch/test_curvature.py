"""L="auto" in PyTorch is that of NumPy, and Hessian bounds are those of the Hessian."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from coco_denoiser import Denoiser
from coco_denoiser.problems import Quadratic
from coco_denoiser.torch import CocoOptimizer, hessian_bounds
from tests.torch.problems import copies, equal, noisy_gradients, parameters


@pytest.mark.parametrize("maximize", [False, True])
def test_a_stream_is_estimated_as_in_numpy(maximize: bool) -> None:
    problem = Quadratic.spaced(10, noise_std=10.0)
    rng, denoiser = np.random.default_rng(0), Denoiser("auto", 8)
    tensor = nn.Parameter(torch.full((2, 5), 100.0, dtype=torch.float64))
    sgd = torch.optim.SGD([tensor], lr=1.0, maximize=maximize)
    optimizer = CocoOptimizer(sgd, L="auto", window=8)
    found = set()
    for _ in range(40):
        x = tensor.detach().numpy().reshape(-1).copy()
        g = problem.oracle(x, rng)
        tensor.grad = torch.from_numpy((-g if maximize else g).reshape(2, 5))
        expected = x - denoiser(x, g)
        optimizer.step()
        np.testing.assert_allclose(tensor.detach().numpy().reshape(-1), expected, atol=1e-6)
        assert pytest.approx(denoiser.L) == optimizer.diagnostics().L
        found.add(denoiser.L)
    assert np.isinf(max(found))
    assert 1.0 / 3.0 < min(found) < 10.0
    optimizer.reset()
    assert np.isinf(optimizer.diagnostics().L)


@pytest.mark.parametrize("saved_after", [0, 3, 12])
def test_a_restored_estimate_goes_on_bit_for_bit(saved_after: int) -> None:
    tensors = parameters()

    def coco(members: list[nn.Parameter], **options: Any) -> CocoOptimizer:
        inner = torch.optim.SGD(members, lr=0.5)
        return CocoOptimizer(inner, **{"L": "auto", "window": 4, **options})

    optimizer = coco(tensors)
    noisy_gradients(tensors, saved_after, optimizer.step)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    others = copies(tensors)
    restored = coco(others)
    restored.load_state_dict(state)
    for members, steps in ((tensors, optimizer.step), (others, restored.step)):
        noisy_gradients(members, 20, steps, seed=1)
    assert equal(tensors, others)
    assert np.isfinite(optimizer.diagnostics().L)
    with pytest.raises(ValueError, match="Create it with the same L"):
        coco(others, L=1.0).load_state_dict(state)
    with pytest.raises(ValueError, match=r"L must be a number, .* or None, got 'large'"):
        coco(others, L="large")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hessian_bounds_are_those_of_the_whole_hessian(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)
    inputs, labels = torch.randn(50, 6, dtype=dtype), torch.randn(50, 1, dtype=dtype)
    names, members = zip(*model.named_parameters(), strict=True)
    flat = nn.utils.parameters_to_vector(members).detach()

    def loss_at(x: torch.Tensor) -> torch.Tensor:
        parts = torch.split(x, [p.numel() for p in members])
        values = {n: v.view_as(p) for n, v, p in zip(names, parts, members, strict=True)}
        return nn.functional.mse_loss(torch.func.functional_call(model, values, inputs), labels)

    whole: Any = torch.autograd.functional.hessian(loss_at, flat)  # type: ignore[no-untyped-call]
    eigenvalues = torch.linalg.eigvalsh(whole.double())
    low, high = eigenvalues[0].item(), eigenvalues[-1].item()
    L, mu = hessian_bounds(lambda: nn.functional.mse_loss(model(inputs), labels), members)
    assert all(p.grad is None for p in members)
    assert mu <= low + 1e-5 < high - 1e-5 <= L
    assert L - high <= 0.15 * (high - low)


def test_a_linear_loss_and_unused_parameters_have_no_curvature() -> None:
    used, unused, frozen = (nn.Parameter(torch.ones(3)) for _ in range(3))
    frozen.requires_grad_(False)
    assert hessian_bounds(used.sum, [used, unused, frozen]) == (0.0, 0.0)
    L, mu = hessian_bounds(lambda: used.square().sum(), [used, unused, frozen])
    assert (L, mu) == pytest.approx((2.0, 0.0), abs=1e-5)
