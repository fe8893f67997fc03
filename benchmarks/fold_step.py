"""A step of the recursive filter, Denoiser(window=2, forget="fold"), against reading its vectors.

It has to read four vectors: the point and the residual that it keeps, and the observation. The
yardstick is the time that NumPy takes to add up as many numbers, in the same round. A window of
two that forgets, which keeps four vectors, is shown beside it.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import duration, save, table
from coco_denoiser import Denoiser

NUMBERS = (10**3, 10**4, 10**5, 10**6, 10**7)


def _seconds(function: Callable[..., object], *arguments: NDArray[np.float64]) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _read(*vectors: NDArray[np.float64]) -> None:
    for vector in vectors:
        vector.sum()


def measure(d: int) -> dict[str, float]:
    """Return medians over rounds in which everything is timed once, one after the other."""
    rng = np.random.default_rng(0)
    observations = [(0.01 * rng.normal(size=d), rng.normal(size=d)) for _ in range(3)]
    folding, forgetting = Denoiser(L=1.0, window=2, forget="fold"), Denoiser(L=1.0, window=2)
    rounds = []
    for number in range(max(15, min(300, 10**7 // d))):
        x, g = observations[number % 3]
        past, before = observations[(number + 1) % 3]
        rounds.append(
            [
                _seconds(folding, x, g),
                _seconds(forgetting, x, g),
                _seconds(_read, x, g, past, before),
            ]
        )
    # The first rounds allocate and fill the windows.
    fold, forget, reading = np.array(rounds[3:]).T
    every = {"fold": fold, "forget": forget, "reading": reading, "fold / reading": fold / reading}
    return {"d": d, **{name: float(np.median(v)) for name, v in every.items()}}


def main() -> None:
    results = [measure(d) for d in NUMBERS]
    save("fold-step", results)
    times = ("fold", "forget", "reading")
    rows = [
        (f"{row['d']:.0e}", *(duration(row[n]) for n in times), f"{row['fold / reading']:.2f}")
        for row in results
    ]
    print(table(("d", *times, "fold / reading"), rows))
