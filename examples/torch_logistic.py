"""COCO around torch.optim: what it gains for the same number of oracle calls.

Two convex problems, SGD and Adam each with and without COCO, on the same examples in the same
order, so that one step is one oracle call for all of them:

- logistic regression on breast_cancer, one example a gradient;
- a linear probe on digits: only the last layer of a network is trained, its features are frozen.

    python examples/torch_logistic.py --output torch_logistic.png

The curves are means over seeds of the loss on all data. The script compares the second half of
each run and says what came out, gain or not.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn

from coco_denoiser.torch import CocoOptimizer

WINDOW = 8


@dataclass(frozen=True)
class Task:
    """A model, its data, and how it is trained."""

    name: str
    features: torch.Tensor
    labels: torch.Tensor
    loss: nn.Module
    model: nn.Module  # what is frozen comes first, what is trained last
    L: float
    batch: int
    rates: dict[str, float]


def standardised(features: np.ndarray) -> torch.Tensor:
    """Return features of mean 0 and variance 1 (constant ones stay 0)."""
    spread = features.std(axis=0)
    return torch.tensor((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def breast_cancer() -> Task:
    """Logistic regression, whose curvature is at most ||A||^2 / 4n."""
    data = load_breast_cancer()
    x = standardised(data.data)
    A = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)  # the intercept's column
    L = float(torch.linalg.matrix_norm(A, 2) ** 2) / (4 * len(A))
    labels = torch.tensor(data.target, dtype=x.dtype)[:, None]
    model = nn.Sequential(nn.Identity(), nn.Linear(x.shape[1], 1, dtype=x.dtype))
    rates = {"SGD": 1.0 / L, "Adam": 0.03}
    return Task("breast_cancer, logistic", x, labels, nn.BCEWithLogitsLoss(), model, L, 1, rates)


def digits() -> Task:
    """A linear probe: softmax regression, whose curvature is at most ||A||^2 / 2n."""
    data = load_digits()
    x = standardised(data.data)
    torch.manual_seed(0)
    frozen = nn.Sequential(nn.Linear(x.shape[1], 128, dtype=x.dtype), nn.ReLU())
    frozen.requires_grad_(requires_grad=False)
    model = nn.Sequential(frozen, nn.Linear(128, 10, dtype=x.dtype))
    seen = frozen(x)
    A = torch.cat([seen, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    L = float(torch.linalg.matrix_norm(A, 2) ** 2) / (2 * len(A))
    rates = {"SGD": 1.0 / L, "Adam": 0.01}
    return Task(
        "digits, linear probe",
        x,
        torch.tensor(data.target),
        nn.CrossEntropyLoss(),
        model,
        L,
        1,
        rates,
    )


def batches(task: Task, steps: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield indices of examples, drawn uniformly: the same ones for every optimizer."""
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield torch.randint(len(task.features), (task.batch,), generator=draw)


def train(task: Task, name: str, steps: int, seed: int, *, coco: bool) -> list[float]:
    """Return the loss on all data, before the first step and after every twentieth."""
    frozen, head = task.model[0], task.model[1]  # type: ignore[index]
    torch.manual_seed(1)
    head.reset_parameters()
    kind = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[name]
    optimizer: torch.optim.Optimizer = kind(task.model.parameters(), lr=task.rates[name])
    if coco:
        optimizer = CocoOptimizer(optimizer, L=task.L, window=WINDOW)
    # Frozen features are the same at every step.
    features = frozen(task.features)
    losses = []
    for step, index in enumerate(batches(task, steps, seed)):
        if step % 20 == 0:
            with torch.no_grad():
                losses.append(float(task.loss(head(features), task.labels)))
        optimizer.zero_grad()
        torch.autograd.backward(task.loss(head(features[index]), task.labels[index]))
        optimizer.step()
    with torch.no_grad():
        losses.append(float(task.loss(head(features), task.labels)))
    return losses


def verdict(plain: np.ndarray, coco: np.ndarray) -> str:
    """Compare the second half of the runs, (seeds, points) each, seed by seed."""
    last = max(1, plain.shape[1] // 2)
    before, after = plain[:, -last:].mean(axis=1), coco[:, -last:].mean(axis=1)
    gain = before - after
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
    if gain.mean() > 2 * error:
        word = "a gain"
    elif gain.mean() < -2 * error:
        word = "a loss: COCO does harm here"
    else:
        word = "no gain beyond the noise"
    return (
        f"{before.mean():.4f} without, {after.mean():.4f} with COCO "
        f"(difference {gain.mean():.4f} +- {error:.4f}): {word}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print what came out, draw the curves."""
    parser = argparse.ArgumentParser(
        description="COCO around SGD and Adam, on two convex problems."
    )
    parser.add_argument("--output", type=Path, default=Path("torch_logistic.png"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the models are small
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for place, task in enumerate((breast_cancer(), digits())):
        axes = figure.add_subplot(1, 2, place + 1)
        print(f"{task.name}: L = {task.L:.3g}, {task.batch} example(s) a step, K = {WINDOW}")  # noqa: T201
        for colour, name in enumerate(task.rates):
            curves = {
                coco: np.array(
                    [
                        train(task, name, options.steps, seed, coco=coco)
                        for seed in range(options.seeds)
                    ]
                )
                for coco in (False, True)
            }
            print(f"  {name}: {verdict(curves[False], curves[True])}")  # noqa: T201
            for coco, curve in curves.items():
                calls = task.batch * np.linspace(0, options.steps, curve.shape[1])
                label = f"{name} with COCO" if coco else name
                style = "-" if coco else ":"
                axes.semilogy(calls, curve.mean(axis=0), style, color=f"C{colour}", label=label)
        axes.set(title=task.name, xlabel="oracle calls (examples)", ylabel="loss on all data")
        axes.legend()
    figure.savefig(options.output, dpi=150)
    print(f"curves: {options.output}")  # noqa: T201


if __name__ == "__main__":
    main()
