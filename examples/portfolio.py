"""A portfolio without short sales, from five days of returns at a time.

Weights of 40 assets lie on the simplex, and the gradient of risk minus return is estimated from
the returns of five days of a model with five factors. Each step is followed by a projection.
Drawn is the suboptimality, f(x) - min f, against the step, in units of 1/L: that of the last point
or of the average of the second half, whichever is lower. COCO is given L = 1/step.

    python examples/portfolio.py --output portfolio.png
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from coco_denoiser import Denoiser
from coco_denoiser.paper.optimizers import (
    SGD,
    DualAveraging,
    GradientMean,
    Optimizer,
    project_simplex,
    run,
)
from coco_denoiser.typing import Array

STEPS, DAYS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0), 5
rng = np.random.default_rng(1)
returns = rng.standard_normal((500, 5)) @ rng.standard_normal((5, 40))
returns = returns + rng.standard_normal((500, 40)) + 0.5 * rng.random(40)
gain, risk = returns.mean(axis=0), returns.T @ returns / 500
L = float(np.linalg.norm(risk, 2))
METHODS: dict[str, Callable[[float], Optimizer]] = {
    "SGD": SGD,
    "mean of gradients": lambda step: SGD(step, denoiser=GradientMean()),
    "dual averaging": DualAveraging,
    "COCO, fold 2, true L": lambda step: SGD(step, denoiser=Denoiser(L, 2, forget="fold")),
    "COCO, fold 2, L = 1/step": lambda step: SGD(
        step, denoiser=Denoiser(1 / step, 2, forget="fold")
    ),
}


def gradient(x: Array, rng: np.random.Generator) -> Array:
    """Return the gradient that some days tell."""
    seen = returns[rng.integers(500, size=DAYS)]
    return np.asarray((seen @ x - 1.0) @ seen / DAYS)


def objective(x: Array) -> float:
    """Return risk minus return."""
    return float(0.5 * x @ risk @ x - gain @ x)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every method at every step, and draw what came out."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", default="portfolio.png")
    options = parser.parse_args(arguments)
    start = best = np.full(40, 1 / 40)
    for _ in range(5000):
        best = project_simplex(best - (risk @ best - gain) / L)
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axes = figure.subplots()
    for name, make in METHODS.items():
        gaps = []
        for step in STEPS:
            ends = []
            for seed in range(options.runs):
                rng = np.random.default_rng(seed)
                path = run(make(step / L), gradient, start, steps=options.calls, rng=rng,
                           project=project_simplex)  # fmt: skip
                average = path[options.calls // 2 :].mean(axis=0)
                ends.append(min(objective(path[-1]), objective(average)) - objective(best))
            gaps.append(np.median(ends))
        print(f"{name:26s} " + " ".join(f"{value:.4f}" for value in gaps), flush=True)  # noqa: T201
        axes.plot(STEPS, gaps, "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="step, in 1/L", ylabel="suboptimality")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(options.output, dpi=150)


if __name__ == "__main__":
    main()
