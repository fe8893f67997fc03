"""The passes over the vectors of a window in main memory, block by block while it is in the cache.

`measure` reads the whole window once and writes nothing; `commit` reads the residuals once and
writes the new slot. Between them lies the decision whether an observation may enter at all.
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
        x: where the gradient was observed.
        g: the gradient.
        c: the centre of the residuals.
        limit: the largest entry that may enter.
        how: what it does to the window.
        out: zeros. For every slot in use ||dx||^2, <dx, dh> and ||dh||^2 to the observation,
            then, if there is one, to the heir as it will be; the number of entries that must
            not enter; and the sum of |g|. See `room`.
    """
    count, skip, heir, weight, shift = how
    size = points.shape[1]
    others = count if skip < 0 else count - 1
    buffer = np.empty((2, min(size, BLOCK)), points.dtype)
    for a in range(0, size, BLOCK):
        b = min(a + BLOCK, size)
        X, G = x[a:b], g[a:b]
        H, M = buffer[0][: b - a], buffer[1][: b - a]
        bad, total = 0, 0.0
        for j in range(H.size):
            H[j] = G[j] - c * X[j]
            # NaN fails every comparison. Counted, since an early exit would prevent vectorisation.
            fine = (abs(X[j]) <= limit) & (abs(G[j]) <= limit) & (abs(H[j]) <= limit)
            bad += 0 if fine else 1
            total += abs(G[j])
        out[out.size - 2] += bad
        out[out.size - 1] += total
        if heir >= 0:
            p, r = points[skip][a:b], residuals[skip][a:b]
            u, v = points[heir][a:b], residuals[heir][a:b]
            for j in range(M.size):
                M[j] = v[j] + weight * ((r[j] - v[j]) - shift * (p[j] - u[j]))
        for target in range(1 if heir < 0 else 2):
            U, V = (X, H) if target == 0 else (points[heir][a:b], M)
            for k in range(0, others, 4):
                # Four slots at a time, or the last one alone; beyond the last is the last again.
                i, j = _slot(k, others, skip), _slot(k + 1, others, skip)
                m, n = _slot(k + 2, others, skip), _slot(k + 3, others, skip)
                p, r = points[i][a:b], M if i == heir else residuals[i][a:b]
                if i == j:
                    one = _products(p, r, U, V)
                    sums: tuple[float, ...] = one + one + one + one
                else:
                    sums = _four_products(
                        p,
                        r,
                        points[j][a:b],
                        M if j == heir else residuals[j][a:b],
                        points[m][a:b],
                        M if m == heir else residuals[m][a:b],
                        points[n][a:b],
                        M if n == heir else residuals[n][a:b],
                        U,
                        V,
                    )
                for q in range(min(4, others - k)):
                    place = 3 * target * count + _slot(k + q, others, skip)
                    out[place] += sums[3 * q]
                    out[place + count] += sums[3 * q + 1]
                    out[place + 2 * count] += sums[3 * q + 2]


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
    """Write an observation into its slot, and its gradient to out: the denoised one with weights.

    With weights w, one for each slot, that is g + sum_i w_i ((h_i - h) - shift (x_i - x)): they
    sum to 1, and what all residuals have in common cancels before it is rounded.
    """
    size = points.shape[1]
    for a in range(0, size, BLOCK):
        b = min(a + BLOCK, size)
        X, H, theta = points[slot][a:b], residuals[slot][a:b], out[a:b]
        new_x, new_g = x[a:b], g[a:b]
        for j in range(H.size):
            X[j] = new_x[j]
            theta[j] = new_g[j]
            H[j] = new_g[j] - c * new_x[j]
        for i in range(0, w.size, 4):
            # Four slots at a time: a quarter of the passes over the sum. Beyond the last slot
            # there are weights of zero only.
            _add(residuals, i, a, b, w, 1.0, H, theta)
            if shift != 0.0:
                _add(points, i, a, b, w, -shift, X, theta)


@kernel
def advance(
    point: Array,
    residual: Array,
    x: Array,
    g: Array,
    c: float,
    weight: float,
    s: float,
    out: Array,
) -> None:
    """Mix the past into an observation, which becomes the past; write its gradient to out.

    With h = g - c x and h_0 the past residual, that is g + w ((h_0 - h) - s (x_0 - x)).
    """
    # In the dtype of the vectors: half as many instructions, and fused, so rounded once as well.
    kind: Any = point.dtype.type
    centre, w, shift = kind(c), kind(weight), kind(s)
    for j in range(point.size):
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
    if weights is None:
        return np.empty(0, dtype)
    count = weights.size
    if count % 4 == 0:
        return np.ascontiguousarray(weights, dtype)
    padded = np.zeros(-(-count // 4) * 4, dtype)
    padded[:count] = weights
    return padded


@fragment
def _slot(k: int, others: int, skip: int) -> int:
    """Return the k-th slot in use but for the one to skip, or the last."""
    last = min(k, others - 1)
    return last if skip < 0 or last < skip else last + 1


@fragment
def _products(p: Array, r: Array, x: Array, h: Array) -> tuple[float, float, float]:
    """Return ||p - x||^2, <p - x, r - h> and ||r - h||^2, in float64 whatever the vectors are."""
    dx, across, dh = 0.0, 0.0, 0.0
    for j in range(x.size):
        d, e = np.float64(p[j]) - np.float64(x[j]), np.float64(r[j]) - np.float64(h[j])
        dx, across, dh = dx + d * d, across + d * e, dh + e * e
    return dx, across, dh


@fragment
def _four_products(
    p0: Array,
    r0: Array,
    p1: Array,
    r1: Array,
    p2: Array,
    r2: Array,
    p3: Array,
    r3: Array,
    x: Array,
    h: Array,
) -> tuple[float, ...]:
    """Return what `_products` does for each of four slots; x and h are read and widened once."""
    xx0, xh0, hh0, xx1, xh1, hh1 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    xx2, xh2, hh2, xx3, xh3, hh3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(x.size):
        X, H = np.float64(x[j]), np.float64(h[j])
        d, e = np.float64(p0[j]) - X, np.float64(r0[j]) - H
        xx0, xh0, hh0 = xx0 + d * d, xh0 + d * e, hh0 + e * e
        d, e = np.float64(p1[j]) - X, np.float64(r1[j]) - H
        xx1, xh1, hh1 = xx1 + d * d, xh1 + d * e, hh1 + e * e
        d, e = np.float64(p2[j]) - X, np.float64(r2[j]) - H
        xx2, xh2, hh2 = xx2 + d * d, xh2 + d * e, hh2 + e * e
        d, e = np.float64(p3[j]) - X, np.float64(r3[j]) - H
        xx3, xh3, hh3 = xx3 + d * d, xh3 + d * e, hh3 + e * e
    return xx0, xh0, hh0, xx1, xh1, hh1, xx2, xh2, hh2, xx3, xh3, hh3


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
