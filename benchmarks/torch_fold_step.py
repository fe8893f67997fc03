"""A CocoOptimizer step with window=2 that folds, over the wrapped step, against reading vectors.

It has to read four: the point and the residual that it keeps, the parameters and the gradients.
What plain torch reductions take to read them, in the same round, is the measure.
"""

import numpy as np
import torch

from benchmarks.measure import duration, save, table
from benchmarks.torch_step import NUMBERS, SMALL, TENSORS, seconds
from coco_denoiser.torch import CocoOptimizer

ALLOWED = 2.0  # times the reading; small models have some time on top, as in torch-step


def measure(d: int, tensors: int) -> dict[str, float]:
    """Return medians over rounds in which everything is timed once, one after the other."""
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
    for number in range(3 + max(15, min(300, 10**7 // d))):
        for p, g in zip(parameters, gradients[number % 4], strict=True):
            p.grad = g
        times = [seconds(plain.step), seconds(coco.step)]
        kept = [
            *coco.denoiser.rings[0].tensors(),
            *(p.detach() for p in parameters),
            *gradients[number % 4],
        ]
        rounds.append([*times, seconds(read)])
    # The first rounds compile, allocate and fill the window.
    wrapped, step, reading = np.array(rounds[3:]).T
    extra = step - wrapped
    every = {
        "wrapped step": wrapped,
        "extra": extra,
        "reading": reading,
        "extra / reading": extra / reading,
        "extra / allowed": extra / (ALLOWED * reading + SMALL),
    }
    return {"d": d, "tensors": tensors, **{name: float(np.median(v)) for name, v in every.items()}}


def main() -> None:
    results = [measure(d, tensors) for d in NUMBERS for tensors in TENSORS]
    save("torch-fold-step", {"threads": torch.get_num_threads(), "rows": results})
    times, ratios = (
        ("wrapped step", "extra", "reading"),
        ("extra / reading", "extra / allowed"),
    )
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
