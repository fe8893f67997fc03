"""The passes over a window on any device, in PyTorch's own operations.

The same functions as in `coco_denoiser.torch._kernels`. Only laying an observation out like a slot
is done tensor by tensor, and nothing waits for the device: the caller reads what is returned, once.
"""

import torch

from coco_denoiser.torch._kernels import Data, Tensors
from coco_denoiser.typing import Float64, Int64
from coco_denoiser.window.history import Plan
from coco_denoiser.window.passes import room

# Entries of a row whose differences are formed at a time, so that temporaries stay small.
_BLOCK = 1 << 20


def hold(tensors: Tensors, places: Int64) -> torch.Tensor:
    """Return tensors side by side, as they lie in a slot of a ring."""
    parts, end, like = [], 0, tensors[0]
    _, offsets, sizes = places.tolist()
    for tensor, offset, size in zip([*tensors, like.new_empty(0)], offsets, sizes, strict=True):
        parts += [like.new_zeros(offset - end), tensor.detach().reshape(-1)]
        end = offset + size
    return torch.cat(parts)


def view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as the passes take it."""
    return tensor


def measure(data: Data, *, centre: float, limit: float, plan: Plan) -> torch.Tensor:
    """Return what `passes.measure` adds up, in float64; write nothing."""
    points, residuals, x, g = data
    used, skip, heir = plan.used, plan.skip, plan.heir
    out = torch.from_numpy(room(used, heir)).to(points.device)
    h = torch.sub(g, x, alpha=centre)
    for new in (x, g, h):
        out[-2] += (~(new.abs() <= limit)).sum()  # NaN fails every comparison
    out[-1] = g.abs().sum(dtype=torch.float64)
    for start in range(0, x.numel(), _BLOCK):
        where = slice(start, start + _BLOCK)
        P, R = points[:used, where], residuals[:used, where]
        if heir >= 0:
            M = mixed(P, R, plan)
            R = R.clone()
            R[heir] = M
            _add(out[3 * used : 6 * used], P - P[heir], R - M)
        _add(out[: 3 * used], P - x[where], R - h[where])
    if skip >= 0:
        out[:-2].view(-1, used)[:, skip] = 0.0
    return out


def mixed(points: torch.Tensor, residuals: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Return the residual of the heir as it is once the oldest is mixed into it."""
    old, heir = plan.skip, plan.heir
    move = residuals[old] - residuals[heir]
    if plan.shift:
        move.sub_(points[old] - points[heir], alpha=plan.shift)
    return residuals[heir] + plan.merger.weight * move


def _add(out: torch.Tensor, dx: torch.Tensor, dh: torch.Tensor) -> None:
    """Add ||dx||^2, <dx, dh> and ||dh||^2 of every row to out, (3 used,)."""
    sums = out.view(3, -1)
    sums[0] += torch.linalg.vector_norm(dx, dim=1, dtype=torch.float64).square()
    sums[1] += (dx * dh).sum(dim=1, dtype=torch.float64)
    sums[2] += torch.linalg.vector_norm(dh, dim=1, dtype=torch.float64).square()


def commit(
    data: Data,
    *,
    centre: float,
    slot: int,
    weights: Float64 | None,
    shift: float,
    out: torch.Tensor,
) -> None:
    """Write an observation into its slot; with weights, its denoised gradient to out."""
    points, residuals, x, g = data
    points[slot] = x
    residuals[slot] = torch.sub(g, x, alpha=centre)
    if weights is None:
        return
    w = torch.from_numpy(weights).to(residuals.device, residuals.dtype, non_blocking=True)
    for start in range(0, x.numel(), _BLOCK):
        where = slice(start, start + _BLOCK)
        P, R = points[: w.numel(), where], residuals[: w.numel(), where]
        move = R - residuals[slot, where]
        if shift:
            move.sub_(P - points[slot, where], alpha=shift)
        torch.addmv(g[where], move.T, w, out=out[where])


def advance(data: Data, *, centre: float, weight: float, shift: float, out: torch.Tensor) -> None:
    """Mix the one slot into an observation, which takes its place; write its gradient to out."""
    points, residuals, x, g = data
    h = torch.sub(g, x, alpha=centre)
    move = residuals[0] - h
    if shift:
        move.sub_(points[0] - x, alpha=shift)
    move.mul_(weight)
    points[0] = x
    residuals[0] = h + move
    torch.add(g, move, out=out)
