"""A step of Denoiser and a call of solve() against Clarabel on the same windows, in one run.

For each window the shortest of several runs counts, for us and for the peer, because other work on
the machine delays long calls more often than short ones. The table has the medians of these.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

import coco_denoiser as coco
from benchmarks import peers
from benchmarks.measure import duration, median_seconds, save, table
from coco_denoiser.typing import Float64

# K, d, and how many windows Clarabel solves, which is slow.
STEPS = [(8, 10, 40), (16, 10, 20), (16, 112, 4), (32, 10, 6)]
FULL = 40  # steps with a full window
REPEAT = 7


def stream(d: int, steps: int, kind: str) -> tuple[Float64, Float64]:
    """Observations with noise 10 along an SGD path with step 0.7/L, or in a box."""
    rng = np.random.default_rng([d, steps])
    curvature, x = np.linspace(1.0, 1.0 / 3.0, d), np.full(d, 100.0)
    points, gradients = np.empty((steps, d)), np.empty((steps, d))
    for k in range(steps):
        if kind == "box":
            x = rng.uniform(-10.0, 10.0, d)
        points[k], gradients[k] = x, x * curvature + 10.0 * rng.normal(size=d)
        x = x - 0.7 * gradients[k]
    return points, gradients


def step_seconds(points: Float64, gradients: Float64, K: int | None) -> Float64:
    """Time every step of a stream: the least over several runs, as the peer's is too."""
    times = np.empty((REPEAT + 1, len(points)))
    for run in times:
        denoiser = coco.Denoiser(L=1.0, window=K)
        for k, (x, g) in enumerate(zip(points, gradients, strict=True)):
            start = time.perf_counter()
            denoiser(x, g)
            run[k] = time.perf_counter() - start
    return np.asarray(times[1:].min(axis=0))


def least_seconds(function: Callable[[], object]) -> float:
    """The least over several runs of a call."""
    return min(median_seconds(function, 1, 5) for _ in range(2 * REPEAT))


def clarabel_seconds(points: Float64, gradients: Float64) -> float:
    """The least of several runs, unless they take seconds."""
    found = [peers.clarabel_seconds(points, gradients, one_thread=True)]
    while len(found) < REPEAT and sum(found) < 0.3:
        found.append(peers.clarabel_seconds(points, gradients, one_thread=True))
    return min(found)


def steps() -> list[dict[str, Any]]:
    """Steps with a full window, half along a path, half in a box; Clarabel on the same windows."""
    rows = []
    for K, d, count in STEPS:
        ours: list[float] = []
        peer: list[float] = []
        for kind in ("path", "box"):
            points, gradients = stream(d, K + FULL, kind)
            ours.extend(step_seconds(points, gradients, K)[K:])
            for start in np.linspace(1, FULL, count // 2).astype(int):
                window = slice(start, start + K)
                peer.append(clarabel_seconds(points[window], gradients[window]))
        rows.append(
            {
                "what": f"Denoiser step, K={K}, d={d}, vs Clarabel",
                "seconds": float(np.median(ours)),
                "peer": float(np.median(peer)),
            }
        )
        print(f"  K={K} d={d} done", file=sys.stderr)
    return rows


def calls() -> list[dict[str, Any]]:
    """solve() from Python, d=10."""
    rows = []
    for K in (2, 8, 16):
        points, gradients = stream(10, K + FULL, "path")
        each = [slice(k, k + K) for k in range(FULL)]
        solve = [least_seconds(partial(coco.solve, points[k], gradients[k], L=1.0)) for k in each]
        peer = [clarabel_seconds(points[k], gradients[k]) for k in each]
        rows.append(
            {
                "what": f"solve(), K={K}, d=10, vs Clarabel",
                "seconds": float(np.median(solve)),
                "peer": float(np.median(peer)),
            }
        )
    return rows


def threads() -> list[dict[str, Any]]:
    """Two denoisers, in one thread one after the other, and in two threads side by side."""
    rows = []
    for K, d in ((8, 10), (16, 10), (16, 10**4)):
        points, gradients = stream(d, K + FULL, "path")

        def run(_: int, K: int = K, given: tuple[Float64, Float64] = (points, gradients)) -> None:
            denoiser = coco.Denoiser(L=1.0, window=K)
            for x, g in zip(*given, strict=True):
                denoiser(x, g)

        found = []
        for workers in (1, 2):
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(run, range(4)))
                start = time.perf_counter()
                list(pool.map(run, range(40)))
                found.append((time.perf_counter() - start) / (40 * len(points)))
        what = f"Denoiser steps, K={K}, d={d}, two threads vs one"
        rows.append({"what": what, "seconds": found[1], "peer": found[0]})
    return rows


def report(rows: list[dict[str, Any]]) -> str:
    """The table."""
    lines = [
        [
            row["what"],
            duration(row["seconds"]),
            duration(row["peer"]),
            f"{row['peer'] / row['seconds']:.3g}x",
        ]
        for row in rows
    ]
    return table(["what", "ours", "peer", "ratio"], lines)


def main() -> None:
    """Measure, save and print."""
    rows = []
    for part in (calls, steps, threads):
        print(f"{part.__name__} …", file=sys.stderr)
        rows.extend(part())
    path = save("stream", rows)
    print(report(rows))
    print(f"\nraw numbers: {path}")
