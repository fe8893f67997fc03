"""COCO before a projection against baselines, all given the same time.

Every method gets the time in which SGD makes all calls of the experiment `constraints`, so that
a slower one makes fewer. How much that matters depends on what a gradient costs.
"""

import time

import numpy as np

from benchmarks.measure import save, table
from coco_denoiser.paper.experiments.constraint_methods import optimizer
from coco_denoiser.paper.experiments.constraint_problems import problem
from coco_denoiser.paper.experiments.constraints import (
    SHARES,
    Constraints,
)
from coco_denoiser.paper.experiments.curves import Curves

PROBLEMS = ("lasso", "portfolio", "box")
BASELINES = ("SGD", "EMA 0.97", "mean of gradients", "dual averaging", "Adam")
OURS = ("fold 2, L=1/s", "fold 16, L=1/s", "Gaussian 32")
COSTS = (1e-5, 1e-4, 1e-3, 1e-2)  # of a gradient, in seconds


def seconds(method: str) -> float:
    """Return the least time of a step, map included, with 60 coordinates and a full window."""
    of = problem("lasso")
    stepping, x, rng = optimizer(method, of, 0.3), of.start[None], np.random.default_rng(0)
    times = []
    for _ in range(120):
        g = of.oracle(x, rng)
        begun = time.perf_counter()
        x = of.map.prox(stepping.step(x, g), stepping.last_step)
        times.append(time.perf_counter() - begun)
    return min(times[60:])


def excess(curves: Curves, name: str, method: str, share: float) -> float:
    """Return the suboptimality at the best step after a share of the calls, interpolated."""
    panels = [f"{name}: excess" + f" after {s:g} of the calls" * (s < 1.0) for s in SHARES]
    lowest = [float(np.nanmin(curves[panel, method].mean)) for panel in panels]
    return float(np.exp(np.interp(-np.log(share), -np.log(SHARES), np.log(lowest))))


def main() -> None:
    report(Constraints(problems=PROBLEMS, frank_wolfe=()).run())


def report(curves: Curves) -> None:
    """Print the table."""
    step = {method: seconds(method) for method in (*BASELINES, *OURS)}
    rows = []
    for cost in COSTS:
        share = {m: (cost + step["SGD"]) / (cost + step[m]) for m in step}
        found = np.array([[excess(curves, n, m, share[m]) for m in step] for n in PROBLEMS])
        ratios = found / found[:, : len(BASELINES)].min(axis=1, keepdims=True)
        means = np.exp(np.log(ratios).mean(axis=0))
        rows.append([f"{1e6 * cost:g}", *(f"{mean:.2f}" for mean in means)])
    save("equal-time", {"seconds": step, "rows": rows})
    print(table(("µs of a gradient", *step), rows))
    print("µs of a step: " + ", ".join(f"{m} {1e6 * s:.0f}" for m, s in step.items()))
    print("Suboptimality over the best baseline's in the same time, mean of", *PROBLEMS)
