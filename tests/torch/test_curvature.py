"""Hessian bounds are those of the Hessian."""

from typing import Any

import pytest
import torch
from torch import nn

from coco_denoiser.torch import hessian_bounds


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
    for mode in (torch.enable_grad(), torch.no_grad()):  # the latter in a step that asks for L
        with mode:
            L, mu = hessian_bounds(lambda: used.square().sum(), [used, unused, frozen])
        assert (L, mu) == pytest.approx((2.0, 0.0), abs=1e-5)
