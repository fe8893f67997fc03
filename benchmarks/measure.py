"""Timing, and where results go: raw numbers first, then the table and the plot made of them."""

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import coco_denoiser

RESULTS = Path("benchmark-results")


def median_seconds(function: Callable[[], object], repeat: int, inner: int = 1) -> float:
    """Median over `repeat` timings of `inner` calls each, after one call to warm up."""
    function()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(inner):
            function()
        times.append((time.perf_counter() - start) / inner)
    return float(np.median(times))


def machine() -> dict[str, str | int | None]:
    """What the numbers depend on."""
    return {
        "coco_denoiser": coco_denoiser.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }


def save(name: str, results: object) -> Path:
    """Write raw results as JSON, whole or not at all."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"machine": machine(), "results": results}, indent=1))
    partial.replace(path)
    return path


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table: first column to the left, the others to the right."""
    every = [list(head), *map(list, rows)]
    widths = [max(len(row[k]) for row in every) for k in range(len(head))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in every
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def duration(seconds: float) -> str:
    """A time with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
