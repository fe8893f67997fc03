"""COCO with L = 1 / learning rate on small networks, against what people use.

Three networks learn from 1, 8 or 64 examples a step, at constant rates and at rates that fall along
a cosine: one hidden layer of 32 tanh units on scikit-learn's digits and on its breast cancer data,
and a transformer of one layer on the texts that describe its data sets, letter by letter. Every
method runs at rates over two decades. Printed is the loss on all training data at the rate where
that is least, a mean over the seeds, with the error on held-out data and the rate. SGD and
schedule-free SGD also run for twice as many steps, which take longer than COCO's. The average of
the weights is the best of three exponential ones.

    python examples/torch_inverse_rate.py

All rates and seeds are trained at once and denoised one by one with `Denoiser`, whose gradients are
those of `CocoOptimizer(..., L="1/lr")`. What is trained is kept in inverse-rate.csv, and the same
command goes on from there.
"""

import argparse
import csv
import math
import re
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import datasets
from torch import nn

from coco_denoiser import Denoiser

MEMORIES = (0.9, 0.97, 0.99)  # of the averages of the weights
FACTORS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
LEAST = {1: 0.02, 8: 0.1, 64: 0.5}  # the least rate for a batch
SCHEDULES = ("constant", "cosine")
LENGTH, WIDTH = 8, 16  # of a piece of text, of the transformer


class Task(NamedTuple):
    """A network and what it learns: inputs and classes, and those that are held out.

    The network's weights have one more axis than usual, the first: the runs.
    """

    shapes: list[tuple[int, ...]]
    logits: Callable[[list[torch.Tensor], torch.Tensor], torch.Tensor]
    inputs: torch.Tensor
    targets: torch.Tensor
    held_inputs: torch.Tensor
    held_targets: torch.Tensor

    def start(self, seed: int) -> torch.Tensor:
        """Return initial weights, with variances one over the number of inputs; biases are zero."""
        source = torch.Generator().manual_seed(seed)
        parts = [
            torch.randn(s, generator=source) / math.sqrt(s[0]) if len(s) > 1 else torch.zeros(s)
            for s in self.shapes
        ]
        return torch.cat([part.flatten() for part in parts])

    def losses(self, w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of each run, (runs,)."""
        logits = self.predict(w, x)
        each = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
        return each.view(len(w), -1).mean(1)

    def predict(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return logits, (runs, examples, classes)."""
        parts = w.split([math.prod(shape) for shape in self.shapes], 1)
        pairs = zip(parts, self.shapes, strict=True)
        return self.logits([part.view(-1, *shape) for part, shape in pairs], x)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return a layer of each run."""
    return torch.baddbmm(bias[:, None], x, weight)


def split(inputs: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    """Hold out every fifth example, in random order."""
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(inputs)))
    held, rest = order[::5], order[torch.arange(len(order)) % 5 > 0]
    return [inputs[rest], targets[rest], inputs[held], targets[held]]


def table(load: Callable[[], Any]) -> Task:
    """Return one of scikit-learn's data sets, standardised, for one hidden layer."""
    data = load()
    spread = data.data.std(0)
    inputs = torch.tensor((data.data - data.data.mean(0)) / np.where(spread > 0.0, spread, 1.0))
    features, classes = inputs.shape[1], int(data.target.max()) + 1

    def logits(p: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return linear(linear(x, p[0], p[1]).tanh(), p[2], p[3])

    shapes: list[tuple[int, ...]] = [(features, 32), (32,), (32, classes), (classes,)]
    return Task(shapes, logits, *split(inputs.float(), torch.tensor(data.target)))


def text() -> Task:
    """Return the descriptions of scikit-learn's small data sets, in pieces, for a transformer."""
    names = ("iris", "digits", "wine", "breast_cancer", "diabetes", "linnerud")
    whole = " ".join(getattr(datasets, f"load_{name}")().DESCR for name in names)
    letters = list(re.sub("[^a-z]+", " ", whole.lower()))
    codes = torch.tensor(np.unique(letters, return_inverse=True)[1])
    count, n, d = int(codes.max()) + 1, LENGTH, WIDTH
    pieces = codes[: (len(codes) - 1) // n * n + 1].unfold(0, n + 1, n)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)

    def logits(p: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        runs, batch = x.shape[:2]
        here = torch.bmm(x.reshape(runs, -1, count), p[0]) + p[1].repeat(1, batch, 1)
        mixed = linear(nn.functional.layer_norm(here, (d,)), p[2], p[3])
        q, k, v = mixed.view(runs * batch, n, 3 * d).chunk(3, 2)
        scores = (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(later, -math.inf)
        here = here + linear((scores.softmax(2) @ v).view(runs, -1, d), p[4], p[5])
        hidden = linear(nn.functional.layer_norm(here, (d,)), p[6], p[7]).relu()
        return linear(hidden, p[8], p[9])

    shapes = [(count, d), (n, d)]
    for inputs, outputs in ((d, 3 * d), (d, d), (d, 2 * d), (2 * d, count)):
        shapes += [(inputs, outputs), (outputs,)]  # type: ignore[list-item]
    one_hot = nn.functional.one_hot(pieces[:, :-1], count).float()
    return Task(shapes, logits, *split(one_hot, pieces[:, 1:]))  # type: ignore[arg-type]


TASKS: dict[str, Callable[[], Task]] = {
    "digits": lambda: table(datasets.load_digits),
    "cancer": lambda: table(datasets.load_breast_cancer),
    "text": text,
}


class Sgd:
    """Plain SGD. `w` holds all runs, one a row, where gradients are asked for; so in all below."""

    def __init__(self, w: torch.Tensor) -> None:
        self.w = w

    def step(self, g: torch.Tensor, rates: torch.Tensor) -> None:
        """Take a step with a rate for each run, (runs, 1)."""
        self.w = self.w - rates * g

    def result(self) -> torch.Tensor:
        """Return the weights to judge."""
        return self.w


class ScheduleFree(Sgd):
    """Schedule-free SGD (Defazio and others, 2024) with its default of 0.9."""

    def __init__(self, w: torch.Tensor) -> None:
        super().__init__(w)
        self.z, self.x, self.steps = w, w, 0

    def step(self, g: torch.Tensor, rates: torch.Tensor) -> None:
        """Take a step; gradients are asked for between the iterate and its mean."""
        self.steps += 1
        self.z = self.z - rates * g
        self.x = self.x + (self.z - self.x) / self.steps
        self.w = 0.1 * self.z + 0.9 * self.x

    def result(self) -> torch.Tensor:
        """Return the mean of the iterates."""
        return self.x


class Adam(Sgd):
    """Adam with its default settings."""

    def __init__(self, w: torch.Tensor) -> None:
        super().__init__(w)
        self.m, self.v, self.steps = torch.zeros_like(w), torch.zeros_like(w), 0

    def step(self, g: torch.Tensor, rates: torch.Tensor) -> None:
        """Take a step."""
        self.steps += 1
        self.m, self.v = torch.lerp(g, self.m, 0.9), torch.lerp(g**2, self.v, 0.999)
        size = (self.v / (1.0 - 0.999**self.steps)).sqrt() + 1e-8
        self.w = self.w - rates * self.m / (1.0 - 0.9**self.steps) / size


class Coco(Sgd):
    """SGD with gradients denoised by COCO, with L = 1 / learning rate."""

    def __init__(self, w: torch.Tensor, **settings: Any) -> None:
        super().__init__(w)
        self.bounds = [1.0] * len(w)
        self.denoisers = [
            Denoiser(lambda i=i: self.bounds[i], **settings)  # type: ignore[misc]
            for i in range(len(w))
        ]

    def step(self, g: torch.Tensor, rates: torch.Tensor) -> None:
        """Take a step."""
        self.bounds = (1.0 / rates).flatten().tolist()
        pairs = zip(self.denoisers, self.w.numpy(), g.numpy(), strict=True)
        super().step(torch.from_numpy(np.array([f(x, y) for f, x, y in pairs])), rates)


class Method(NamedTuple):
    """An optimizer, the copies of the parameters that it keeps, and how it is run."""

    make: Callable[[torch.Tensor], Sgd]
    copies: int
    schedules: tuple[str, ...] = SCHEDULES
    longer: int = 1
    least: float | None = None  # the least rate, whatever the batch

    def rates(self, batch: int) -> list[float]:
        """Return rates over two decades."""
        return [(self.least or LEAST[batch]) * factor for factor in FACTORS]


METHODS = {
    "SGD": Method(Sgd, 0),
    "SGD, twice the steps": Method(Sgd, 0, longer=2),
    "schedule-free": Method(ScheduleFree, 1, ("constant",)),
    "schedule-free, twice the steps": Method(ScheduleFree, 1, ("constant",), 2),
    "Adam": Method(Adam, 2, least=0.001),
    "COCO, window 2, fold": Method(lambda w: Coco(w, window=2, forget="fold"), 2),
    "COCO_8": Method(lambda w: Coco(w, window=8), 16),
}


def train(
    data: Task, method: Method, batch: int, schedule: str, steps: int, seeds: int
) -> list[list[float]]:
    """Return a row for each rate and seed: the loss at the end and the error on held-out data.

    First of the last weights, then of each average.
    """
    rates = torch.tensor(method.rates(batch)).repeat_interleave(seeds)[:, None]
    copies = len(rates) // seeds
    optimizer = method.make(torch.stack([data.start(s) for s in range(seeds)]).repeat(copies, 1))
    memory = torch.tensor(MEMORIES)[:, None, None]
    averages = optimizer.w.repeat(len(MEMORIES), 1, 1)
    failed = torch.zeros_like(rates, dtype=torch.bool)
    sources = [np.random.default_rng(seed) for seed in range(seeds)]
    steps *= method.longer
    for k in range(steps):
        now = rates * (1.0 + math.cos(math.pi * k / steps)) / 2 if schedule == "cosine" else rates
        chosen = np.array([rng.integers(len(data.inputs), size=batch) for rng in sources])
        rows = torch.from_numpy(chosen).repeat(copies, 1)
        w = optimizer.w.requires_grad_()
        loss = data.losses(w, data.inputs[rows], data.targets[rows]).sum()
        (g,) = torch.autograd.grad(loss, w)
        optimizer.w = w.detach()
        failed |= ~(g.abs() < 1e6).all(1, keepdim=True)
        optimizer.step(torch.where(failed, 0.0, g), now)
        averages = torch.lerp(optimizer.w, averages, memory)
    found = []
    for w in (optimizer.result(), *averages):
        x, y, held_x, held_y = (part.expand(len(w), *part.shape) for part in data[2:])
        wrong = (data.predict(w, held_x).argmax(2) != held_y.flatten(1)).float().mean(1)
        found += [torch.where(failed[:, 0], math.inf, data.losses(w, x, y)), wrong]
    return torch.stack(found, 1).tolist()  # type: ignore[no-any-return]


Key = tuple[str, str, int, str, int]


def read(path: Path) -> dict[Key, list[list[float]]]:
    """Return what is kept, by task, method, batch, schedule and steps."""
    kept: dict[Key, list[list[float]]] = {}
    if path.exists():
        with path.open(newline="") as file:
            for name, title, batch, schedule, steps, *found in csv.reader(file):
                key = name, title, int(batch), schedule, int(steps)
                kept.setdefault(key, []).append([float(value) for value in found])
    return kept


def write(path: Path, kept: dict[Key, list[list[float]]]) -> None:
    """Replace the file, whole or not at all."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w", newline="") as file:
        csv.writer(file).writerows([*key, *row] for key, rows in kept.items() for row in rows)
    beside.replace(path)


def show(
    kept: dict[Key, list[list[float]]], name: str, batches: list[int], steps: int, seeds: int
) -> None:
    """Print, for every method, what it reaches at its best rate."""
    columns = list(product(SCHEDULES, batches))
    head = "".join(f"{f'{schedule}, {batch}':>22s}" for schedule, batch in columns)
    print(f"\n{name:44s}{head}")  # noqa: T201
    for title, method in METHODS.items():
        cells: dict[str, list[str]] = {f"{title} ({method.copies} copies)": []}
        if method.make is not ScheduleFree:
            cells["  average of the weights (1 more)"] = []
        for schedule, batch in columns:
            own = schedule if schedule in method.schedules else "constant"
            found = np.array(kept[name, title, batch, own, steps])
            means = found.reshape(len(FACTORS), seeds, -1, 2).mean(1)
            for averaged, row in enumerate(cells.values()):
                those = means[:, 1:] if averaged else means[:, :1]
                i, j = np.unravel_index(those[:, :, 0].argmin(), those.shape[:2])
                row.append(
                    f"{those[i, j, 0]:9.4f} {those[i, j, 1]:.3f} {method.rates(batch)[i]:6g}"
                )
        for label, row in cells.items():
            print(f"{label:44s}{''.join(row)}")  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is not in the file yet, and print the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--batches", nargs="+", type=int, choices=LEAST, default=list(LEAST))
    parser.add_argument("--out", type=Path, default=Path("inverse-rate.csv"))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    kept = read(options.out)
    for name in options.tasks:
        data = TASKS[name]()
        for batch, (title, method) in product(options.batches, METHODS.items()):
            for schedule in method.schedules:
                key = name, title, batch, schedule, options.steps
                if len(kept.get(key, ())) != len(FACTORS) * options.seeds:
                    print(*key, file=sys.stderr, flush=True)  # noqa: T201
                    kept[key] = train(data, method, batch, schedule, options.steps, options.seeds)
                    write(options.out, kept)
        show(kept, name, options.batches, options.steps, options.seeds)


if __name__ == "__main__":
    main()
