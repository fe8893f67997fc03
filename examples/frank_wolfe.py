"""Frank-Wolfe in a trace-norm ball: complete a matrix from noisy entries, a few at a time.

Each step moves towards the corner of the ball that is lowest along the gradient. A corner jumps
with the noise, so the gradient has to be averaged first: with weights that ignore where gradients
were observed, or by COCO. The step is 2 / (t + 2), and nothing is tuned.

    python examples/frank_wolfe.py --output frank_wolfe.png
"""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from coco_denoiser import Denoiser, Gaussian
from coco_denoiser.paper.optimizers import DenoiserLike, FrankWolfe, GradientMean, run
from coco_denoiser.typing import Array

ROWS, COLUMNS, RADIUS, BATCH = 20, 15, 20.0, 8
rng = np.random.default_rng(2)
truth = (rng.standard_normal((ROWS, 2)) @ rng.standard_normal((2, COLUMNS))).ravel()
seen = rng.choice(ROWS * COLUMNS, 150, replace=False)
entries = truth[seen] + 0.3 * rng.standard_normal(len(seen))
L = 1 / len(seen)  # an entry in 150 has curvature 1
DENOISERS: dict[str, Callable[[], DenoiserLike | None]] = {
    "raw": lambda: None,
    "mean of gradients": GradientMean,
    "gradient EMA, 0.99": lambda: GradientMean(lambda k: 0.01 / (1 - 0.99**k)),
    "Gaussian, window 128": lambda: Denoiser(model=Gaussian(), window=128),
    "COCO, fold 2": lambda: Denoiser(L, 2, forget="fold"),
}


def gradient(x: Array, rng: np.random.Generator) -> Array:
    """Return the gradient of half the mean squared error of a few of the entries."""
    drawn = rng.integers(len(seen), size=BATCH)
    g = np.zeros_like(x)
    np.add.at(g, seen[drawn], (x[seen[drawn]] - entries[drawn]) / BATCH)
    return g


def corner(g: Array) -> Array:
    """Return the matrix of rank one in the ball that is lowest along g."""
    u, _, v = np.linalg.svd(g.reshape(ROWS, COLUMNS), full_matrices=False)
    return np.asarray(-RADIUS * np.outer(u[:, 0], v[0]).ravel())


def objective(x: Array) -> Array:
    """Return half the mean squared error of points (..., d)."""
    return np.asarray(0.5 * np.mean((x[..., seen] - entries) ** 2, axis=-1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run Frank-Wolfe with every denoiser, and draw the suboptimality."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", default="frank_wolfe.png")
    options = parser.parse_args(arguments)

    def exact(x: Array) -> Array:
        g = np.zeros_like(x)
        g[seen] = (x[seen] - entries) / len(seen)
        return g

    start = np.zeros(ROWS * COLUMNS)
    best = objective(run(FrankWolfe(corner), exact, start, steps=10 * options.calls)[-1])
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    axes = figure.subplots()
    for name, make in DENOISERS.items():
        paths = [
            run(FrankWolfe(corner, denoiser=make()), gradient, start, steps=options.calls,
                rng=np.random.default_rng(seed))
            for seed in range(options.runs)
        ]  # fmt: skip
        gap = np.median(objective(np.array(paths)) - best, axis=0)
        print(f"{name:22s} {gap[-1]:.5f}", flush=True)  # noqa: T201
        axes.plot(np.maximum(gap, 1e-9), label=name)
    axes.set(yscale="log", xlabel="gradients asked for", ylabel="suboptimality")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(options.output, dpi=150)


if __name__ == "__main__":
    main()
