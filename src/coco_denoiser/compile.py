"""Compile everything ahead of time, for images and clusters: `python -m coco_denoiser.compile`.

What is compiled is kept where Numba keeps it: beside the package, or in NUMBA_CACHE_DIR.
"""

import argparse
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coco_denoiser.batch import solve
from coco_denoiser.solvers.closed_form import denoise_pairs
from coco_denoiser.stream import Denoiser

_DESCRIPTION = (
    "Compile all kernels ahead of time, for images and clusters. They are kept beside the package, "
    "or in NUMBA_CACHE_DIR."
)
_DIMENSIONS = (2, 40)  # vectors are used as they are where they are short, else reduced
_PROBLEMS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "interior-point"},
    {"method": "large"},
    {"method": "fdpg"},
)
_STREAMS: tuple[dict[str, Any], ...] = (
    {"L": 1.0, "window": 3},
    {"L": 1.0, "window": 3, "forget": "fold"},
    {"L": 1.0, "window": 2, "forget": "fold"},
)


def _batch() -> None:
    for d in _DIMENSIONS:
        points, gradients = _observations(d)
        for options in _PROBLEMS:
            solve(points, gradients, L=1.0, throw=False, **options)
        denoise_pairs(points[:2], gradients[:2], L=1.0)


def _stream() -> None:
    for d in _DIMENSIONS:
        for options in _STREAMS:
            denoiser = Denoiser(**options)
            for x, g in zip(*_observations(d), strict=True):
                denoiser(x, g)


def _observations(d: int) -> Any:
    """Return points and gradients, (2, 4, d), no pair of which is feasible."""
    noise = np.random.default_rng(0).normal(size=(2, 4, d))
    return np.stack((1e-3 * noise[0], noise[1]))


PARTS: dict[str, Callable[[], None]] = {"solve()": _batch, "Denoiser": _stream}


def compile_part(name: str) -> None:
    """Compile one of the PARTS: processes that meet the same function at once each compile it.

    The caller announces it, so the notice of the first call is silenced.
    """
    logger = logging.getLogger("coco_denoiser")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        PARTS[name]()
    finally:
        logger.setLevel(level)


def main(arguments: Sequence[str] = ()) -> int:
    """Compile every part, and say how long it took."""
    command = "python -m coco_denoiser.compile"
    argparse.ArgumentParser(command, description=_DESCRIPTION).parse_args(arguments)
    for name in PARTS:
        sys.stdout.write(f"compiling {name} … ")
        sys.stdout.flush()
        start = time.perf_counter()
        compile_part(name)
        sys.stdout.write(f"{time.perf_counter() - start:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
