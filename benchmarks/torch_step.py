"""A CocoOptimizer step over the wrapped step, against reading its window.

A step has to read the window once for the two new rows of the tables and the residuals once more
for the weighted sum: 3 K d numbers. The yardstick for what denoising adds to a step is the time
that plain torch reductions take to read as many, over the window's own tensors, in the same run.
Times are those of this thread on a processor, which another process on the machine hardly changes.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.measure import RESULTS, duration, save, table
from coco_denoiser.torch import CocoOptimizer

K = 8
NUMBERS = (10**4, 10**5, 10**6, 10**7)
TENSORS = (1, 100)
ALLOWED, SMALL = 1.5, 150e-6  # times the reading; seconds on top of that, for small models


def seconds(function: Callable[[], object]) -> float:
    start = time.thread_time()
    function()
    return time.thread_time() - start


def measure(d: int, tensors: int, allowed: float = ALLOWED, **options: Any) -> dict[str, float]:
    """Return the least of rounds in which everything is timed once, one after the other.

    The least, because on a busy machine most of so short a time is the machine's.
    """
    torch.manual_seed(0)
    size = d // tensors
    parameters = [torch.nn.Parameter(torch.randn(size)) for _ in range(tensors)]
    gradients = [[torch.randn(size) for _ in parameters] for _ in range(4)]
    plain = torch.optim.SGD(parameters, lr=1e-3)
    options = {"window": K, **options}
    coco = CocoOptimizer(torch.optim.SGD(parameters, lr=1e-3), L=1.0, **options)

    def give(number: int) -> list[torch.Tensor]:
        for p, g in zip(parameters, gradients[number % 4], strict=True):
            p.grad = g
        return [*(p.detach() for p in parameters), *gradients[number % 4]]

    for number in range(2 * K):
        give(number)
        coco.step()
    blocks = [pair for b in coco.denoiser.blocks for pair in (b.points, b.residuals)]
    rounds = []
    for number in range(max(15, min(400, 10**8 // d))):
        new = give(number)
        # A window of one slot is as large as the observation, which counts then.
        read = [*blocks, *(new if len(blocks[0]) == 1 else blocks[1::2])]
        timed = (plain.step, coco.step, lambda read=read: [tensor.sum() for tensor in read])
        rounds.append([seconds(each) for each in timed])
    wrapped, step, reading = np.array(rounds).min(axis=0).tolist()
    extra = step - wrapped
    return {
        "d": d,
        "tensors": tensors,
        "wrapped step": wrapped,
        "extra": extra,
        "reading": reading,
        "extra / reading": extra / reading,
        "extra / allowed": extra / (allowed * reading + SMALL),
    }


def report(name: str, allowed: float, results: list[dict[str, float]]) -> None:
    """Save and print what was measured."""
    save(name, {"threads": torch.get_num_threads(), "rows": results})
    times, ratios = ("wrapped step", "extra", "reading"), ("extra / reading", "extra / allowed")
    rows = [
        (
            f"{row['d']:.0e}",
            str(int(row["tensors"])),
            *(duration(row[name]) for name in times),
            *(f"{row[name]:.2f}" for name in ratios),
        )
        for row in results
    ]
    print(table(("d", "tensors", *times, *ratios), rows))
    print(f"allowed: {allowed} x reading + {duration(SMALL)}; {torch.get_num_threads()} thread(s)")


def draw(results: list[dict[str, float]]) -> Figure:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes: Any = figure.add_subplot()
    for tensors, mark in zip(TENSORS, ("o-", "s-"), strict=True):
        rows = [row for row in results if row["tensors"] == tensors]
        d = [row["d"] for row in rows]
        name = "1 tensor" if tensors == 1 else f"{tensors} tensors"
        (line,) = axes.loglog(d, [row["extra"] for row in rows], mark, label=f"extra, {name}")
        allowed = [ALLOWED * row["reading"] + SMALL for row in rows]
        axes.loglog(d, allowed, "--", color=line.get_color(), label=f"allowed, {name}")
    reading = [row["reading"] for row in results if row["tensors"] == 1]
    axes.loglog(NUMBERS, reading, "k:", label="reading 3 K d numbers")
    axes.set(xlabel="parameters d", ylabel="seconds", title=f"What denoising adds to a step, K={K}")
    axes.legend()
    return figure


def main() -> None:
    results = [measure(d, tensors) for d in NUMBERS for tensors in TENSORS]
    report("torch-step", ALLOWED, results)
    path = RESULTS / "torch-step.png"
    draw(results).savefig(path, dpi=150)
    print(f"plot: {path}")
