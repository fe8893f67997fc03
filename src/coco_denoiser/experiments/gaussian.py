"""The Gaussian model against SGD and its rivals, untuned, on many problems at many steps.

A cell is a problem at a step size, in multiples of 1/L; the methods meet the same noise. What
counts is the excess of the objective, the mean over the last twentieth of the iterates, in the
median of the runs, divided by that of SGD at the same step. `gaussian_problems.py` says which
problems chose a setting of the model and which did not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curves
from coco_denoiser.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.experiments.gaussian_problems import CHOSEN, HELD_OUT, Scenario, scenario
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.experiments.paths import Rows, named, short_windows
from coco_denoiser.optimizers import (
    IGT,
    SGD,
    Adam,
    GradientEMA,
    Optimizer,
    ScheduleFree,
    TailAverage,
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
_LEAST = 0.02  # ratios below count as this: one easy cell must not decide a mean
_HURT = 1.05  # above this ratio a method hurts
_FAR = 1e6  # where coordinates stop, in distances of the start: such a run has diverged
_SETS = {
    "chosen": ("problems that chose a setting", CHOSEN),
    "held out": ("problems held out", HELD_OUT),
}


@dataclass(frozen=True)
class GaussianConfig(Config):
    """What is run.

    Attributes:
        steps: step sizes, in multiples of 1/L; for Adam, of a tenth of the way to go.
        calls: an upper limit on the oracle calls of a run.
        problems: the names of the problems.
    """

    runs: int = 20
    steps: tuple[float, ...] = (0.3, 1.0, 2.0, 4.0)
    calls: int = 400
    problems: tuple[str, ...] = (*CHOSEN, *HELD_OUT)


def _optimizer(method: str, step: float, problem: Scenario) -> Optimizer:
    if method == "Adam":
        return Adam(0.1 * problem.reach * step)
    if method in _DENOISED:
        bound = problem.L / step if method.endswith(_STEP_L) else problem.L
        name = method.removeprefix("SGD+").removesuffix(_STEP_L)
        return SGD(step / problem.L, denoiser=Rows(lambda: named(name, bound)))
    return _OTHERS[method](step / problem.L)


def _unit(config: GaussianConfig, index: int) -> Unit:
    """Run all methods in one cell. Windows that were solved to less than the tolerance count."""
    name, step = _cells(config)[index]
    problem = scenario(name)
    calls, far = min(problem.calls, config.calls), _FAR * problem.reach
    unit: dict[str, Float64] = {
        "start": np.asarray(problem.excess(problem.start[None], 0), dtype=np.float64)
    }
    with short_windows() as short:
        for method in _METHODS:
            optimizer = _optimizer(method, step, problem)
            rng = generator(config, name, 0)
            average = TailAverage(calls // 2)
            x, late = np.tile(problem.start, (config.runs, 1)), []
            for k in range(calls):
                x = np.clip(optimizer.step(x, problem.oracle(x, k, rng)), -far, far)
                answer = optimizer.answer(x)
                mean = average(answer)
                if k >= 0.95 * calls:
                    late.append(problem.excess(answer, k))
            unit[f"{method} end"] = np.minimum(np.mean(late, axis=0), 1e300)
            unit[f"{method}{_TAIL} end"] = np.minimum(problem.excess(mean, calls - 1), 1e300)
        unit["short"] = np.array([float(short())])
    return unit


def _cells(config: GaussianConfig) -> list[tuple[str, float]]:
    return [(name, step) for name in config.problems for step in config.steps]


def _gather(config: GaussianConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    for i, name in enumerate(config.problems):
        mine = units[i * len(config.steps) : (i + 1) * len(config.steps)]
        for method in _METHODS:
            ends = [np.median(u[f"{method} end"]) / u["start"][0] for u in mine]
            curves.exact(f"{name}: end over start", method, config.steps, np.array(ends))
            for series in (method, f"{method}{_TAIL}"):
                base = SGD_ALONE + series.removeprefix(method)
                pairs = [(u[f"{series} end"], u[f"{base} end"]) for u in mine]
                curves.exact(name, series, config.steps, _ratios(pairs))
        pairs = [(u[f"{SGD_ALONE}{_TAIL} end"], u[f"{SGD_ALONE} end"]) for u in mine]
        curves.exact(name, _AVERAGED, config.steps, _ratios(pairs))
        short = [float(u["short"][0]) for u in mine]
        curves.exact(f"{name}: windows short of the tolerance", "all", config.steps, short)
    for kind in _SETS:
        _summarise(curves, config, kind)
    return curves


def _ratios(pairs: Sequence[tuple[Float64, Float64]]) -> Float64:
    """Return the ratio of medians over the runs, for every step."""
    found = [np.median(a) / np.median(b) for a, b in pairs]
    return np.asarray(np.minimum(found, 1e6))


def _of(config: GaussianConfig, kind: str) -> list[str]:
    return [name for name in config.problems if name in _SETS[kind][1]]


def _summarise(curves: Curves, config: GaussianConfig, kind: str) -> None:
    """Add geometric means by step, and the ratios of all cells in order of size."""
    names = _of(config, kind)
    if not names:
        return
    # Where SGD ends above its start, any method that does not is infinitely better.
    fair = _falls(curves, names, SGD_ALONE)
    for series in (*_METHODS, _AVERAGED, *(f"{method}{_TAIL}" for method in _METHODS)):
        table = np.maximum([curves[name, series].mean for name in names], _LEAST)
        table = np.where(fair, table, np.nan)
        at = np.flatnonzero(fair.any(axis=0))
        means = np.exp(np.nanmean(np.log(table[:, at]), axis=0))
        curves.exact(f"{kind} by step", series, np.array(config.steps)[at], means)
        ratios = np.sort(table[fair])
        curves.exact(f"{kind} cells", series, np.arange(1, ratios.size + 1), ratios)


def _falls(curves: Curves, names: Sequence[str], method: str) -> NDArray[np.bool_]:
    """Say in which cells, (problems, steps), a method ends below its start."""
    return np.array([curves[f"{name}: end over start", method].mean <= 1.0 for name in names])


def _mean(curves: Curves, kind: str, series: str) -> float:
    return float(np.exp(np.log(curves[f"{kind} cells", series].mean).mean()))


def _panels(result: Result) -> list[Panel]:
    kinds = [kind for kind in _SETS if _of(result.config, kind)]
    y, shown = "excess over SGD's", (*_METHODS, _AVERAGED)
    cells = Panel("", "Cells in order", "cell", y, (SGD_ALONE, *_DENOISED), log="y")
    return [
        *(
            Panel(f"{k} by step", _SETS[k][0].capitalize(), "step, in 1/L", y, shown, log="xy")
            for k in kinds
        ),
        *(replace(cells, name=f"{k} cells", new_row=k == kinds[0]) for k in kinds),
    ]


def _claims(result: Result) -> list[Claim]:
    curves, config = result.curves, result.config
    judge, tail = Judge(config.runs), f"{OURS}{_TAIL}"
    claims = []
    for kind, (what, _) in _SETS.items():
        if not _of(config, kind):
            continue
        cells, averaged = (curves[f"{kind} cells", series].mean for series in (OURS, tail))
        ratios = {name: curves[f"{kind} cells", name].mean for name in (*_METHODS[2:], _AVERAGED)}
        others = "; ".join(
            f"{name} {_mean(curves, kind, name):.2f}, worst {found[-1]:.2g}, "
            f"{np.sum(found > _HURT)} cells above {_HURT:g}"
            for name, found in ratios.items()
        )
        above = ~_falls(curves, _of(config, kind), SGD_ALONE)
        below = ", ".join(
            f"{name} in {np.sum(above & _falls(curves, _of(config, kind), name))}"
            for name in _DENOISED
        )
        overall = (
            f"in the geometric mean of {cells.size} cells, the Gaussian model has at most 0.45 of "
            f"SGD's excess (others: {others}; {above.sum()} cells where SGD ends above its start "
            f"are left out; there, methods end below it: {below})"
        )
        geometric, worst = "geometric mean of the ratios", "worst ratio"
        for said, number, limit, measure in (
            (overall, _mean(curves, kind, OURS), 0.45, geometric),
            ("in no cell has it more than 1.1 times SGD's excess", cells[-1], 1.1, worst),
            (
                "in at most one cell in thirty it has more than 1.05 times SGD's excess",
                np.mean(cells > _HURT),
                1 / 30,
                "share of such cells",
            ),
            (
                "with tail averaging it has at most 0.7 of the excess of SGD's tail average",
                _mean(curves, kind, tail),
                0.7,
                geometric,
            ),
            ("with tail averaging no cell is above 1.2", averaged[-1], 1.2, worst),
        ):
            sentence = f"{what.capitalize()}: {said}."
            claims.append(judge.at_most(sentence, float(number), limit, measure=measure))
    return claims


EXPERIMENT = Experiment(
    "gaussian",
    "The Gaussian model, untuned and without L, against SGD, COCO, averages, IGT, "
    "schedule-free and Adam on 19 problems.",
    GaussianConfig(),
    {"runs": 2, "calls": 30},
    _unit,
    _gather,
    _panels,
    _claims,
    count=lambda config: len(_cells(config)),
    check=lambda config: [scenario(name) for name in config.problems],
)
