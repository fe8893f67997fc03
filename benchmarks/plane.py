"""Windows of few dimensions, hard ones included, against Clarabel: means, and the slowest.

A step of Denoiser along SGD, STRSAGA and Adam on the paper's fourclass data and on quadratics with
noise, where more pairs are at their bounds than residuals have degrees of freedom; and `solve` on
the families of the fuzz, by dimension. Every step of a run counts, the shortest of three for each,
since other work on the machine would otherwise be the maximum. Clarabel gets every eighth window
of a run, likewise, one thread and the faster of its two factorisations, at its default tolerance
and at 1e-9; the ratio is to the faster.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

import coco_denoiser as coco
from benchmarks import peers
from benchmarks.measure import duration, save, table
from coco_denoiser.paper.optimizers import SGD, STRSAGA, Adam
from coco_denoiser.paper.problems import DatasetError, LogisticRegression, datasets
from coco_denoiser.typing import Array, Float64
from tests.families import FAMILIES

STEPS, REPEAT, EVERY = 400, 3, 8
SEEDS = range(3, 6)  # constants of Newton's method were chosen on 0 to 2
DIMENSIONS = (1, 2, 3, 5)


class Recorder:
    """A denoiser that also keeps what it is given, divided by L."""

    def __init__(self, L: float, K: int) -> None:
        self.L, self.denoiser = L, coco.Denoiser(L=L, window=K)
        self.points: list[Float64] = []
        self.gradients: list[Float64] = []

    def __call__(self, x: Array, g: Array) -> Array:
        """Denoise."""
        self.points.append(np.array(x, np.float64))
        self.gradients.append(np.array(g, np.float64) / self.L)
        return self.denoiser(x, g)


def fourclass() -> Iterator[tuple[str, int, Float64, Float64]]:
    """Yield observations along the paper's runs, with L = 1."""
    data = datasets.fourclass()
    problem = LogisticRegression(data.features, data.labels)
    makers: dict[str, Any] = {
        "SGD": lambda d: SGD(1.0 / problem.L, denoiser=d),
        "STRSAGA": lambda d: STRSAGA(1.0 / problem.L, denoiser=d),
        "Adam": lambda d: Adam(80.0 / problem.L, denoiser=d),
    }
    for name, make in makers.items():
        for K in (4, 8, 16):
            for seed in SEEDS:
                recorder, rng = Recorder(problem.L, K), np.random.default_rng(seed)
                optimizer, x = make(recorder), np.ones(problem.dimension)
                for _ in range(STEPS):
                    x = optimizer.advance(problem, x, rng)
                points, gradients = np.array(recorder.points), np.array(recorder.gradients)
                yield f"fourclass, {name}", K, points, gradients


def quadratics() -> Iterator[tuple[str, int, Float64, Float64]]:
    """Yield observations with noise 10 along SGD paths with step 0.7/L."""
    for d in DIMENSIONS:
        for seed in SEEDS:
            rng = np.random.default_rng([d, seed])
            curvature, x = np.linspace(1.0, 1.0 / 3.0, d), np.full(d, 100.0)
            points, gradients = np.empty((STEPS, d)), np.empty((STEPS, d))
            for k in range(STEPS):
                points[k], gradients[k] = x, x * curvature + 10.0 * rng.normal(size=d)
                x = x - 0.7 * gradients[k]
            yield f"quadratic, d={d}", 16, points, gradients


@dataclass
class Row:
    """Times in seconds, and who answered how often."""

    what: str
    ours: list[float] = field(default_factory=list)
    clarabel: list[float] = field(default_factory=list)
    clarabel_tight: list[float] = field(default_factory=list)
    methods: Counter[str] = field(default_factory=Counter)
    short: int = 0

    def answered(self, seconds: float, found: coco.Solution) -> None:
        """Count an answer of ours."""
        self.ours.append(seconds)
        self.methods[found.method] += 1
        self.short += not found.status.success

    def ask_clarabel(self, points: Float64, gradients: Float64, **problem: Any) -> None:
        """Time Clarabel on a window."""
        for times, tol in ((self.clarabel, None), (self.clarabel_tight, 1e-9)):
            given = dict(problem, one_thread=True, tol=tol)
            seconds = (peers.clarabel_seconds(points, gradients, **given) for _ in range(REPEAT))
            times.append(min(seconds))


def streams() -> list[Row]:
    """Every step with a full window, all seeds together."""
    rows: dict[str, Row] = {}
    try:
        runs = chain(fourclass(), quadratics())
        datasets.fourclass()
    except DatasetError as error:
        print(f"fourclass is left out: {error}")
        runs = chain(quadratics())
    for name, K, points, gradients in runs:
        row = rows.setdefault(f"{name}, K={K}", Row(f"{name}, K={K}"))
        denoisers = [coco.Denoiser(L=1.0, window=K) for _ in range(REPEAT)]
        for k, (x, g) in enumerate(zip(points, gradients, strict=True)):
            seconds = min(_seconds(denoiser, x, g) for denoiser in denoisers)
            if k >= K:
                row.answered(seconds, denoisers[0].solution)
        for k in range(0, len(points) - K, EVERY):
            row.ask_clarabel(points[k : k + K], gradients[k : k + K])
        print(f"  {row.what} done", file=sys.stderr)
    return list(rows.values())


def fuzzed() -> list[Row]:
    """`solve` on every family of the fuzz with the same noise in all directions, by dimension."""
    rows = []
    for d in DIMENSIONS:
        row = Row(f"fuzz, d={d}, K=8 and 16")
        for number, (draw, K) in enumerate((f, K) for f in FAMILIES.values() for K in (8, 16)):
            case = draw(np.random.default_rng([number, d]), K, d)
            if case.covariance is None:
                given: Any = {"L": case.L, "mu": case.mu, "noise_variance": case.noise_variance}
                known: Any = {"model": coco.Cocoercive(case.L, case.mu), "throw": False}
                solve: Any = partial(coco.solve, **known, noise_variance=case.noise_variance)
                window = case.points, case.gradients
                row.answered(min(_seconds(solve, *window) for _ in range(REPEAT)), solve(*window))
                row.ask_clarabel(*window, **given)
        rows.append(row)
        print(f"  {row.what} done", file=sys.stderr)
    return rows


def _seconds(function: Callable[..., object], *given: Array) -> float:
    start = time.perf_counter()
    function(*given)
    return time.perf_counter() - start


def report(rows: list[Row]) -> str:
    """The tables: times, and who answered."""
    times, shares = [], []
    for row in rows:
        mean, peer, tight = map(np.mean, (row.ours, row.clarabel, row.clarabel_tight))
        spread = (np.median(row.ours), np.quantile(row.ours, 0.99), max(row.ours))
        mine = [duration(float(s)) for s in (mean, *spread)]
        times.append([row.what, *mine, duration(float(peer)), f"{min(peer, tight) / mean:.0f}x"])
        total = row.methods.total()
        found = [f"{name} {n / total:.1%}" for name, n in row.methods.most_common() if n]
        shares.append([row.what, duration(float(tight)), str(row.short), ", ".join(found)])
    head = ["what", "mean", "median", "p99", "max", "Clarabel, mean", "ratio"]
    more = ["what", "Clarabel at 1e-9", "short", "answered by"]
    return f"{table(head, times)}\n\n{table(more, shares)}"


def main() -> None:
    """Measure, save and print."""
    rows = [*streams(), *fuzzed()]
    path = save("plane", [vars(row) for row in rows])
    print(report(rows))
    print(f"\nraw numbers: {path}")
