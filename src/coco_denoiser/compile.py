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
from coco_denoiser.stream import Denoiser

_DESCRIPTION = (
    "Compile all kernels ahead of time, for images and clusters. They are kept beside the package, "
    "or in NUMBA_CACHE_DIR."
)
_METHODS = ("interior-point", "large", "fdpg")


def _newton() -> None:
    """Compile a step of a stream, which is one function, and its certificate."""
    denoiser = Denoiser(L=1.0, window=3)
    for x, g in zip(*_observations(2), strict=True):
        denoiser(x, g)


def _others() -> None:
    """Compile the other methods, and the passes over the vectors of a stream."""
    points, gradients = _observations(40)
    for method in _METHODS:
        solve(points, gradients, L=1.0, method=method, throw=False)
    for forget in ("drop", "fold"):
        denoiser = Denoiser(L=1.0, window=2, forget=forget)
        for x, g in zip(points, gradients, strict=True):
            denoiser(x, g)


def _observations(d: int) -> Any:
    """Return points and gradients, (2, 4, d), no pair of which is feasible."""
    noise = np.random.default_rng(0).normal(size=(2, 4, d))
    return np.stack((1e-3 * noise[0], noise[1]))


# Two that can be compiled at the same time: processes that meet a function at once each compile it.
PARTS: dict[str, Callable[[], None]] = {"Newton's method": _newton, "all others": _others}


def compile_part(name: str) -> None:
    """Compile one of the PARTS.

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
