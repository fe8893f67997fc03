"""The two passes of a stream over its vectors: into the window, and the weighted sum out of it."""

import numpy as np

from coco_denoiser._jit import kernel, sweep
from coco_denoiser._linalg import squared_distance
from coco_denoiser.geometry import root
from coco_denoiser.typing import Array, Float64

BLOCK = 2048  # entries of a vector that are worked on while they are in the cache


@sweep
def is_storable(x: Array, g: Array, c: float, limit: float) -> bool:
    """Say whether no entry of x, g and g - c x exceeds the limit, or is NaN."""
    bad = 0
    for j in range(x.size):
        # NaN fails every comparison. Counted, since a way out would keep it from vectorising.
        fine = (abs(x[j]) <= limit) & (abs(g[j]) <= limit) & (abs(g[j] - c * x[j]) <= limit)
        bad += 0 if fine else 1
    return bad == 0


@sweep
def observe(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    c: float,
    slot: int,
    heir: int,
    weight: float,
    rows: Float64,
) -> None:
    """Write x and g - c x into a slot, and their distances to the other slots into rows.

    Before that, the slot's residual is mixed into the heir's with the weight.
    """
    d, count = x.size, rows.shape[1]
    for i in range(count):
        rows[0, i], rows[1, i] = 0.0, 0.0
    # Slices, so that indices are known not to be negative and the loops vectorise.
    for start in range(0, d, BLOCK):
        stop = min(start + BLOCK, d)
        new_x, new_g = x[start:stop], g[start:stop]
        mine, my = points[slot][start:stop], residuals[slot][start:stop]
        if weight > 0.0:
            kept = residuals[heir][start:stop]
            for j in range(kept.size):
                kept[j] += weight * (my[j] - kept[j])
        for j in range(new_x.size):
            mine[j] = new_x[j]
            my[j] = new_g[j] - c * new_x[j]
        for i in range(count):
            if i != slot:
                rows[0, i] += squared_distance(points[i][start:stop], mine)
                rows[1, i] += squared_distance(residuals[i][start:stop], my)
    for i in range(count):
        if i != slot:
            rows[0, i] = root(rows[0, i], points[i], points[slot])
            rows[1, i] = root(rows[1, i], residuals[i], residuals[slot])


@kernel
def combine(residuals: Array, g: Array, weights: Float64, slot: int, out: Array) -> None:
    """Write g + sum_i w_i h_i - h into out, h being the residual in the slot."""
    block = np.empty(BLOCK)
    for start in range(0, g.size, BLOCK):
        stop = min(start + BLOCK, g.size)
        part, result = g[start:stop], out[start:stop]
        for j in range(part.size):
            block[j] = 0.0
        for i in range(weights.size):
            factor = weights[i] - (1.0 if i == slot else 0.0)
            if factor != 0.0:
                row = residuals[i][start:stop]
                for j in range(row.size):
                    block[j] += factor * row[j]
        for j in range(part.size):
            result[j] = part[j] + block[j]
