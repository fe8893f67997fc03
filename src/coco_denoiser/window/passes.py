"""The passes over the vectors of a window in main memory, block by block while it is in the cache.

`measure` reads the whole window once and writes nothing; `commit` reads the residuals once and
writes the new slot. Between them lies the decision whether an observation may enter at all.
This file has the work on a block, and the passes over contiguous vectors. Those over PyTorch's
tensors, which are scattered in memory, are in `coco_denoiser.torch._kernels`.
"""

from typing import Any, TypeAlias

import numpy as np

from coco_denoiser._jit import fragment, kernel, subroutine, sweep
from coco_denoiser.typing import Array, Float64

# Entries of a vector worked on at once: long enough for the processor to fetch ahead in 2K
# streams, short enough for a few such blocks to stay in the second-level cache.
BLOCK = 8192
# How many slots are in use; one that is left out, since it is about to be overwritten, or -1; the
# one that it will be mixed into, or -1; its weight then; how far the centre at which it is mixed
# lies from that of the residuals.
Numbers: TypeAlias = tuple[int, int, int, float, float]


@sweep
def measure(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    c: float,
    limit: float,
    how: Numbers,
    out: Float64,
) -> None:
    """Add up how an observation relates to the slots in use, in float64.

    Args:
        points: (K, D), the ring of points.
        residuals: (K, D), the ring of residuals h = g - c x.
        x: (D,), where the gradient was observed.
        g: (D,), the gradient.
        c: the centre of the residuals.
        limit: the largest entry that may enter.
        how: what it does to the window.
        out: zeros. For every slot in use ||dx||^2, <dx, dh> and ||dh||^2 to the observation,
            then, if there is one, to the heir as it will be; the number of entries that must
            not enter; and the sum of |g|. See `room`.
    """
    new, other, mixed = blocks(points.dtype, x.size)
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        measure_block(
            points,
            residuals,
            start,
            stop,
            x[start:stop],
            g[start:stop],
            c,
            limit,
            how,
            new,
            other,
            mixed,
            out,
        )


@kernel
def commit(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    c: float,
    slot: int,
    w: Array,
    shift: float,
    out: Array,
) -> None:
    """Write an observation into its slot and, if there are weights, its denoised gradient to out.

    With weights w, one for each slot, that is g + sum_i w_i ((h_i - h) - shift (x_i - x)): they
    sum to 1, and what all residuals have in common cancels before it is rounded.
    """
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        commit_block(
            points,
            residuals,
            start,
            stop,
            x[start:stop],
            g[start:stop],
            c,
            slot,
            w,
            shift,
            out,
        )


@kernel
def advance(
    point: Array, residual: Array, x: Array, g: Array, c: float, weight: float, s: float, out: Array
) -> None:
    """Mix the past into an observation, which becomes the past; write its gradient to out.

    With h = g - c x and h_0 the past residual, that is g + w ((h_0 - h) - s (x_0 - x)).
    """
    # In the dtype of the vectors: half as many instructions, and fused, so rounded once as well.
    kind: Any = point.dtype.type
    centre, w, shift = kind(c), kind(weight), kind(s)
    for j in range(x.size):
        h = g[j] - centre * x[j]
        move = w * ((residual[j] - h) - shift * (point[j] - x[j]))
        out[j] = g[j] + move
        residual[j] = h + move
        point[j] = x[j]


def room(count: int, heir: int) -> Float64:
    """Return zeros for what `measure` adds up."""
    return np.zeros((3 if heir < 0 else 6) * count + 2)


def by_four(weights: Float64 | None, dtype: np.dtype[Any]) -> Array:
    """Return weights with zeros up to a multiple of four; none for None.

    In the dtype of the sum: it is formed of differences, so that no digits are lost.
    """
    count = 0 if weights is None else weights.size
    padded = np.zeros(-(-count // 4) * 4, dtype)
    if weights is not None:
        padded[:count] = weights
    return padded


@subroutine
def blocks(dtype: Any, size: int) -> tuple[Array, Array, Array]:
    """Return room for the blocks that `measure_block` works on."""
    n = min(size, BLOCK)
    return np.empty(n, dtype), np.empty(n, dtype), np.empty(n, dtype)


@fragment
def measure_block(
    points: Array,
    residuals: Array,
    a: int,
    b: int,
    x: Array,
    g: Array,
    c: float,
    limit: float,
    how: Numbers,
    new: Array,
    other: Array,
    mixed: Array,
    out: Float64,
) -> None:
    """Do for the columns a to b what `measure` does."""
    count, skip, heir, weight, shift = how
    X, H, M = new[: b - a], other[: b - a], mixed[: b - a]
    bad, total = 0, 0.0
    for j in range(X.size):
        X[j] = x[j]
        H[j] = g[j] - c * x[j]
    for j in range(X.size):
        # NaN fails every comparison. Counted, since an early exit would prevent vectorisation.
        fine = (abs(X[j]) <= limit) & (abs(g[j]) <= limit) & (abs(H[j]) <= limit)
        bad += 0 if fine else 1
        total += abs(g[j])
    out[out.size - 2] += bad
    out[out.size - 1] += total
    if heir >= 0:
        p, q = points[skip][a:b], points[heir][a:b]
        r, s = residuals[skip][a:b], residuals[heir][a:b]
        for j in range(M.size):
            M[j] = s[j] + weight * ((r[j] - s[j]) - shift * (p[j] - q[j]))
    for i in range(count):
        if i != skip:
            row = M if i == heir else residuals[i][a:b]
            dx, across, dh = _products(points[i][a:b], X, row, H)
            out[i] += dx
            out[count + i] += across
            out[2 * count + i] += dh
            if heir >= 0 and i != heir:
                dx, across, dh = _products(points[i][a:b], points[heir][a:b], row, M)
                out[3 * count + i] += dx
                out[4 * count + i] += across
                out[5 * count + i] += dh


@fragment
def _products(p: Array, x: Array, r: Array, h: Array) -> tuple[float, float, float]:
    """Return ||p - x||^2, <p - x, r - h> and ||r - h||^2, in float64 whatever the vectors are."""
    dx, across, dh = 0.0, 0.0, 0.0
    for j in range(x.size):
        d = np.float64(p[j]) - np.float64(x[j])
        e = np.float64(r[j]) - np.float64(h[j])
        dx += d * d
        across += d * e
        dh += e * e
    return dx, across, dh


@fragment
def commit_block(
    points: Array,
    residuals: Array,
    a: int,
    b: int,
    x: Array,
    g: Array,
    c: float,
    slot: int,
    w: Array,
    shift: float,
    out: Array,
) -> None:
    """Do for the columns a to b what `commit` does."""
    X, H = points[slot][a:b], residuals[slot][a:b]
    for j in range(X.size):
        X[j] = x[j]
        H[j] = g[j] - c * x[j]
    if w.size > 0:
        theta = out[a:b]
        for j in range(theta.size):  # as a slice it would take two seconds more to compile
            theta[j] = g[j]
        for i in range(0, w.size, 4):
            # Four slots at a time: a quarter of the passes over the sum. Beyond the last slot
            # there are weights of zero only.
            _add(residuals, i, a, b, w, 1.0, H, theta)
            if shift != 0.0:
                _add(points, i, a, b, w, -shift, X, theta)


@subroutine
def _add(
    rows: Array, i: int, a: int, b: int, w: Array, factor: float, h: Array, theta: Array
) -> None:
    last = rows.shape[0] - 1
    p, q = rows[i][a:b], rows[min(i + 1, last)][a:b]
    r, s = rows[min(i + 2, last)][a:b], rows[min(i + 3, last)][a:b]
    kind: Any = w.dtype.type
    t, u = kind(factor * w[i]), kind(factor * w[i + 1])
    v, x = kind(factor * w[i + 2]), kind(factor * w[i + 3])
    for j in range(theta.size):
        H = h[j]
        theta[j] += (t * (p[j] - H) + u * (q[j] - H)) + (v * (r[j] - H) + x * (s[j] - H))
