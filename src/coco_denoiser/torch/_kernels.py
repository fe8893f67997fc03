"""The two passes over a window that lies in main memory, at the speed of that memory.

`measure` reads the whole window once and writes nothing; `commit` reads the residuals once and
writes the new slot. Between them lies the decision whether the observation may enter at all.

The parameters stay where they are: tensors come as addresses, and a block of each is worked on
while it is in the cache. `coco_denoiser.torch._generic` does the same for other devices.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from coco_denoiser._jit import fragment, kernel, subroutine, sweep
from coco_denoiser.torch import _recursive
from coco_denoiser.torch._pointers import carray, pointer
from coco_denoiser.typing import Array, Float64, Int64

# Entries of a vector worked on at once: long enough for the processor to fetch ahead in 2K
# streams, short enough for three such blocks to stay in the second-level cache.
_BLOCK = 8192

Plain: TypeAlias = Sequence[torch.Tensor | None]


class Held(NamedTuple):
    """Tensors, kept alive, and where they lie; 0 for None."""

    tensors: Plain
    addresses: Int64


def hold(tensors: Plain) -> Held:
    """Make tensors ready for the passes."""
    places = [0 if t is None else t.data_ptr() for t in tensors]
    return Held(tensors, np.array(places, dtype=np.int64))


def measure(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: Held,
    g: Held,
    *,
    offsets: Int64,
    sizes: Int64,
    shares: Float64,
    centre: float,
    count: int,
    skip: int,
) -> torch.Tensor:
    """Return the squared distances of one observation to the slots, summed in float64.

    Args:
        points: (K, D), the ring of points.
        residuals: (K, D), the ring of residuals.
        x: contiguous tensors of the rings' dtype: where the gradient was taken.
        g: its parts, alike; None stands for zeros.
        offsets: where each tensor begins in a slot.
        sizes: how many numbers each has.
        shares: by how much each counts.
        centre: c of the residual g - c x.
        count: slots in use.
        skip: a slot that is left out, since it is about to be overwritten; -1 for none.

    Returns:
        (2K + 2,) in float64: distances of points and of residuals, then a number that is NaN
        if the observation is not finite and 0 otherwise, and one that is 0 if g is zero.
    """
    K = points.shape[0]
    out = np.zeros(2 * K + 2)
    where = x.addresses, g.addresses, offsets, sizes, shares
    p, h = points.numpy(), residuals.numpy()
    if K == count == 1 and skip < 0:
        _recursive.measure(p[0], h[0], *where, centre, out)
    else:
        _measure(p, h, *where, centre, count, skip, out)
    return torch.from_numpy(out)


def commit(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: Held,
    g: Held,
    *,
    offsets: Int64,
    sizes: Int64,
    centre: float,
    slot: int,
    weights: Float64 | None,
    out: torch.Tensor | None,
) -> None:
    """Write an observation into its slot and, if there are weights, its denoised gradient to out.

    With weights w, one a slot, that is g + sum_i w_i (h_i - h), (D,): the row of weights sums
    to 1, and what all residuals have in common cancels before it is rounded.
    """
    rows = residuals.numpy()
    _commit(
        points.numpy(),
        rows,
        x.addresses,
        g.addresses,
        offsets,
        sizes,
        centre,
        slot,
        _by_four(weights, rows.dtype),
        points.numpy()[slot] if out is None else out.numpy(),
    )


def advance(
    points: torch.Tensor,
    residuals: torch.Tensor,
    x: Held,
    g: Held,
    *,
    offsets: Int64,
    sizes: Int64,
    centre: float,
    weight: float,
    out: torch.Tensor,
) -> None:
    """Mix the one slot into an observation, which takes its place; write its gradient to out.

    With h = g - c x and h_0 the slot's residual, that is g + w (h_0 - h), and h + w (h_0 - h)
    is the slot's residual from now.
    """
    _recursive.advance(
        points.numpy()[0],
        residuals.numpy()[0],
        x.addresses,
        g.addresses,
        offsets,
        sizes,
        centre,
        weight,
        out.numpy(),
    )


def _by_four(weights: Float64 | None, dtype: np.dtype[Any]) -> Array:
    """Return weights with zeros up to a multiple of four; none for None.

    In the dtype of the sum: it is formed of differences, so that no digits are lost.
    """
    count = 0 if weights is None else weights.size
    padded = np.zeros(-(-count // 4) * 4, dtype)
    if weights is not None:
        padded[:count] = weights
    return padded


@sweep
def _measure(
    points: Array,
    residuals: Array,
    x: Int64,
    g: Int64,
    offsets: Int64,
    sizes: Int64,
    shares: Float64,
    c: float,
    count: int,
    skip: int,
    out: Float64,
) -> None:
    K = points.shape[0]
    x_block, h_block = np.empty(_BLOCK, points.dtype), np.empty(_BLOCK, points.dtype)
    for t in range(x.size):
        size, share = sizes[t], shares[t]
        x_all = carray(pointer(x[t]), (size,), points.dtype)
        g_all = carray(pointer(g[t]), (size,), points.dtype)
        for start in range(0, size, _BLOCK):
            stop = min(start + _BLOCK, size)
            X, H = x_block[: stop - start], h_block[: stop - start]
            X[:] = x_all[start:stop]
            if g[t] == 0:
                _residual_of_zero(X, c, H)
            else:
                G = g_all[start:stop]
                _residual(X, G, c, H)
                out[2 * K + 1] += _size(G)
            out[2 * K] += _nonfinite(H)
            a, b = offsets[t] + start, offsets[t] + stop
            for i in range(count):
                if i != skip:
                    dx, dh = _apart(points[i, a:b], X, residuals[i, a:b], H)
                    out[i] += share * dx
                    out[K + i] += share * dh


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
    out: Array,
) -> None:
    last = residuals.shape[0] - 1
    for t in range(x.size):
        size = sizes[t]
        x_all = carray(pointer(x[t]), (size,), points.dtype)
        g_all = carray(pointer(g[t]), (size,), points.dtype)
        for start in range(0, size, _BLOCK):
            stop = min(start + _BLOCK, size)
            a, b = offsets[t] + start, offsets[t] + stop
            X, H = points[slot, a:b], residuals[slot, a:b]
            X[:] = x_all[start:stop]
            if g[t] == 0:
                _residual_of_zero(X, c, H)
            else:
                _residual(X, g_all[start:stop], c, H)
            if w.size == 0:
                continue
            theta = out[a:b]
            if g[t] == 0:
                theta[:] = 0.0
            else:
                theta[:] = g_all[start:stop]
            for i in range(0, w.size, 4):
                # Four slots at a time: a quarter of the passes over the sum. Beyond the last
                # slot there are weights of zero only.
                _add(residuals, i, last, a, b, w, H, theta)


@subroutine
def _residual(x: Array, g: Array, c: float, h: Array) -> None:
    for j in range(h.size):
        h[j] = g[j] - c * x[j]


@subroutine
def _residual_of_zero(x: Array, c: float, h: Array) -> None:
    for j in range(h.size):
        h[j] = -c * x[j]


@fragment
def _size(g: Array) -> float:
    total = 0.0
    for j in range(g.size):
        total += abs(g[j])
    return total


@fragment
def _nonfinite(h: Array) -> float:
    """Return NaN if an entry is not finite, else 0."""
    total = 0.0
    for j in range(h.size):
        total += h[j] * 0.0
    return total


@fragment
def _apart(p: Array, x: Array, r: Array, h: Array) -> tuple[float, float]:
    """Return ||p - x||^2 and ||r - h||^2: two streams at once, for the sake of the prefetcher."""
    dx, dh = 0.0, 0.0
    for j in range(x.size):
        d = np.float64(p[j]) - np.float64(x[j])
        e = np.float64(r[j]) - np.float64(h[j])
        dx += d * d
        dh += e * e
    return dx, dh


@subroutine
def _add(
    residuals: Array, i: int, last: int, a: int, b: int, w: Array, h: Array, theta: Array
) -> None:
    p, q = residuals[i, a:b], residuals[min(i + 1, last), a:b]
    r, s = residuals[min(i + 2, last), a:b], residuals[min(i + 3, last), a:b]
    t, u, v, x = w[i], w[i + 1], w[i + 2], w[i + 3]
    for j in range(theta.size):
        H = h[j]
        theta[j] += (t * (p[j] - H) + u * (q[j] - H)) + (v * (r[j] - H) + x * (s[j] - H))
