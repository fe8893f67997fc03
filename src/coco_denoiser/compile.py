"""Compile the solver ahead of time, for images and clusters: `python -m coco_denoiser.compile`.

What is compiled is kept where Numba keeps it: beside the package, or in NUMBA_CACHE_DIR.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from coco_denoiser.batch import solve
from coco_denoiser.streaming import Denoiser
from coco_denoiser.typing import Float64

DIMENSIONS = (2, 40)  # vectors are used as they are where they are short, else reduced


def _batch() -> None:
    for d in DIMENSIONS:
        points, gradients = _observations(d)
        solve(points, gradients, L=1.0)
        solve(points, gradients, L=1.0, method="active-pairs")


def _stream() -> None:
    for d in DIMENSIONS:
        denoiser = Denoiser(L=1.0, window=3)
        for x, g in zip(*_observations(d), strict=True):
            denoiser(x, g)


def _observations(d: int) -> tuple[Float64, Float64]:
    rng = np.random.default_rng(0)
    return 1e-3 * rng.normal(size=(4, d)), rng.normal(size=(4, d))


PARTS: dict[str, Callable[[], None]] = {"solve()": _batch, "Denoiser": _stream}


def main() -> int:
    """Compile every part, and say how long it took."""
    for name, part in PARTS.items():
        sys.stdout.write(f"compiling {name} … ")
        sys.stdout.flush()
        start = time.perf_counter()
        part()
        sys.stdout.write(f"{time.perf_counter() - start:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
