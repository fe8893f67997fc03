"""A CocoOptimizer step over the wrapped step, against reading its window.

A step has to read the window once for the two new rows of the tables and the residuals once more
for the weighted sum: 3 K d numbers. The yardstick for what denoising adds to a step is the time
that plain torch reductions take to read as many, over the window's own tensors, in the same run.
The window lies in memory as two blocks. It is read once as such, which is the stricter measure,
and once parameter by parameter, which is what reading many tensors with torch costs anyone.
"""

import time
from collections.abc import Callable, Sequence
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
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(d: int, tensors: int) -> dict[str, float]:
    """Return the least of rounds in which everything is timed once, one after the other.

    The least, because on a busy machine most of so short a time is the machine's.
    """
    torch.manual_seed(0)
    size = d // tensors
    parameters = [torch.nn.Parameter(torch.randn(size)) for _ in range(tensors)]
    gradients = [[torch.randn(size) for _ in parameters] for _ in range(4)]
    plain = torch.optim.SGD(parameters, lr=1e-3)
    coco = CocoOptimizer(torch.optim.SGD(parameters, lr=1e-3), L=1.0, window=K)
    for number in range(2 * K):
        for p, g in zip(parameters, gradients[number % 4], strict=True):
            p.grad = g
        coco.step()
    window = coco.denoiser.stream.window
    block = coco.denoiser.vectors.blocks[0]
    points, residuals = block.points, block.residuals
    blocks = (points, residuals, residuals)
    parts = [ring[:, t * size : (t + 1) * size] for ring in blocks for t in range(tensors)]

    def read(window: Sequence[torch.Tensor]) -> None:
        for tensor in window:
            tensor.sum()

    rounds = []
    for number in range(max(15, min(400, 10**8 // d))):
        for p, g in zip(parameters, gradients[number % 4], strict=True):
            p.grad = g
        rounds.append(
            [
                seconds(plain.step),
                seconds(coco.step),
                seconds(lambda: read(blocks)),
                seconds(lambda: read(parts)),
                # What the step leaves to the core: the K by K problem, whatever d is.
                seconds(lambda: coco.denoiser.model.estimate(window, coco.denoiser.stream.limits)),
            ]
        )
    wrapped, step, reading, by_tensor, solving = np.array(rounds).min(axis=0).tolist()
    extra = step - wrapped
    return {
        "d": d,
        "tensors": tensors,
        "wrapped step": wrapped,
        "extra": extra,
        "reading": reading,
        "by tensor": by_tensor,
        "solving": solving,
        "extra / reading": extra / reading,
        "extra / allowed": extra / (ALLOWED * reading + SMALL),
        "extra / allowed by tensor": extra / (ALLOWED * by_tensor + SMALL),
    }


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
    save("torch-step", {"threads": torch.get_num_threads(), "rows": results})
    times = ("wrapped step", "extra", "reading", "by tensor", "solving")
    ratios = ("extra / reading", "extra / allowed", "extra / allowed by tensor")
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
    print(f"allowed: {ALLOWED} x reading + {duration(SMALL)}; {torch.get_num_threads()} thread(s)")
    path = RESULTS / "torch-step.png"
    draw(results).savefig(path, dpi=150)
    print(f"plot: {path}")
