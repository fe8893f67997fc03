"""Paths of optimizers on the same noise, and the statistics of how they differ.

Runs go side by side, since Python would spend most of their time otherwise. They are started once
for every method, each time from the same state of the generator: what differs between two curves
is the method alone, and differences are taken run by run.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from coco_denoiser import Cocoercive, ConvergenceWarning, Denoiser, Gaussian
from coco_denoiser.paper import optimizers
from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit, generator
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.optimizers import SGD, Optimizer
from coco_denoiser.paper.problems import Problem
from coco_denoiser.typing import Array, Float64

# Far below the noise, which is what a step of an optimizer can make use of.
TOLERANCE = 1e-6
SHORT = "steps short of the tolerance"
_BLOCK = 20  # runs of a unit, which go side by side


class Method(NamedTuple):
    """A series: its name, how its optimizer is made for a problem, and what is recorded."""

    series: str
    make: Callable[[Problem], Optimizer]
    averaged: bool = False


class Race(NamedTuple):
    """Methods on one problem and the same noise, which has a name, all from one start."""

    noise: str
    problem: Problem
    methods: Sequence[Method]
    start: float | Array
    steps: int


def named(name: str, L: float) -> "Rows":
    """Return the denoiser of a name: COCO_8, COCO of all points, fold 2, Gaussian_32 without L."""
    kind, _, window = name.replace(" ", "_").partition("_")
    size = int(window) if window else None
    if kind == "Gaussian":
        return Rows(lambda: Denoiser(model=Gaussian(), window=size))
    forget: Literal["drop", "fold"] = "fold" if kind == "fold" else "drop"
    model = Cocoercive(L, tol=TOLERANCE)
    return Rows(lambda: Denoiser(model=model, window=size, forget=forget))


def coco_name(base: str, window: int | None) -> str:
    """Return the paper's name of a method with a window: SGD, SGD+COCO_2, …, SGD+COCO."""
    if window == 1:
        return base
    return f"{base}+COCO" if window is None else f"{base}+COCO_{window}"


def helped(
    base: str,
    window: int | None,
    make: Callable[..., Optimizer],
    step: Callable[[Problem], float],
    *,
    forget: str = "drop",
) -> Method:
    """Return a method with COCO_K, from what makes its optimizer and its step on a problem.

    K=1 is no denoiser, and None keeps all points.
    """
    series = coco_name(base, window)
    kind = series[len(base) + 1 :]
    if forget == "fold":
        series, kind = f"{series}, folding", kind.replace("COCO", "fold")
    return Method(
        series,
        lambda of: make(step(of), denoiser=named(kind, of.L) if kind else None),
    )


def sgd(window: int | None, step: float = 1.0, *, forget: str = "drop") -> Method:
    """Return SGD+COCO_K, with a step in multiples of 1/L."""
    return helped("SGD", window, SGD, lambda problem: step / problem.L, forget=forget)


DECREASING = Method("SGD+DecreasingSS", lambda problem: SGD(optimizers.decreasing(1 / problem.L)))


@contextmanager
def short_windows() -> Iterator[Callable[[], int]]:
    """Yield what counts the windows inside that are solved to less than the tolerance."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield lambda: sum(issubclass(w.category, ConvergenceWarning) for w in caught)


class Rows:
    """A denoiser for every run of a batch."""

    def __init__(self, make: Callable[[], Denoiser]) -> None:
        self._make = make
        self.reset()

    def reset(self) -> None:
        """Forget all windows."""
        self.denoisers: list[Denoiser] = []

    def __call__(self, x: Array, g: Array) -> Array:
        """Denoise every run's gradient (runs, d) by its own past."""
        self.denoisers = self.denoisers or [self._make() for _ in x]
        return np.stack([d(*row) for d, *row in zip(self.denoisers, x, g, strict=True)])


@dataclass(frozen=True)
class Paths(Experiment):
    """Follows every method of its races, the runs of a unit side by side."""

    @abstractmethod
    def races(self) -> Mapping[str, Race]:
        """Return the races, by the prefix of what is recorded of them."""

    def count(self) -> int:
        return -(-self.runs // _BLOCK)

    def unit(self, index: int) -> Unit:
        """Follow the runs of one block.

        Returns:
            By prefix of the race and series, the distances to the minimiser (runs, steps + 1), and
            the share of steps whose window was solved to less than the tolerance.
        """
        unit: dict[str, Float64] = {}
        runs = min(_BLOCK, self.runs - _BLOCK * index)
        for prefix, (noise, problem, methods, at, steps) in self.races().items():
            start = np.full((runs, problem.dimension), at)
            for series, make, averaged in methods:
                rng = generator(self, noise, index)
                with short_windows() as short:
                    path = optimizers.run(make(problem), problem, start, steps=steps, rng=rng)
                if averaged:
                    path = optimizers.tail_average(path)
                distance = np.linalg.norm(path - problem.minimizer, axis=-1)
                unit[f"{prefix}{series} distance"] = np.ascontiguousarray(distance.T)
                unit[f"{prefix}{series} steps short"] = np.array([short() / steps / runs])
        return unit


def gather(
    curves: Curves,
    units: Sequence[Unit],
    series: Sequence[str],
    *,
    early: int,
    late: int,
    prefix: str = "",
) -> None:
    """Add the means of every series, and the means of all pairwise differences in each regime.

    The steps 1..early are those where the start is forgotten; in the last ones noise dominates.
    """
    distance = distances(units, series, prefix)
    for name in series:
        curves.add(f"{prefix}distance", name, np.arange(distance[name].shape[1]), distance[name])
    steps = distance[series[0]].shape[1] - 1
    for regime, part in (
        ("early", slice(1, early + 1)),
        ("late", slice(steps + 1 - late, steps + 1)),
    ):
        means = {name: distance[name][:, part].mean(axis=1, keepdims=True) for name in series}
        curves.compare(f"{prefix}{regime}", part.start, means)
    for name in series:
        short = np.stack([unit[f"{prefix}{name} steps short"] for unit in units])
        curves.exact(f"{prefix}{SHORT}", name, TOLERANCE, short.mean())


def distances(units: Sequence[Unit], series: Sequence[str], prefix: str = "") -> dict[str, Float64]:
    """Return the distances of all runs, (runs, steps + 1), by series."""
    return {n: np.concatenate([unit[f"{prefix}{n} distance"] for unit in units]) for n in series}


def panel(name: str, title: str, series: Sequence[str], **options: Any) -> Panel:
    """Return the panel of distances over the oracle calls."""
    return Panel(name, title, "oracle calls k", "‖xₖ − x*‖", tuple(series), log="y", **options)


def solved(curves: Curves) -> Claim:
    """Claim that the windows were solved, or say how many were not."""
    shares = [curve.mean[0] for (panel, _), curve in curves.items() if panel.endswith(SHORT)]
    return Judge(1).at_most(
        "Every window was solved to the tolerance.",
        float(max(shares)),
        0.0,
        measure=f"largest share of steps whose relative gap exceeds {TOLERANCE:g}",
        note="These steps used the best answer found; its error is far below the noise.",
    )
