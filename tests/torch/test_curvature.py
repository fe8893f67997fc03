"""Hessian bounds are those of the Hessian."""

from typing import Any

import pytest
import torch
from torch import nn

from coco_denoiser.torch import hessian_bounds


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])  # as in a step that asks for L
def test_hessian_bounds_are_those_of_the_whole_hessian(dtype: torch.dtype, mode: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    A = torch.randn(60, 60, generator=draw, dtype=dtype)
    shapes = (30, (2, 15), 3, 3)
    members = [nn.Parameter(torch.randn(n, generator=draw, dtype=dtype)) for n in shapes]
    members[3].requires_grad_(False)  # and the one before is not used

    def loss() -> torch.Tensor:
        x = torch.cat([p.flatten() for p in members[:2]])
        return x.cos().sum() + 0.5 * x @ (A + A.T) @ x

    x = torch.cat([p.detach().flatten() for p in members[:2]])
    hessian = torch.zeros(63, 63, dtype=torch.float64)
    hessian[:60, :60] = A + A.T - x.cos().diag()
    eigenvalues = torch.linalg.eigvalsh(hessian)
    low, high = eigenvalues[0].item(), eigenvalues[-1].item()
    with mode():
        L, mu = hessian_bounds(loss, members)
        assert hessian_bounds(members[0].sum, members) == (0.0, 0.0)
    assert all(p.grad is None for p in members)
    assert mu <= low + 1e-5 < high - 1e-5 <= L
    assert L - high <= 0.15 * (high - low)
