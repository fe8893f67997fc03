"""A streaming lasso that finds its support: reduce the noise before the threshold.

Rows of data arrive in batches of 8; 8 of 60 features matter. After every gradient step, each
coordinate is moved towards zero and stops there. Noise pushes coordinates over the threshold, so
that SGD keeps features that do not matter, and an average of its points keeps all of them. Drawn
against the step, in units of 1/L: the suboptimality, and the non-zeros of the last point.

    python examples/streaming_lasso.py --output streaming_lasso.png
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from coco_denoiser import Denoiser
from coco_denoiser.paper.optimizers import (
    SGD,
    DualAveraging,
    GradientEMA,
    Optimizer,
    run,
    soft_threshold,
)
from coco_denoiser.typing import Array

WEIGHT, BATCH, STEPS = 0.5, 8, (0.03, 0.1, 0.3, 1.0)
rng = np.random.default_rng(0)
A = rng.standard_normal((400, 60))
b = A[:, :8] @ rng.choice([-2.0, 2.0], 8) + rng.standard_normal(400)
L = float(np.linalg.norm(A, 2)) ** 2 / len(A)
METHODS: dict[str, Callable[[float], Optimizer]] = {
    "SGD": SGD,
    "gradient EMA, 0.97": lambda step: GradientEMA(step, beta=0.97),
    "dual averaging": DualAveraging,
    "COCO, fold 16": lambda step: SGD(step, denoiser=Denoiser(L, 16, forget="fold")),
    "COCO, fold 16, L = 1/step": lambda step: SGD(
        step, denoiser=Denoiser(1 / step, 16, forget="fold")
    ),
}


def gradient(x: Array, rng: np.random.Generator) -> Array:
    """Return the gradient of half the mean squared error of a batch."""
    rows = rng.integers(len(A), size=BATCH)
    return np.asarray((A[rows] @ x - b[rows]) @ A[rows] / BATCH)


def prox(x: Array, step: float | Array) -> Array:
    """Move every coordinate towards zero."""
    return soft_threshold(x, WEIGHT * step)


def objective(x: Array) -> float:
    """Return half the mean squared error, and the penalty."""
    return float(0.5 * np.mean((A @ x - b) ** 2) + WEIGHT * np.abs(x).sum())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every method at every step, and draw what came out."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", default="streaming_lasso.png")
    options = parser.parse_args(arguments)
    best: Array = np.zeros(60)
    for _ in range(2000):
        best = prox(best - (A @ best - b) @ A / len(A) / L, 1 / L)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, make in METHODS.items():
        gaps, nonzeros = [], []
        for step in STEPS:
            ends = []
            for seed in range(options.runs):
                rng = np.random.default_rng(seed)
                path = run(make(step / L), gradient, np.zeros(60), steps=options.calls, rng=rng,
                           prox=prox)  # fmt: skip
                average = path[options.calls // 2 :].mean(axis=0)
                lower = min(objective(path[-1]), objective(average)) - objective(best)
                ends.append((lower, np.count_nonzero(path[-1])))
            gaps.append(np.median([end[0] for end in ends]))
            nonzeros.append(np.median([end[1] for end in ends]))
        print(f"{name:26s} gap {min(gaps):.4f}, non-zeros {np.array(nonzeros)}", flush=True)  # noqa: T201
        left.plot(STEPS, np.minimum(gaps, 20.0), "o-", label=name)  # it started at 11
        right.plot(STEPS, nonzeros, "o-", label=name)
    left.set(xscale="log", yscale="log", xlabel="step, in 1/L",
             ylabel="suboptimality", title="Last point, or average")  # fmt: skip
    right.axhline(np.count_nonzero(best), color="k", linewidth=0.8)
    right.set(xscale="log", xlabel="step, in 1/L", ylabel="non-zeros", title="Last point")
    right.legend(frameon=False, fontsize=8)
    figure.savefig(options.output, dpi=150)


if __name__ == "__main__":
    main()
