"""The passes over a window in main memory, at the speed of that memory.

The parameters stay where they are: tensors come as addresses. What is done to a block is in
`coco_denoiser.window.passes`; `coco_denoiser.torch._generic` does the same on other devices.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from coco_denoiser._jit import kernel, sweep
from coco_denoiser.torch._pointers import carray, pointer
from coco_denoiser.typing import Array, Float64, Int64
from coco_denoiser.window import passes
from coco_denoiser.window.history import Plan
from coco_denoiser.window.passes import BLOCK

Plain: TypeAlias = Sequence[torch.Tensor | None]


class Layout(NamedTuple):
    """Where each tensor begins in a slot, and how many numbers it has there."""

    offsets: Int64
    sizes: Int64


# Points and residuals, (K, D) each, a point and a gradient as `hold` returns them, their layout.
Data: TypeAlias = tuple[Any, Any, Any, Any, Layout]


class Held(NamedTuple):
    """Tensors, kept alive, and where they lie; 0 for None."""

    tensors: Plain
    addresses: Int64


def hold(tensors: Plain, layout: Layout, like: torch.Tensor) -> Held:
    """Make contiguous tensors of the ring's dtype ready for the passes; None stands for zeros."""
    del layout, like
    places = (0 if t is None else t.data_ptr() for t in tensors)
    return Held(tensors, np.fromiter(places, np.int64, len(tensors)))


def view(tensor: torch.Tensor) -> Array:
    """Return a tensor as the passes take it: the same memory."""
    return tensor.numpy()


def measure(data: Data, *, centre: float, limit: float, plan: Plan) -> Float64:
    """Return what `passes.measure` adds up, in float64; write nothing."""
    points, residuals, x, g, layout = data
    out = passes.room(plan.used, plan.heir)
    where = x.addresses, g.addresses, *layout
    _measure(points, residuals, *where, centre, limit, plan.numbers, out)
    return out


def commit(
    data: Data,
    *,
    centre: float,
    slot: int,
    weights: Float64 | None,
    shift: float,
    out: Array | None,
) -> None:
    """Write an observation into its slot; with weights, its denoised gradient to out."""
    points, residuals, x, g, layout = data
    where, w = (x.addresses, g.addresses, *layout), passes.by_four(weights, residuals.dtype)
    theta = residuals[slot] if out is None else out
    _commit(points, residuals, *where, centre, slot, w, shift, theta)


def advance(data: Data, *, centre: float, weight: float, shift: float, out: Array) -> None:
    """Mix the one slot into an observation, which takes its place; write its gradient to out."""
    points, residuals, x, g, layout = data
    where = x.addresses, g.addresses, *layout
    _advance(points[0], residuals[0], *where, centre, weight, shift, out)


@sweep
def _measure(
    points: Array,
    residuals: Array,
    x: Int64,
    g: Int64,
    offsets: Int64,
    sizes: Int64,
    c: float,
    limit: float,
    how: passes.Numbers,
    out: Float64,
) -> None:
    new, other, mixed = passes.blocks(points.dtype, BLOCK)
    zeros = np.zeros(BLOCK, points.dtype)
    for t in range(x.size):
        size, first = sizes[t], offsets[t]
        x_all = carray(pointer(x[t]), (size,), points.dtype)
        g_all = carray(pointer(g[t]), (size,), points.dtype)
        for start in range(0, size, BLOCK):
            stop = min(start + BLOCK, size)
            passes.measure_block(
                points,
                residuals,
                first + start,
                first + stop,
                x_all[start:stop],
                zeros[: stop - start] if g[t] == 0 else g_all[start:stop],
                c,
                limit,
                how,
                new,
                other,
                mixed,
                out,
            )


@kernel
def _commit(
    points: Array,
    residuals: Array,
    x: Int64,
    g: Int64,
    offsets: Int64,
    sizes: Int64,
    c: float,
    slot: int,
    w: Array,
    shift: float,
    out: Array,
) -> None:
    zeros = np.zeros(BLOCK, points.dtype)
    for t in range(x.size):
        size, first = sizes[t], offsets[t]
        x_all = carray(pointer(x[t]), (size,), points.dtype)
        g_all = carray(pointer(g[t]), (size,), points.dtype)
        for start in range(0, size, BLOCK):
            stop = min(start + BLOCK, size)
            passes.commit_block(
                points,
                residuals,
                first + start,
                first + stop,
                x_all[start:stop],
                zeros[: stop - start] if g[t] == 0 else g_all[start:stop],
                c,
                slot,
                w,
                shift,
                out,
            )


@kernel
def _advance(
    point: Array,
    residual: Array,
    x: Int64,
    g: Int64,
    offsets: Int64,
    sizes: Int64,
    c: float,
    weight: float,
    shift: float,
    out: Array,
) -> None:
    for t in range(x.size):
        size, a = sizes[t], offsets[t]
        p, r, theta = point[a : a + size], residual[a : a + size], out[a : a + size]
        x_all = carray(pointer(x[t]), (size,), point.dtype)
        if g[t] == 0:
            theta[:] = 0.0
            passes.advance(p, r, x_all, theta, c, weight, shift, theta)
        else:
            g_all = carray(pointer(g[t]), (size,), point.dtype)
            passes.advance(p, r, x_all, g_all, c, weight, shift, theta)
