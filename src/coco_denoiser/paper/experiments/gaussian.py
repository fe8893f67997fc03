"""The Gaussian model against SGD and other baselines, untuned, on many problems at many steps.

A cell is a problem at a step size, in multiples of 1/L; the methods meet the same noise. What
counts is the suboptimality, the mean over the last twentieth of the iterates, divided by
that of SGD on the same noise at the same step, in the geometric mean of the runs. Cells of one
problem share their noise, so a mean over cells is taken run by run: the runs are independent, and
their spread gives its standard error. `gaussian_problems.py` says which problems chose a setting of
the model and which did not.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_denoiser.paper.experiments.claims import Claim, Judge, critical
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit, generator
from coco_denoiser.paper.experiments.gaussian_problems import CHOSEN, HELD_OUT, Scenario, scenario
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.experiments.paths import named, short_windows
from coco_denoiser.paper.optimizers import (
    IGT,
    SGD,
    Adam,
    GradientEMA,
    Optimizer,
    ScheduleFree,
    tail_average,
)
from coco_denoiser.typing import Float64

SGD_ALONE, OURS = "SGD", "SGD+Gaussian_32"
_STEP_L = ", L=1/s"  # instead of the true L
_DENOISED = (OURS, "SGD+COCO_8", f"SGD+COCO_8{_STEP_L}", "SGD+COCO_32")
_TAIL = ", tail average"
_AVERAGED = "tail average"  # of SGD, over SGD's last iterates
_OTHERS: dict[str, Callable[[float], Optimizer]] = {
    SGD_ALONE: SGD,
    "gradient EMA": GradientEMA,
    "IGT": IGT,
    "schedule-free": ScheduleFree,
}
_METHODS = (SGD_ALONE, *_DENOISED, *list(_OTHERS)[1:], "Adam")
# What is divided by what: averages by averages, and those of SGD by its last iterates.
_RATIOS = {_AVERAGED: (f"{SGD_ALONE}{_TAIL}", SGD_ALONE)} | {
    f"{method}{tail}": (f"{method}{tail}", f"{SGD_ALONE}{tail}")
    for method in _METHODS
    for tail in ("", _TAIL)
}
_LEAST = 0.02  # ratios below count as this: one easy cell must not decide a mean
_HURT = 1.05  # above this ratio a method hurts
_FAR = 1e6  # where coordinates stop, in distances of the start: such a run has diverged
_SETS = {
    "chosen": ("problems that chose a setting", CHOSEN),
    "held out": ("problems held out", HELD_OUT),
}


def _optimizer(method: str, step: float, problem: Scenario) -> Optimizer:
    if method == "Adam":
        return Adam(0.1 * problem.reach * step)
    if method in _DENOISED:
        bound = problem.L / step if method.endswith(_STEP_L) else problem.L
        name = method.removeprefix("SGD+").removesuffix(_STEP_L)
        return SGD(step / problem.L, denoiser=named(name, bound))
    return _OTHERS[method](step / problem.L)


def _summarise(
    curves: Curves, steps: Float64, kind: str, problems: Mapping[str, Mapping[str, Float64]]
) -> None:
    """Add geometric means by step and of all cells, and the ratios of all cells in order."""
    # Where SGD ends above its start, any method that does not is infinitely better.
    fair = _falls(curves, list(problems), SGD_ALONE)
    at = np.flatnonzero(fair.any(axis=0))
    for series in _RATIOS:
        table = np.stack([logs[series] for logs in problems.values()], axis=1)
        by_step = [table[:, fair[:, step], step].mean(axis=1) for step in at]
        curves.ratios(f"{kind} by step", series, steps[at], np.stack(by_step, axis=1))
        each = table[:, fair]  # (runs, cells)
        curves.ratios(f"{kind} mean", series, fair.sum(), each.mean(axis=1)[:, None])
        ordered = each[:, np.argsort(each.mean(axis=0))]
        curves.ratios(f"{kind} cells", series, np.arange(1, fair.sum() + 1), ordered)


def _falls(curves: Curves, names: Sequence[str], method: str) -> NDArray[np.bool_]:
    """Return in which cells, (problems, steps), a method ends below its start."""
    return np.array([curves[f"{name}: end over start", method].mean <= 1.0 for name in names])


def _described(curves: Curves, kind: str, name: str, surely: float) -> str:
    """Return the mean of a method, its worst cell, and in how many it hurts."""
    mean, cells = curves[f"{kind} mean", name], curves[f"{kind} cells", name]
    hurt = cells.log().shifted(-math.log(_HURT))
    return (
        f"{name} {mean.mean[0]:.3f} ± {mean.sem[0]:.3f}, worst {cells.mean[-1]:.3g} ± "
        f"{cells.sem[-1]:.2g}, {np.sum(hurt.mean > 0)} cells above {_HURT:g}, "
        f"{np.sum(hurt.mean / surely > hurt.sem)} beyond chance"
    )


@dataclass(frozen=True)
class GaussianModel(Experiment):
    """What is run.

    Attributes:
        steps: step sizes, in multiples of 1/L; for Adam, of a tenth of the way to go.
        calls: an upper limit on the oracle calls of a run.
        problems: the names of the problems.
    """

    name = "gaussian"
    summary = (
        "The Gaussian model, untuned and without L, against SGD, COCO, averages, IGT, "
        "schedule-free and Adam on 19 problems."
    )
    quick: ClassVar = {"runs": 2, "calls": 30}

    runs: int = 20
    steps: tuple[float, ...] = (0.3, 1.0, 2.0, 4.0)
    calls: int = 400
    problems: tuple[str, ...] = (*CHOSEN, *HELD_OUT)

    def count(self) -> int:
        return len(self._cells())

    def check(self) -> None:
        for name in self.problems:
            scenario(name)

    def unit(self, index: int) -> Unit:
        """Run all methods in one cell, and count the windows solved to less than the tolerance."""
        name, step = self._cells()[index]
        problem = scenario(name)
        calls, far = min(problem.calls, self.calls), _FAR * problem.reach
        unit: dict[str, Float64] = {
            "start": np.asarray(problem.excess(problem.start[None], 0), dtype=np.float64)
        }
        with short_windows() as short:
            for method in _METHODS:
                optimizer = _optimizer(method, step, problem)
                rng = generator(self, name, 0)
                x, answers = np.tile(problem.start, (self.runs, 1)), []
                for k in range(calls):
                    x = np.clip(optimizer.step(x, problem.oracle(x, k, rng)), -far, far)
                    answers.append(optimizer.answer(x))
                late = [problem.excess(answers[k], k) for k in range(calls) if k >= 0.95 * calls]
                mean = tail_average(np.array(answers), calls // 2)[-1]
                unit[f"{method} end"] = np.minimum(np.mean(late, axis=0), 1e300)
                unit[f"{method}{_TAIL} end"] = np.minimum(problem.excess(mean, calls - 1), 1e300)
            unit["short"] = np.array([float(short())])
        return unit

    def _cells(self) -> list[tuple[str, float]]:
        return [(name, step) for name in self.problems for step in self.steps]

    def gather(self, units: Sequence[Unit]) -> Curves:
        curves, count = Curves(), len(self.steps)
        logs: dict[str, dict[str, Float64]] = {}  # by problem and series, (runs, steps)
        for i, name in enumerate(self.problems):
            cells = units[i * count : (i + 1) * count]
            ends = {
                series: np.log(np.maximum([unit[f"{series} end"] for unit in cells], 1e-300)).T
                for series, _ in _RATIOS.values()
            }
            logs[name] = {
                series: np.clip(ends[one] - ends[other], math.log(_LEAST), math.log(1e6))
                for series, (one, other) in _RATIOS.items()
            }
            for method in _METHODS:
                ratio = ends[method] - math.log(cells[0]["start"][0])
                curves.ratios(f"{name}: end over start", method, self.steps, ratio)
            for series, ratio in logs[name].items():
                curves.ratios(name, series, self.steps, ratio)
            short = [float(unit["short"][0]) for unit in cells]
            curves.exact(f"{name}: windows short of the tolerance", "all", self.steps, short)
        for kind in self._kinds():
            found = {name: logs[name] for name in self._of(kind)}
            _summarise(curves, np.array(self.steps), kind, found)
        return curves

    def _of(self, kind: str) -> list[str]:
        return [name for name in self.problems if name in _SETS[kind][1]]

    def _kinds(self) -> list[str]:
        return [kind for kind in _SETS if self._of(kind)]

    def panels(self, _: Curves) -> list[Panel]:
        kinds = self._kinds()
        y, shown = "suboptimality over SGD's", (*_METHODS, _AVERAGED)
        cells = Panel("", "Cells in order", "cell", y, (SGD_ALONE, *_DENOISED), log="y")
        return [
            *(
                Panel(f"{k} by step", _SETS[k][0].capitalize(), "step, in 1/L", y, shown, log="xy")
                for k in kinds
            ),
            *(replace(cells, name=f"{k} cells", new_row=k == kinds[0]) for k in kinds),
        ]

    def claims(self, curves: Curves) -> list[Claim]:
        judge, surely = Judge(self.runs), critical(1, self.runs)
        tail, claims = f"{OURS}{_TAIL}", []
        for kind in self._kinds():
            falls = partial(_falls, curves, self._of(kind))
            above = ~falls(SGD_ALONE)
            below = ", ".join(f"{name} in {np.sum(above & falls(name))}" for name in _DENOISED)
            names = (*_METHODS[1:], _AVERAGED, tail)
            each = "; ".join(_described(curves, kind, name, surely) for name in names)
            mean, cells, averaged, averages = (
                [curves[f"{kind} {panel}", series]]
                for series in (OURS, tail)
                for panel in ("mean", "cells")
            )
            start = f"{_SETS[kind][0].capitalize()}: "
            claims += [
                judge.ratio_at_most(
                    f"{start}in the geometric mean of {cells[0].x.size} cells, the Gaussian model "
                    f"has at most 0.45 of SGD's suboptimality ({each}; {above.sum()} cells where "
                    "SGD ends above its start are left out; there, methods end below it: "
                    f"{below}).",
                    mean,
                    0.45,
                ),
                judge.ratio_at_most(
                    f"{start}in no cell has it more than 1.1 times SGD's suboptimality.", cells, 1.1
                ),
                judge.seldom_above(
                    f"{start}in at most one cell in thirty it has more than 1.05 times SGD's "
                    "suboptimality.",
                    cells,
                    _HURT,
                    1 / 30,
                ),
                judge.ratio_at_most(
                    f"{start}with tail averaging it has at most 0.7 of the suboptimality of SGD's "
                    "tail average.",
                    averaged,
                    0.7,
                ),
                judge.ratio_at_most(
                    f"{start}with tail averaging no cell is above 1.2.", averages, 1.2
                ),
            ]
        return claims
