"""Small networks in PyTorch: does the Gaussian model help, and which optimizers?

A network with one hidden layer of 32 tanh units learns two of scikit-learn's data sets, 8 examples
a step: the digits (classes) and diabetes (a number). SGD with and without momentum, Adam and AdamW
run as they are and with gradients denoised by `CocoOptimizer`, at rates over two decades. Adam
also runs with denoised gradients over second moments of the raw ones, with its momentum and
without. What is printed is the loss on all data, as a mean over the seeds: of the last weights
and of an exponential average of the weights.

    python examples/torch_networks.py

Every run is kept in networks.csv, and the same command goes on from there.
"""

import argparse
import csv
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits

from coco_denoiser import Gaussian
from coco_denoiser.torch import CocoOptimizer, GradientDenoiser

BATCH, HIDDEN, MEMORY = 8, 32, 0.99
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
WEIGHTS = ("last weights", "average")

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Parameters = list[torch.nn.Parameter]


class Task(NamedTuple):
    """What is learnt: inputs, targets, the number of outputs, the loss, and the rates for SGD."""

    inputs: torch.Tensor
    targets: torch.Tensor
    outputs: int
    loss: Loss
    rates: tuple[float, ...]


def digits() -> Task:
    """Return images of 8 by 8 pixels, of ten classes."""
    table = load_digits()
    inputs = torch.tensor(table.data / 8.0 - 1.0, dtype=torch.float32)
    return Task(
        inputs, torch.tensor(table.target), 10, torch.nn.functional.cross_entropy, RATES[3:]
    )


def diabetes() -> Task:
    """Return ten measurements of patients, and how the disease went on; all standardised."""
    table = load_diabetes()
    columns = [(v - v.mean(0)) / v.std(0) for v in (table.data, table.target[:, None])]
    inputs, targets = (torch.tensor(column, dtype=torch.float32) for column in columns)
    return Task(inputs, targets, 1, torch.nn.functional.mse_loss, RATES[2:7])


class RawMoments(torch.optim.Optimizer):
    """Adam with denoised gradients over second moments of the raw ones, which keep its steps."""

    def __init__(self, parameters: Parameters, lr: float, beta: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self._denoiser, self._beta, self._steps = (
            GradientDenoiser(parameters, model=Gaussian()),
            beta,
            0,
        )
        self._moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Take a step."""
        del closure
        self._steps += 1
        for p, _, second in self._moments:
            second.lerp_(p.grad**2, 0.001)  # type: ignore[operator]
        self._denoiser.denoise()
        rate = self.param_groups[0]["lr"] / (1.0 - self._beta**self._steps)
        for p, first, second in self._moments:
            first.lerp_(p.grad, 1.0 - self._beta)  # type: ignore[arg-type]
            size = (second / (1.0 - 0.999**self._steps)).sqrt() + 1e-8
            p.addcdiv_(first, size, value=-rate)


class Method(NamedTuple):
    """An optimizer and, by name, the one that it is compared with."""

    name: str
    make: Callable[[Parameters, float], torch.optim.Optimizer]
    alone: str

    def rates(self, task: Task) -> tuple[float, ...]:
        """Return two decades of rates; momentum 0.9 makes steps ten times as long."""
        if self.alone.startswith("Adam"):
            return RATES[:5]
        first = RATES.index(task.rates[0]) - (2 if self.alone == "momentum" else 0)
        return RATES[first : first + 5]


def denoised(name: str, make: Callable[..., torch.optim.Optimizer]) -> list[Method]:
    """Return an optimizer as it is, and with the Gaussian model around it."""
    return [
        Method(name, make, name),
        Method(
            f"{name}, denoised", lambda p, lr: CocoOptimizer(make(p, lr), model=Gaussian()), name
        ),
    ]


METHODS = [
    *denoised("SGD", lambda p, lr: torch.optim.SGD(p, lr=lr)),
    *denoised("momentum", lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)),
    *denoised("Adam", lambda p, lr: torch.optim.Adam(p, lr=lr)),
    *denoised("AdamW", lambda p, lr: torch.optim.AdamW(p, lr=lr)),
    Method("Adam, raw moments", lambda p, lr: RawMoments(p, lr, 0.9), "Adam"),
    Method("Adam, raw moments, beta1=0", lambda p, lr: RawMoments(p, lr, 0.0), "Adam"),
]
TASKS = {"digits": digits, "diabetes": diabetes}


def train(task: Task, method: Method, rate: float, steps: int, seed: int) -> tuple[float, ...]:
    """Return the loss before, of the last weights, and of an average of the weights."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(task.inputs.shape[1], HIDDEN),
        torch.nn.Tanh(),
        torch.nn.Linear(HIDDEN, task.outputs),
    )
    parameters = list(model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that Adam is not what this is meant for
        optimizer = method.make(parameters, rate)

    @torch.no_grad()
    def loss() -> float:
        return float(task.loss(model(task.inputs), task.targets))

    found, average = [loss()], [p.detach().clone() for p in parameters]
    for _ in range(steps):
        batch = torch.as_tensor(rng.choice(len(task.inputs), BATCH, replace=False))
        optimizer.zero_grad()
        task.loss(model(task.inputs[batch]), task.targets[batch]).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, p in zip(average, parameters, strict=True):
                mean.lerp_(p, 1.0 - MEMORY)
    found.append(loss())
    with torch.no_grad():
        for p, mean in zip(parameters, average, strict=True):
            p.copy_(mean)
    return (*found, loss())


Key = tuple[str, str, str, str, str]


def read(path: Path) -> dict[Key, list[str]]:
    """Return the runs that are kept: task, method, rate, steps and seed, and the three losses."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    return {(row[0], row[1], row[2], row[3], row[4]): row[5:] for row in rows}


def write(path: Path, kept: dict[Key, list[str]]) -> None:
    """Replace the file, whole or not at all."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", newline="") as file:
        csv.writer(file).writerows([*key, *losses] for key, losses in kept.items())
    beside.replace(path)


def show(kept: dict[Key, list[str]], name: str, steps: int, seeds: int) -> None:
    """Print the means over the seeds, and what denoising changed."""
    means: dict[str, np.ndarray] = {}
    task = TASKS[name]()
    for method in METHODS:
        keys = [
            [(name, method.name, f"{rate:g}", str(steps), str(seed)) for seed in range(seeds)]
            for rate in method.rates(task)
        ]
        table = np.array([[[float(v) for v in kept[key]] for key in row] for row in keys])
        table[np.isnan(table)] = math.inf
        means[method.name] = found = table.mean(1)
        rates = " ".join(f"{rate:>8g}" for rate in method.rates(task))
        print(f"\n{name + ', ' + method.name:36s} {rates}")  # noqa: T201
        for which, weights in enumerate(WEIGHTS, 1):
            losses = " ".join(
                f"{value:8.3f}" if value <= before else f"{'fails':>8s}"
                for before, value in found[:, [0, which]]
            )
            print(f"{weights:>36s} {losses}")  # noqa: T201
    print(f"\n{name}: loss over that of the same optimizer alone, where that does not fail")  # noqa: T201
    for method in METHODS:
        if method.name == method.alone:
            continue
        ours, alone = means[method.name], means[method.alone]
        for which, weights in enumerate(WEIGHTS, 1):
            fair = alone[:, which] <= alone[:, 0]
            ratio = ours[fair, which] / alone[fair, which]
            best = ours[:, which].min() / alone[:, which].min()
            print(  # noqa: T201
                f"{method.name + ', ' + weights:42s} worst {ratio.max():.2f}, more than 2% worse "
                f"at {(ratio > 1.02).sum()} of {fair.sum()} rates, best rate over best rate "
                f"{best:.2f}"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is not in the file yet, and print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--out", type=Path, default=Path("networks.csv"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kept = read(options.out)
    for name in options.tasks:
        task = TASKS[name]()
        runs = [
            (method, rate, seed)
            for method, seed in product(METHODS, range(options.seeds))
            for rate in method.rates(task)
        ]
        for done, (method, rate, seed) in enumerate(runs):
            key = (name, method.name, f"{rate:g}", str(options.steps), str(seed))
            if key not in kept:
                print(f"\r{name}: {done} of {len(runs)} runs", end="", file=sys.stderr, flush=True)  # noqa: T201
                found = train(task, method, rate, options.steps, seed)
                kept[key] = [repr(value) for value in found]
                write(options.out, kept)
        print(f"\r{name}: {len(runs)} runs done     ", file=sys.stderr)  # noqa: T201
        show(kept, name, options.steps, options.seeds)


if __name__ == "__main__":
    main()
