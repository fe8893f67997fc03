"""The two passes over vectors, for any device: the core's in main memory, PyTorch's elsewhere."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from coco_denoiser._core import kernels
from coco_denoiser.typing import Float64

Row: TypeAlias = Any  # a tensor as the passes of its device take it
# Weights of the first slots, a shift, and whether the average is stored: see `kernels.commit`.
Average: TypeAlias = tuple[Float64, float, bool]
# Entries of a row whose differences are formed at a time, so that temporaries stay small.
_BLOCK = 1 << 20


class Passes(NamedTuple):
    """The two passes over vectors on a device; the core says what they do.

    Attributes:
        read: returns a tensor without a graph, contiguous, as they take it.
        measure: adds up how an observation relates to the slots in use.
        commit: writes an observation, and its denoised gradient.
    """

    read: Callable[[torch.Tensor], Row]
    measure: Callable[..., None]
    commit: Callable[..., None]


def measure(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: torch.Tensor,
    g: torch.Tensor,
    centre: float,
    limit: float,
    skip: int,
    out: torch.Tensor,
) -> None:
    """Do in PyTorch's own operations what `kernels.measure` does, without waiting for a device."""
    sums, used = out[:-2].view(3, -1), out.numel() // 3
    h = torch.sub(g, x, alpha=centre)
    for new in (x, g, h):
        out[-2] += (~(new.abs() <= limit)).sum()  # NaN fails every comparison
    out[-1] += g.abs().sum(dtype=torch.float64)
    for start in range(0, x.numel(), _BLOCK):
        where = slice(start, start + _BLOCK)
        dx, dh = points[:used, where] - x[where], residuals[:used, where] - h[where]
        sums[0] += torch.linalg.vector_norm(dx, dim=1, dtype=torch.float64).square()
        sums[1] += (dx * dh).sum(dim=1, dtype=torch.float64)
        sums[2] += torch.linalg.vector_norm(dh, dim=1, dtype=torch.float64).square()
    if skip >= 0:
        sums[:, skip] = 0.0


def commit(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: torch.Tensor,
    g: torch.Tensor,
    centre: float,
    slot: int,
    average: Average | None,
    out: torch.Tensor,
) -> None:
    """Do in PyTorch's own operations what `kernels.commit` does."""
    h = torch.sub(g, x, alpha=centre)
    out.copy_(g)
    if average is not None:
        weights, shift, merged = average
        w = torch.from_numpy(weights).to(x.device, residuals.dtype, non_blocking=True, copy=True)
        if not merged:
            w[slot] = 0.0
        for start in range(0, x.numel(), _BLOCK):
            where = slice(start, start + _BLOCK)
            move = residuals[: w.numel(), where] - h[where]
            if shift:
                move.sub_(points[: w.numel(), where] - x[where], alpha=shift)
            torch.addmv(g[where], move.T, w, out=out[where])
        if merged:
            h = torch.sub(out, x, alpha=centre)
    points[slot] = x
    residuals[slot] = h


HOST = Passes(torch.Tensor.numpy, kernels.measure, kernels.commit)
DEVICE = Passes(torch.Tensor.detach, measure, commit)
PASSES = {"cpu": HOST}  # by the type of a device; elsewhere `DEVICE`
