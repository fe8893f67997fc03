"""A CocoOptimizer step with window=2 that folds, over the wrapped step, against reading vectors.

It has to read four: the point and the residual that it keeps, the parameters and the gradients.
The yardstick is the time that plain torch reductions take to read them, in the same round.
"""

from benchmarks.torch_step import NUMBERS, TENSORS, measure, report

ALLOWED = 2.0  # times the reading; small models have some time on top, as in torch-step


def main() -> None:
    options = {"window": 2, "forget": "fold"}
    results = [measure(d, tensors, ALLOWED, **options) for d in NUMBERS for tensors in TENSORS]
    report("torch-fold-step", ALLOWED, results)
