"""The least that NumPy and Numba can do, to know what they cost by themselves."""

import numba

from coco_denoiser.typing import Float64


@numba.njit(cache=True)
def add(x: Float64, y: Float64) -> Float64:
    """Add two arrays."""
    return x + y
