"""Folding: what leaves a window is mixed into its successor instead of being lost.

The oldest two observations, residuals h_0 and h_1 with noise variances v_0 and v_1, may be
rho = r ||x_1 - x_0|| apart. Solved by themselves they have a closed form (`closed_form.py`);
its second half replaces the successor, with the variance that fixed weights would give it:

    h_1 <- h_1 + w (h_0 - h_1),                 w = t v_1 / (v_0 + v_1),
    v_1 <- (1 - w)^2 v_1 + w^2 v_0,             t = max(0, 1 - rho / ||h_1 - h_0||).

At one and the same point (rho = 0) this is the recursive mean; where the bound is kept, w = 0
and the oldest is dropped. All but the first line is arithmetic on a few numbers, here. Whoever
holds the vectors asks `Tables.leaving` for w, carries out the first line before the oldest is
overwritten, and hands the fold to `Tables.insert`, which brings the tables up to date.

With a window of two, h_1 so replaced is the denoised residual itself. Then the past is one
point, one residual and one number, and a step is `measure`, `fold`, `advance`: no table at all.
"""

import math
from typing import NamedTuple

import numpy as np

from coco_denoiser._jit import kernel, sweep
from coco_denoiser.geometry import root
from coco_denoiser.solvers import closed_form
from coco_denoiser.typing import Array, Float64


class Fold(NamedTuple):
    """How an observation enters its successor: with this weight, and to this noise variance."""

    weight: float
    variance: float


def fold(apart: float, rho: float, older: float, newer: float) -> Fold:
    """Fold one observation into the next.

    Args:
        apart: the distance of the two residuals.
        rho: how far apart they may be.
        older: noise variance of the observation that leaves.
        newer: noise variance of the one that stays.
    """
    # Of one point, equal gradients too are two observations.
    t = closed_form.pull(apart, rho) if rho > 0.0 else 1.0
    w = t * (newer / (older + newer))
    return Fold(w, (1.0 - w) ** 2 * newer + w**2 * older)


@kernel
def mixed(ours: float, theirs: float, apart: float, weight: float) -> float:
    """Return the distance of h_1 + w (h_0 - h_1) from some h, by Stewart's theorem.

    Its rounding is that of a squared distance, so half the digits are lost where the result is
    next to nothing. It does not add up: an entry is measured when its observation comes, and
    leaves with it.

    Args:
        ours: the distance of h_1 from h.
        theirs: that of h_0.
        apart: that of h_0 from h_1.
        weight: w.
    """
    scale = max(ours, theirs)
    if scale == 0.0:
        return 0.0
    a, b, c = ours / scale, theirs / scale, apart / scale
    squared = (1.0 - weight) * a * a + weight * b * b - weight * (1.0 - weight) * c * c
    return scale * math.sqrt(max(squared, 0.0))


@kernel
def mix_table(residuals: Float64, count: int, oldest: int, heir: int, weight: float) -> None:
    """Replace the heir's distances by those that it has once the oldest is mixed into it."""
    apart = residuals[oldest, heir]
    for j in range(count):
        if j not in (oldest, heir):
            residuals[heir, j] = mixed(residuals[heir, j], residuals[oldest, j], apart, weight)
            residuals[j, heir] = residuals[heir, j]


@sweep
def measure(point: Array, residual: Array, x: Array, g: Array, c: float, out: Float64) -> None:
    """Write the distances of x and g - c x from the past into out, (2,)."""
    dx, dh = 0.0, 0.0
    for j in range(x.size):
        u = np.float64(x[j]) - np.float64(point[j])
        v = (np.float64(g[j]) - c * np.float64(x[j])) - np.float64(residual[j])
        dx += u * u
        dh += v * v
    if 1e-250 < dx < 1e250 and 1e-250 < dh < 1e250:
        out[0], out[1] = math.sqrt(dx), math.sqrt(dh)
        return
    out[0], out[1] = root(dx, x, point), root(dh, g - c * x, residual)


@kernel
def advance(
    point: Array, residual: Array, x: Array, g: Array, c: float, weight: float, out: Array
) -> None:
    """Mix the past into an observation, which becomes the past; write its gradient into out."""
    for j in range(x.size):
        h = g[j] - c * x[j]
        move = weight * (residual[j] - h)
        out[j] = g[j] + move
        residual[j] = h + move
        point[j] = x[j]
