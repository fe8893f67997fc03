"""A CocoOptimizer step with window=2 that folds, over the wrapped step, against reading vectors.

It has to read four: the point and the residual that it keeps, the parameters and the gradients.
The yardstick is the time that plain torch reductions take to read them, in the same round.
"""

import numpy as np
import torch

from benchmarks.measure import duration, save, table
from benchmarks.torch_step import NUMBERS, SMALL, TENSORS, seconds
from coco_denoiser.torch import CocoOptimizer

ALLOWED = 2.0  # times the reading; small models have some time on top, as in torch-step


def measure(d: int, tensors: int) -> dict[str, float]:
    """Return the least of rounds in which everything is timed once, one after the other.

    The least, because on a busy machine most of so short a time is the machine's.
    """
    torch.manual_seed(0)
    size = d // tensors
    parameters = [torch.nn.Parameter(torch.randn(size)) for _ in range(tensors)]
    gradients = [[torch.randn(size) for _ in parameters] for _ in range(4)]
    plain = torch.optim.SGD(parameters, lr=1e-3)
    coco = CocoOptimizer(torch.optim.SGD(parameters, lr=1e-3), L=1.0, window=2, forget="fold")
    kept: list[torch.Tensor] = []

    def read() -> None:
        for tensor in kept:
            tensor.sum()

    rounds = []
    for number in range(max(40, min(1000, 10**8 // d))):
        for p, g in zip(parameters, gradients[number % 4], strict=True):
            p.grad = g
        times = [seconds(plain.step), seconds(coco.step)]
        block = coco.denoiser.vectors.blocks[0]
        kept = [
            block.points,
            block.residuals,
            *(p.detach() for p in parameters),
            *gradients[number % 4],
        ]
        rounds.append([*times, seconds(read)])
    wrapped, step, reading = np.array(rounds).min(axis=0).tolist()
    extra = step - wrapped
    return {
        "d": d,
        "tensors": tensors,
        "wrapped step": wrapped,
        "extra": extra,
        "reading": reading,
        "extra / reading": extra / reading,
        "extra / allowed": extra / (ALLOWED * reading + SMALL),
    }


def main() -> None:
    results = [measure(d, tensors) for d in NUMBERS for tensors in TENSORS]
    save("torch-fold-step", {"threads": torch.get_num_threads(), "rows": results})
    times = ("wrapped step", "extra", "reading")
    ratios = ("extra / reading", "extra / allowed")
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
