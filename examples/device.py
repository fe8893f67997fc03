"""A new device: two functions, written here in NumPy; `read` turns tensors into its arrays."""

import numpy as np

from coco_denoiser.torch import passes


def measure(points, residuals, x, g, centre, limit, skip, out):
    """Add ||dx||^2, <dx, dh>, ||dh||^2 of every slot, entries that are too large, and |g|."""
    used, h = len(out) // 3, g - centre * x
    dx, dh = points[:used] - x, residuals[:used] - h
    sums = np.array([(dx * dx).sum(1), (dx * dh).sum(1), (dh * dh).sum(1)])
    if skip >= 0:
        sums[:, skip] = 0.0
    out[:-2] += sums.ravel()
    out[-2] += sum(np.count_nonzero(~(np.abs(v) <= limit)) for v in (x, g, h))
    out[-1] += np.abs(g).sum()


def commit(points, residuals, x, g, centre, slot, average, out):
    """Write the observation into its slot, and g + sum_i w_i ((h_i - h) - shift (x_i - x))."""
    h, out[...] = g - centre * x, g
    if average is not None:
        weights, shift, merged = average
        K = len(weights)
        w = weights if merged else np.where(np.arange(K) == slot, 0.0, weights)
        out += w @ ((residuals[:K] - h) - shift * (points[:K] - x))
        if merged:
            h = out - centre * x
    points[slot], residuals[slot] = x, h


MINE = passes.Passes(passes.HOST.read, measure, commit)
passes.PASSES["cpu"] = MINE
