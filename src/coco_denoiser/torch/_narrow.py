"""The passes over a window that is stored in fewer digits than it is computed with.

A point is kept as its difference from a reference: what matters is how far points are apart, and
little of that would be left if each were rounded by itself. The reference moves to every K-th
point, the one written to slot 0, so no difference is longer than the path of K steps. Those written
before it moved are corrected by its last move, which is rounded like them: what is stored never
changes, and all distances are between stored points.

Gradients are kept as they are, not as residuals g - c x, which would move with the reference.
"""

from collections.abc import Iterator
from typing import Any

import torch

from coco_denoiser.torch import _generic, _kernels
from coco_denoiser.torch._kernels import Data, layout
from coco_denoiser.typing import Float64
from coco_denoiser.window.history import Plan
from coco_denoiser.window.passes import room

hold, view = _generic.hold, _generic.view


def wide(device: torch.device) -> tuple[Any, int]:
    """Return the module that does the passes over widened blocks, and their length.

    In main memory a block has to stay in the cache; elsewhere there should be few of them.
    """
    return (_kernels, 1 << 14) if device.type == "cpu" else (_generic, 1 << 20)


def _part(passes: Any, row: torch.Tensor) -> Any:
    """Return a part of an observation as the passes take it."""
    return passes.hold([row], layout([0], [row.numel()], row.numel()))


class Points:
    """The points of a narrow window.

    Args:
        rows: (K, D), their differences from the reference.
        reference: (D,), where they are measured from, in the dtype that is computed with.

    Attributes:
        move: the last move of the reference.
    """

    def __init__(self, rows: torch.Tensor, reference: torch.Tensor) -> None:
        self.rows = rows
        # A point that is not finite is refused; as a reference, it would spoil all others.
        self.reference = reference.nan_to_num(0.0, 0.0, 0.0)
        self.move = torch.zeros_like(rows[0])

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.rows.device

    def follow(self, x: torch.Tensor) -> torch.Tensor:
        """Move the reference to a point, given as a difference; return the new difference."""
        self.move.copy_(x)
        self.reference += self.move
        return x - self.move


def _widened(
    points: Points, gradients: torch.Tensor, centre: float, used: int, older: int
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yield blocks of columns, with points and residuals of the first slots.

    Those from `older` on were written before the reference moved.
    """
    dtype, block = points.reference.dtype, wide(points.device)[1]
    for start in range(0, gradients.shape[1], block):
        where = slice(start, start + block)
        P = points.rows[:used, where].to(dtype)
        P[older:] -= points.move[where].to(dtype)
        yield where, P, gradients[:used, where].to(dtype).sub_(P, alpha=centre)


def _older(slot: int, used: int) -> int:
    """Return the first slot from before the reference moved, if this one is written next."""
    return slot if slot > 0 else used


def measure(data: Data, *, centre: float, limit: float, plan: Plan) -> torch.Tensor:
    """Return what `passes.measure` adds up, of the observation as it would be stored."""
    points, gradients, x, g = data
    used, dtype, passes = plan.used, x.dtype, wide(points.device)[0]
    out = torch.from_numpy(room(used, plan.heir)).to(points.device)
    older = _older(plan.skip if plan.skip >= 0 else used, used)
    for where, P, R in _widened(points, gradients, centre, used, older):
        new = (v[where].to(gradients.dtype).to(dtype) for v in (x, g))
        block = passes.view(P), passes.view(R), *(_part(passes, v) for v in new)
        found = passes.measure(block, centre=centre, limit=limit, plan=plan)
        out += torch.as_tensor(found)
    return out


def mix(points: Points, gradients: torch.Tensor, centre: float, plan: Plan) -> None:
    """Mix the slot that is about to be overwritten into its heir."""
    older = _older(plan.skip, plan.used)
    for where, P, R in _widened(points, gradients, centre, plan.used, older):
        found = _generic.mixed(P, R, plan)
        gradients[plan.heir, where] = found.add_(P[plan.heir], alpha=centre)


def commit(
    data: Data, *, slot: int, centre: float, weights: Float64 | None, **options: Any
) -> None:
    """Write an observation into its slot; with weights, its denoised gradient to out."""
    points, gradients, x, g = data
    points.rows[slot], gradients[slot] = x, g
    if slot == 0:
        x = points.follow(x)
        points.rows[0] = 0.0
    if weights is None:
        return
    out, passes = options.pop("out"), wide(points.device)[0]
    for where, P, R in _widened(points, gradients, centre, weights.size, slot + 1):
        block = passes.view(P), passes.view(R), *(_part(passes, v[where]) for v in (x, g))
        new = {"slot": slot, "centre": centre, "weights": weights, "out": passes.view(out[where])}
        passes.commit(block, **new, **options)
