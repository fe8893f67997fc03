"""The passes over a window in main memory, at the speed of that memory.

The parameters stay where they are: tensors come as addresses. What is compiled is in
`coco_denoiser.window.passes`; `coco_denoiser.torch._generic` does the same on other devices.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from coco_denoiser.typing import Array, Float64, Int64
from coco_denoiser.window import passes
from coco_denoiser.window.history import Plan

Tensors: TypeAlias = Sequence[torch.Tensor]
# Points and residuals, (K, D) each, a point and a gradient as `hold` returns them.
Data: TypeAlias = tuple[Any, Any, Any, Any]


class Held(NamedTuple):
    """Tensors, kept alive, and where they lie: see `coco_denoiser.window.columns`."""

    tensors: Tensors
    places: Int64


def layout(offsets: Sequence[int], sizes: Sequence[int], end: int) -> Int64:
    """Return places without addresses: where each tensor begins in a slot, and its size."""
    return np.array([[0] * (len(sizes) + 1), [*offsets, end], [*sizes, 0]])


def hold(tensors: Tensors, places: Int64) -> Held:
    """Make contiguous tensors of the ring's dtype ready for the passes."""
    found = places.copy()
    found[0, :-1] = np.fromiter(map(torch.Tensor.data_ptr, tensors), np.int64, len(tensors))
    return Held(tensors, found)


def view(tensor: torch.Tensor) -> Array:
    """Return a tensor as the passes take it: the same memory."""
    return tensor.numpy()


def measure(data: Data, *, centre: float, limit: float, plan: Plan) -> Float64:
    """Return what `passes.measure` adds up, in float64; write nothing."""
    points, residuals, x, g = data
    out = passes.room(plan.used, plan.heir)
    passes.measure(points, residuals, x.places, g.places, centre, limit, plan.numbers, out)
    return out


def commit(
    data: Data,
    *,
    centre: float,
    slot: int,
    weights: Float64 | None,
    shift: float,
    out: Array,
) -> None:
    """Write an observation into its slot; with weights, its denoised gradient to out."""
    points, residuals, x, g = data
    w = passes.by_four(weights, residuals.dtype)
    passes.commit(points, residuals, x.places, g.places, centre, slot, w, shift, out)


def advance(data: Data, *, centre: float, weight: float, shift: float, out: Array) -> None:
    """Mix the one slot into an observation, which takes its place; write its gradient to out."""
    points, residuals, x, g = data
    passes.advance(points[0], residuals[0], x.places, g.places, centre, weight, shift, out)
