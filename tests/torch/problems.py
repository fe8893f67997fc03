"""Small sets of parameters, steps with noisy gradients of a quadratic, and states in files."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from coco_denoiser.torch import CocoOptimizer
from coco_denoiser.typing import Float64


def parameters(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    """Return three matrices: the one shape that every optimizer takes."""
    draw = torch.Generator().manual_seed(0)
    return [
        nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype))
        for shape in ((3, 4), (2, 5), (1, 2))
    ]


def coco(inner: Any, **options: Any) -> CocoOptimizer:
    """Wrap an optimizer, or plain SGD on some parameters."""
    if not isinstance(inner, torch.optim.Optimizer):
        inner = torch.optim.SGD(inner, lr=0.1)
    bound = {} if "model" in options else {"L": 1.0}
    return CocoOptimizer(inner, **{"window": 4, **bound, **options})


def adam(tensors: Any, **options: Any) -> CocoOptimizer:
    """Wrap Adam, which has a state of its own."""
    return coco(torch.optim.Adam(tensors, lr=0.1), **options)


def equal(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return whether two sets of tensors agree in every bit."""
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def flat(tensors: Sequence[nn.Parameter], *, gradients: bool = False) -> Float64:
    """Return parameters, or their gradients, as one vector."""
    parts: list[Any] = [p.grad if gradients else p.detach() for p in tensors]
    return np.concatenate([part.numpy(force=True).ravel() for part in parts])


def saved(thing: Any) -> dict[str, Any]:
    """Return the state of something as it comes out of a file."""
    file = io.BytesIO()
    torch.save(thing.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def history(optimizer: Any, prefix: str = "") -> list[torch.Tensor]:
    """Return a copy of everything in the state, or of the window alone."""
    state = optimizer.state_dict()
    entries = [pair for entries in state["state"].values() for pair in entries.items()]
    tensors = [value for name, value in entries if name.startswith(prefix)]
    group = state["param_groups"][0]
    tables = [v for n, v in group.items() if n.startswith("coco_") and not isinstance(v, str)]
    return [torch.as_tensor(v).clone() for v in [*tensors, *tables]]


def noisy_gradients(
    tensors: Sequence[nn.Parameter],
    steps: int,
    step: Callable[[], Any] = lambda: None,
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


def begun(
    steps: int, wrap: Callable[..., CocoOptimizer] = coco, **options: Any
) -> tuple[list[nn.Parameter], CocoOptimizer]:
    """Return parameters and their optimizer after some steps."""
    tensors = parameters()
    optimizer = wrap(tensors, **options)
    noisy_gradients(tensors, steps, optimizer.step)
    return tensors, optimizer


def alike(
    some: Sequence[nn.Parameter],
    one: Any,
    others: Sequence[nn.Parameter],
    other: Any,
    steps: int,
    *,
    seed: int = 5,
) -> bool:
    """Take the same steps with two optimizers; return whether they end in the same bits."""
    noisy_gradients(some, steps, one.step, seed=seed)
    noisy_gradients(others, steps, other.step, seed=seed)
    return equal(some, others)
