"""Small sets of parameters, and steps with noisy gradients of a quadratic."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


def parameters(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    """Return three matrices: the one shape that every optimizer takes."""
    draw = torch.Generator().manual_seed(0)
    return [
        nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype))
        for shape in ((3, 4), (2, 5), (1, 2))
    ]


def copies(tensors: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Return parameters with the same values."""
    return [nn.Parameter(p.detach().clone()) for p in tensors]


def equal(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Say whether two sets of parameters agree in every bit."""
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def noisy_gradients(
    tensors: Sequence[nn.Parameter],
    steps: int,
    step: Callable[[], Any],
    *,
    seed: int = 0,
    noise: float = 1.0,
) -> None:
    """Take steps on 1/2 ||x||^2, whose gradient is x, with Gaussian noise."""
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in tensors:
            size = p.shape
            extra = noise * torch.randn(size, generator=draw, dtype=torch.float64)
            p.grad = (p.detach() + extra).to(p.dtype)
        step()
