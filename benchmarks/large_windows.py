"""Many points at once: processor time and memory against K, of two exact methods, in one run.

Every window is solved in a process of its own, whose peak memory is then that of the solution.
The barrier method, whose system has K q unknowns, is left out where it takes seconds.
"""

import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import coco_denoiser as coco
from benchmarks.measure import RESULTS, duration, save, table
from benchmarks.solvers import windows

SIZES = (64, 128, 256, 512, 1000, 2000)
METHODS = {"newton": 2000, "barrier": 128}  # and the most points for each
PLACES = ("SGD path", "uniform")
DIMENSION = 10


def solve(K: int, place: str, method: str) -> dict[str, Any]:
    """Solve one window, after a small one to load everything."""
    coco.solve(*windows(24, DIMENSION, 1)[0], model=coco.Cocoercive(1.0, method=method))
    points, gradients = windows(K, DIMENSION, 2)[PLACES.index(place)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = np.inf
    for _ in range(3 if K <= 256 else 1):
        start = time.process_time()  # one thread: what others do meanwhile does not count
        solution = coco.solve(points, gradients, model=coco.Cocoercive(1.0, method=method))
        seconds = min(seconds, time.process_time() - start)
    pulled = solution.multipliers[np.triu_indices(K, 1)]
    # In kilobytes, except on macOS, where it is bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "K": K,
        "place": place,
        "method": method,
        "seconds": seconds,
        "bytes": unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before),
        "active": float(np.mean(pulled > 1e-6 * pulled.max())),
        "gap": solution.gap,
        "iterations": solution.iterations,
    }


def measure() -> list[dict[str, Any]]:
    """Solve every window, each in its own process."""
    rows = []
    for K in SIZES:
        for place in PLACES:
            rows += [_apart(K, place, method) for method, most in METHODS.items() if most >= K]
        print(f"  K={K} done", file=sys.stderr)
    return rows


def _apart(K: int, place: str, method: str) -> Any:
    code = (
        "import json; from benchmarks import large_windows as here; "
        f"print(json.dumps(here.solve({K}, {place!r}, {method!r})))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def report(rows: list[dict[str, Any]]) -> str:
    """The table: a row for each K and place."""
    found = {(row["K"], row["place"], row["method"]): row for row in rows}
    lines = []
    for K in SIZES:
        for place in PLACES:
            ours = found[K, place, "newton"]
            peer = found.get((K, place, "barrier"))
            lines.append(
                [
                    f"K={K}, {place}",
                    duration(ours["seconds"]),
                    duration(peer["seconds"]) if peer else "",
                    f"{peer['seconds'] / ours['seconds']:.2f}x" if peer else "",
                    f"{ours['bytes'] / 1e6:.0f} MB",
                    f"{peer['bytes'] / 1e6:.0f} MB" if peer else "",
                    f"{ours['active']:.2%}",
                    f"{ours['gap']:.0e}",
                ]
            )
    head = [
        "window",
        "newton",
        "barrier",
        "ratio",
        "memory",
        "memory",
        "active",
        "gap",
    ]
    return table(head, lines)


def plot(rows: list[dict[str, Any]]) -> None:
    """Time and memory against K."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    styles = {"newton": ("black", "o"), "barrier": ("#c98f00", "s")}
    for axes, key, label, scale in zip(
        figure.subplots(1, 2),
        ("seconds", "bytes"),
        ("processor time to a gap of 1e-9, s", "memory, MB"),
        (1.0, 1e-6),
        strict=True,
    ):
        for method, (colour, marker) in styles.items():
            for place, line in zip(PLACES, ("-", "--"), strict=True):
                mine = [row for row in rows if (row["method"], row["place"]) == (method, place)]
                axes.loglog(
                    [row["K"] for row in mine],
                    [max(scale * row[key], 1e-3) for row in mine],
                    line,
                    marker=marker,
                    color=colour,
                    label=f"{method}, {place}",
                )
        axes.set_xlabel("number of points K")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(RESULTS / "large-windows.png", dpi=150)


def main() -> None:
    """Measure, save, print and draw."""
    rows = measure()
    path = save("large-windows", rows)
    print(report(rows))
    plot(rows)
    print(f"\nraw numbers: {path}, picture: {path.with_suffix('.png')}")
