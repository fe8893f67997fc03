"""Adam behind CocoOptimizer with a known L, against Adam alone, at rates from low to high.

On the convex problems of the paper, the error is the mean distance to the minimiser over the last
tenth of a run. On a small network L is that of the first weights, by `hessian_bounds`, which is a
bound there and nowhere else; the error is the loss on all data.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.measure import save, table
from coco_denoiser.paper.problems import LogisticRegression, Problem, Quadratic, datasets
from coco_denoiser.torch import CocoOptimizer, hessian_bounds
from coco_denoiser.typing import Float64

RUNS, STEPS, BATCH = 10, 400, 8
RATES = (1 / 10, 1 / 3, 1.0, 3.0, 10.0)  # times the one given for each task
Run = Callable[[float, int, int], float]  # the error, of a rate, a window (0 for none), a seed


def adam(
    parameters: list[nn.Parameter], rate: float, window: int, L: float
) -> torch.optim.Optimizer:
    inner = torch.optim.Adam(parameters, lr=rate)
    return CocoOptimizer(inner, L=L, window=window) if window else inner


def convex(problem: Problem, start: float) -> Run:
    def run(rate: float, window: int, seed: int) -> float:
        rng, tail = np.random.default_rng(seed), []
        p = nn.Parameter(torch.full((problem.dimension,), start, dtype=torch.float64))
        optimizer = adam([p], rate, window, problem.L)
        for k in range(STEPS):
            p.grad = torch.from_numpy(problem.oracle(p.detach().numpy(), rng))
            optimizer.step()
            if k >= 0.9 * STEPS:
                tail.append(np.linalg.norm(p.detach().numpy() - problem.minimizer))
        return float(np.mean(tail))

    return run


def logistic(data: datasets.Dataset, regularization: float) -> Run:
    return convex(
        LogisticRegression(data.features, data.labels, regularization=regularization), 1.0
    )


def network(rate: float, window: int, seed: int) -> float:
    pixels, classes = datasets.digits()
    inputs = torch.tensor(pixels / 8.0 - 1.0, dtype=torch.float32)
    targets = torch.as_tensor(classes)
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(inputs.shape[1], 32), nn.Tanh(), nn.Linear(32, 10))

    def loss(rows: torch.Tensor | slice = slice(None)) -> torch.Tensor:
        return nn.functional.cross_entropy(model(inputs[rows]), targets[rows])

    L = hessian_bounds(loss, model.parameters()).L
    optimizer = adam(list(model.parameters()), rate, window, L)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(loss(torch.randint(len(inputs), (BATCH,), generator=draw)))
        optimizer.step()
    return loss().item()


def tasks() -> dict[str, tuple[Run, float]]:
    """Return what is run, each with a rate near Adam's best."""
    mushrooms, cancer = datasets.mushrooms(), datasets.breast_cancer()
    return {
        "quadratic": (convex(Quadratic.spaced(10, noise_std=10.0), 100.0), 1.0),
        "fourclass": (logistic(datasets.fourclass(), 0.0), 0.01),
        "mushrooms": (logistic(mushrooms, 1.00001 / len(mushrooms.labels) ** 0.5), 0.03),
        "breast-cancer": (logistic(cancer, 1.00001 / len(cancer.labels) ** 0.5), 0.03),
        "network on digits": (network, 0.01),
    }


def ratio(errors: Float64) -> str:
    """Return what denoising leaves of the error, with its standard error; (2, runs)."""
    alone, denoised = errors
    found = denoised.mean() / alone.mean()
    spread = (denoised - found * alone).std(ddof=1) / alone.mean() / len(alone) ** 0.5
    return f"{found:.2f} ± {spread:.2f}"


def main() -> None:
    rows, kept = [], {}
    for name, (run, typical) in tasks().items():
        errors = np.array(
            [
                [[run(f * typical, window, seed) for seed in range(RUNS)] for window in (0, 16)]
                for f in RATES
            ]
        )
        kept[name] = errors.tolist()
        best = errors.mean(axis=2).argmin(axis=0)  # of each
        own = np.stack([errors[best[0], 0], errors[best[1], 1]])
        rows.append((name, f"{typical:g}", *map(ratio, errors), ratio(own)))
    save("torch-adam", kept)
    print(table(("task", "rate", *(f"x {f:.2g}" for f in RATES), "each at its best"), rows))
