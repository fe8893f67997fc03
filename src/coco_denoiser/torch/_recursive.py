"""The two passes over a window of two that folds, which is one slot, in main memory.

With a single slot nothing is read twice in a pass, so that each is one loop: at this size the
blocks of `coco_denoiser.torch._kernels` would cost more than they save.
"""

from typing import Any

import numpy as np

from coco_denoiser import folding
from coco_denoiser._jit import fragment, kernel, sweep
from coco_denoiser.torch._pointers import carray, pointer
from coco_denoiser.typing import Array, Float64, Int64

_BLOCK = 8192  # zeros at hand, in place of a gradient that is None
_LARGE = 3.4e38  # what adds up to less is finite in float32 too, and needs no second look


@sweep
def measure(
    point: Array,
    residual: Array,
    x: Int64,
    g: Int64,
    offsets: Int64,
    sizes: Int64,
    shares: Float64,
    c: float,
    out: Float64,
) -> None:
    """Add to out, (4,), what `_kernels.measure` returns for one slot."""
    zeros = np.zeros(_BLOCK, point.dtype)
    for t in range(x.size):
        size, share = sizes[t], shares[t]
        x_all = carray(pointer(x[t]), (size,), point.dtype)
        g_all = carray(pointer(g[t]), (size,), point.dtype)
        for start in range(0, size, _BLOCK):
            stop = min(start + _BLOCK, size)
            X, G = x_all[start:stop], zeros[: stop - start] if g[t] == 0 else g_all[start:stop]
            a, b = offsets[t] + start, offsets[t] + stop
            dx, dh, reach, total = _apart(point[a:b], residual[a:b], X, G, c)
            if not reach < _LARGE:
                out[2] += _nonfinite(X, G, c)
            out[0] += share * dx
            out[1] += share * dh
            out[3] += total


@fragment
def _apart(p: Array, r: Array, x: Array, g: Array, c: float) -> tuple[float, float, float, float]:
    """Return ||p - x||^2, ||r - h||^2, and the sums of |h| and |g|, with h = g - c x."""
    dx, dh, reach, total = 0.0, 0.0, 0.0, 0.0
    for j in range(x.size):
        X, G = np.float64(x[j]), np.float64(g[j])
        h = G - c * X
        u, v = np.float64(p[j]) - X, np.float64(r[j]) - h
        dx += u * u
        dh += v * v
        reach += abs(h)
        total += abs(G)
    return dx, dh, reach, total


@fragment
def _nonfinite(x: Array, g: Array, c: float) -> float:
    """Return NaN if an entry of g - c x is not finite once it is rounded to be stored, else 0."""
    total = 0.0
    for j in range(x.size):
        total += np.float64(x.dtype.type(g[j] - c * x[j])) * 0.0
    return total


@kernel
def advance(
    point: Array,
    residual: Array,
    x: Int64,
    g: Int64,
    offsets: Int64,
    sizes: Int64,
    c: float,
    weight: float,
    out: Array,
) -> None:
    """Do what `_kernels.advance` says."""
    # In the dtype of the vectors: half as many instructions, and fused, so rounded once as well.
    centre: Any = point.dtype.type(c)
    w: Any = point.dtype.type(weight)
    for t in range(x.size):
        size = sizes[t]
        a, b = offsets[t], offsets[t] + size
        theta = out[a:b]
        x_all = carray(pointer(x[t]), (size,), point.dtype)
        if g[t] == 0:
            theta[:] = 0.0
            folding.advance(point[a:b], residual[a:b], x_all, theta, centre, w, theta)
        else:
            g_all = carray(pointer(g[t]), (size,), point.dtype)
            folding.advance(point[a:b], residual[a:b], x_all, g_all, centre, w, theta)
