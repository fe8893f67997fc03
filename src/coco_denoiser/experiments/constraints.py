"""Denoise before the projection: COCO and its rivals under constraints and penalties.

A cell is a problem of `constraint_problems.py` at a step size, in multiples of 1/L, or under
Frank-Wolfe, which has none. The methods meet the same noise. A method's excess in a cell is the
lower of two, each the median of the runs: that of the last twentieth of its iterates, and that of
the average of the second half. What counts is its ratio to the *best rival*: the lowest excess of
all methods without a denoiser at all steps, each tuned in hindsight.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coco_denoiser import Denoiser
from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.constraint_problems import (
    FRANK_WOLFE,
    FREE,
    HELD_OUT,
    SEEN,
    Composite,
    problem,
)
from coco_denoiser.experiments.curves import Curves
from coco_denoiser.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.experiments.paths import TOLERANCE, Rows, short_windows
from coco_denoiser.optimizers import (
    SGD,
    Adam,
    DenoiserLike,
    DualAveraging,
    FrankWolfe,
    GradientEMA,
    GradientMean,
    Optimizer,
    run,
)
from coco_denoiser.typing import Array, Float64

_MEANS: dict[str, Callable[[], DenoiserLike]] = {
    "mean of gradients": GradientMean,
    "Mokhtari's mean": lambda: GradientMean(lambda k: 4 / (k + 7) ** (2 / 3)),
}
_EMAS = {f"EMA {beta}": beta for beta in (0.9, 0.97, 0.99)}
_RIVALS = ("SGD", "1/√t", "1/t", *_EMAS, "mean of gradients", "dual averaging", "Adam")
_FW_RIVALS = ("raw", *_EMAS, *_MEANS)
# Windows, with the true L and with L = 1/step.
_COCO = {"COCO_16": 16, "fold 2": 2, "fold 16": 16, "fold 32": 32}
_STEP_L = {"fold 2, L=1/s": 2, "fold 16, L=1/s": 16}
_GAUSSIAN = {"Gaussian 32": 32, "Gaussian 128": 128}
_OURS = (*_COCO, *_GAUSSIAN)
_DEAR = ("fold 32", "Gaussian 128")
_METHODS = (*_RIVALS, *_OURS, *_STEP_L)
# Of ours, the lowest at its best step on the problems seen before, in the geometric mean.
_CHOICE, _FW_CHOICE = "fold 2, L=1/s", "Gaussian 128"
_SHOWN = ("SGD", "EMA 0.97", "mean of gradients", "dual averaging", "Adam", "fold 2, L=1/s",
          "fold 16, L=1/s", "Gaussian 128")  # fmt: skip
_KINDS = {
    "seen": ("Problems seen before", SEEN),
    "held out": ("Problems held out", HELD_OUT),
    "free": ("Without constraints", FREE),
    "constrained": ("With constraints", SEEN | HELD_OUT),
}
_FAR = 1e6  # where coordinates stop, in distances of the start: such a run has diverged
_USABLE = 3.0  # times the lowest excess of all methods at all steps


@dataclass(frozen=True)
class ConstraintsConfig(Config):
    """What is run.

    Attributes:
        dear_runs: the runs of the two methods that take the most time.
        steps: step sizes in multiples of 1/L; for Adam, of a tenth of the way to go. Below 0.03
            the rivals are alone, so that none is best at the end of its grid.
        calls: an upper limit on the oracle calls of a run.
        problems: the names of the problems.
    """

    runs: int = 20
    dear_runs: int = 5
    steps: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    calls: int = 2000
    problems: tuple[str, ...] = (*SEEN, *HELD_OUT, *FREE)
    frank_wolfe: tuple[str, ...] = tuple(FRANK_WOLFE)


class _OneScale(Adam):
    """Adam with one scale for all coordinates: on sets that are no boxes, others have wrong ends.

    A projection in the usual distance, after steps that differ by coordinate, stops elsewhere
    than at the minimiser.
    """

    def increment(self, g: Array, step_size: float) -> Array:
        """Return what to subtract from x."""
        super().increment(g, step_size)
        m, v = np.asarray(self._m), np.asarray(self._v)
        mean = v.mean(axis=-1, keepdims=True) / (1 - math.pow(self._beta2, self.steps))
        self._last_step = np.asarray(step_size / (np.sqrt(mean) + self._eps))
        return np.asarray(self._last_step * m / (1 - math.pow(self._beta1, self.steps)))


def _rows(method: str, L: float, step: float) -> Rows:
    if method in _GAUSSIAN:
        return Rows(lambda: Denoiser(model="gaussian", window=_GAUSSIAN[method]))
    window, bound = (_COCO | _STEP_L)[method], 1 / step if method in _STEP_L else L
    if method == "COCO_16":
        return Rows(lambda: Denoiser(bound, window, tol=TOLERANCE))
    return Rows(lambda: Denoiser(bound, window, tol=TOLERANCE, forget="fold"))


def _optimizer(method: str, of: Composite, multiple: float) -> Optimizer:
    L = of.smooth.L
    step = multiple / L
    if method == "Adam":
        return (Adam if of.map.separable else _OneScale)(0.1 * of.reach * multiple)
    if method in _EMAS:
        return GradientEMA(step, beta=_EMAS[method])
    if method in ("1/√t", "1/t"):
        power = 0.5 if method == "1/√t" else 1.0
        return SGD(lambda k: step / (1 + k / 10) ** power)
    if method in _OURS or method in _STEP_L:
        return SGD(step, denoiser=_rows(method, L, step))
    if method == "dual averaging":
        return DualAveraging(step)
    return SGD(step, denoiser=_MEANS[method]() if method in _MEANS else None)


def _frank_wolfe(method: str, of: Composite) -> Optimizer:
    averages: Mapping[str, Callable[[], DenoiserLike]] = _MEANS | {
        name: lambda b=beta: GradientMean(lambda k: (1 - b) / (1 - b**k))
        for name, beta in _EMAS.items()
    }
    denoiser: DenoiserLike | None = None
    if method != "raw":
        made = averages.get(method)
        denoiser = made() if made is not None else _rows(method, of.smooth.L, math.nan)
    return FrankWolfe(of.map.corner, denoiser=denoiser)


def _cells(config: ConstraintsConfig) -> list[tuple[str, float]]:
    """Return (problem, step) for every cell; the step of Frank-Wolfe is NaN."""
    steps = [(name, step) for name in config.problems for step in config.steps]
    return [*steps, *((name, math.nan) for name in config.frank_wolfe)]


def _unit(config: ConstraintsConfig, index: int) -> Unit:
    name, step = _cells(config)[index]
    of, free = problem(name), math.isnan(step)
    calls, far = min(of.calls, config.calls), _FAR * of.reach
    exact = of.map.active(of.minimizer[None])[0]
    unit: dict[str, Float64] = {"start": np.asarray(of.excess(of.start[None]))}
    with short_windows() as short:
        for method in (*_FW_RIVALS, *_OURS) if free else _RIVALS if step < 0.03 else _METHODS:
            runs = min(config.runs, config.dear_runs) if method in _DEAR else config.runs
            path = run(
                _frank_wolfe(method, of) if free else _optimizer(method, of, step),
                of,
                np.tile(of.start, (runs, 1)),
                steps=calls,
                rng=generator(config, name, 0),
                prox=None if free else lambda x, s: np.clip(of.map.prox(x, s), -far, far),
            ).iterates
            late = path[-max(calls // 20, 1) :]
            ends = of.excess(late.reshape(-1, of.dimension)).reshape(len(late), runs)
            found = of.map.active(path[-1])
            hits = np.sum(found & exact, axis=1)
            unit[f"{method} last"] = ends.mean(axis=0)
            unit[f"{method} average"] = of.excess(path[calls // 2 + 1 :].mean(axis=0)).astype(float)
            unit[f"{method} non-zeros"] = np.sum(found, axis=1).astype(float)
            unit[f"{method} F1"] = 2.0 * hits / np.maximum(found.sum(axis=1) + exact.sum(), 1)
        unit["short"] = np.array([float(short())])
    return unit


def _gather(config: ConstraintsConfig, units: Sequence[Unit]) -> Curves:
    curves, count = Curves(), len(config.steps)

    def medians(cells: Sequence[Unit], key: str) -> Float64:
        found = [float(np.median(unit[key])) if key in unit else np.nan for unit in cells]
        return np.minimum(found, 1e300)

    def add(panel: str, x: Sequence[float], cells: Sequence[Unit], methods: Sequence[str]) -> None:
        for method in methods:
            for what in ("last", "average", "non-zeros", "F1"):
                curves.exact(f"{panel}: {what}", method, x, medians(cells, f"{method} {what}"))
            lower = np.minimum(*(medians(cells, f"{method} {w}") for w in ("last", "average")))
            curves.exact(f"{panel}: excess", method, x, np.maximum(lower, 1e-300))
        curves.exact(f"{panel}: start", "start", x, medians(cells, "start"))

    for i, name in enumerate(config.problems):
        add(name, config.steps, units[i * count : (i + 1) * count], _METHODS)
    rest = units[len(config.problems) * count :]
    for name, unit in zip(config.frank_wolfe, rest, strict=True):
        add(f"Frank-Wolfe, {name}", (1.0,), [unit], (*_FW_RIVALS, *_OURS))
    for kind in _KINDS:
        _summarise(curves, config, kind)
    if config.frank_wolfe:
        order = np.arange(1, len(config.frank_wolfe) + 1)
        for method in (*_FW_RIVALS, *_OURS):
            found = [_ratios(curves, f"Frank-Wolfe, {n}", method)[0] for n in config.frank_wolfe]
            curves.exact("Frank-Wolfe", method, order, found)
    short = [float(unit["short"][0]) for unit in units]
    curves.exact("windows short of the tolerance", "all", np.arange(len(units)), short)
    return curves


def _ratios(curves: Curves, panel: str, method: str) -> Float64:
    """Return a method's excess over the best rival's, for every step."""
    rivals = _RIVALS if (f"{panel}: excess", "SGD") in curves else _FW_RIVALS
    best = min(float(curves[f"{panel}: excess", rival].mean.min()) for rival in rivals)
    return np.minimum(curves[f"{panel}: excess", method].mean / best, 1e6)


def _of(config: ConstraintsConfig, kind: str) -> list[str]:
    return [name for name in config.problems if name in _KINDS[kind][1]]


def _summarise(curves: Curves, config: ConstraintsConfig, kind: str) -> None:
    """Add by step: the geometric mean of the ratios, the share of usable steps, the mean F1."""
    names = _of(config, kind)
    if not names:
        return
    table = {method: np.array([_ratios(curves, n, method) for n in names]) for method in _METHODS}
    lowest = np.min([np.nanmin(ratios, axis=1) for ratios in table.values()], axis=0)
    for method, ratios in table.items():
        usable = np.mean(ratios <= _USABLE * lowest[:, None], axis=0)
        f1 = np.mean([curves[f"{name}: F1", method].mean for name in names], axis=0)
        curves.exact(kind, method, config.steps, np.exp(np.log(ratios).mean(axis=0)))
        curves.exact(f"{kind}: usable", method, config.steps, usable)
        curves.exact(f"{kind}: F1", method, config.steps, f1)
        order = np.arange(1, len(names) + 1)
        curves.exact(f"{kind}: best step", method, order, np.nanmin(ratios, axis=1))


def _panels(result: Result) -> list[Panel]:
    have, step = {kind for kind in _KINDS if _of(result.config, kind)}, "step, in 1/L"
    ratio, share = "excess / best rival's", "share of problems"
    described = [
        *((kind, kind, _KINDS[kind][0], ratio) for kind in ("seen", "held out", "free")),
        *((f"{k}: usable", k, f"{_KINDS[k][0]}: usable", share) for k in ("constrained", "free")),
        ("constrained: F1", "constrained", "Support of the last point", "F1"),
    ]
    shown = [(name, title, y) for name, kind, title, y in described if kind in have]
    below = next(i for i, (_, _, y) in enumerate(shown) if y == share)
    return [
        Panel(
            name,
            title,
            step,
            y,
            _SHOWN,
            log="xy" if y == ratio else "x",
            new_row=i == below,
            y_range=(0.5, 1e3) if y == ratio else (0.0, 1.05),
        )
        for i, (name, title, y) in enumerate(shown)
    ]


def _mean(values: Float64) -> float:
    return float(np.exp(np.log(values).mean()))


def _list(numbers: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {number:.3g}" for name, number in numbers.items())


def _claims(result: Result) -> list[Claim]:
    curves, config = result.curves, result.config
    at_most = Judge(config.runs).at_most
    claims = [
        claim
        for kind in ("seen", "held out", "free")
        if _of(config, kind)
        for claim in _kind_claims(curves, config, kind)
    ]
    excess = {
        (name, method): curves[f"{name}: excess", method].mean
        / curves[f"{name}: start", "start"].mean
        for name in config.problems
        for method in _METHODS
    }
    harsh = [
        (name, i)
        for name in config.problems
        for i, step in enumerate(config.steps)
        if step >= 1.0 and excess[name, "SGD"][i] > 1.0
    ]
    if harsh:
        kept = {m: float(sum(excess[name, m][i] < 0.1 for name, i in harsh)) for m in _METHODS}
        claims.append(
            at_most(
                f"Where SGD at 1/L or more ends above its start, in {len(harsh)} cells, {_CHOICE} "
                f"ends below a tenth of it in four cells of five ({_list(kept)}).",
                1.0 - kept[_CHOICE] / len(harsh),
                0.2,
                measure="share of the other cells",
            )
        )
    if config.frank_wolfe:
        means = {m: _mean(curves["Frank-Wolfe", m].mean) for m in (*_FW_RIVALS, *_OURS)}
        claims.append(
            at_most(
                f"Frank-Wolfe: {_FW_CHOICE} has at most the excess of each problem's best mean of "
                f"gradients ({_list(means)}).",
                means[_FW_CHOICE],
                1.0,
                measure="geometric mean of the ratios",
            )
        )
    return claims


def _kind_claims(curves: Curves, config: ConstraintsConfig, kind: str) -> list[Claim]:
    names, steps = _of(config, kind), np.array(config.steps)
    table = {m: np.array([_ratios(curves, name, m) for name in names]) for m in _METHODS}
    short, long = (steps >= 0.03) & (steps <= 3.0), steps >= 1.0
    best = {m: np.nanmin(ratios, axis=1) for m, ratios in table.items()}
    tuned, near, below, above = (
        {m: _mean(ratios) for m, ratios in part.items()}
        for part in (
            best,
            *({m: r[:, at] for m, r in table.items()} for at in (steps == 1.0, short, long)),
        )
    )
    worst = {m: float(r[:, short].max()) for m, r in table.items()}
    f1 = {m: float(np.nanmax(curves[f"{kind}: F1", m].mean)) for m in _METHODS}

    def lead(means: Mapping[str, float]) -> float:
        return means[_CHOICE] / min(means[m] for m in _RIVALS)

    by_name = dict(zip(names, best[_CHOICE].tolist(), strict=True))
    claims = {
        "at its best step it has at most the excess of each problem's best rival, every rival at "
        f"its best step ({_list(tuned)}; by problem: {_list(by_name)})": (tuned[_CHOICE], 1.0),
        "at its best step it has at most half of the excess of SGD, last or average, at its best "
        "step": (tuned[_CHOICE] / tuned["SGD"], 0.5),
        f"untuned, at 1/L, it is within twice the best rival, which is tuned ({_list(near)})": (
            near[_CHOICE],
            2.0,
        ),
        "over all steps from 0.03 to 3/L it has a lower excess than every rival, in units of the "
        f"best of them ({_list(below)}; worst: {_list(worst)})": (lead(below), 1.0),
        "over all steps from 1/L on it has a lower excess than every rival, in units of the best "
        f"of them ({_list(above)})": (lead(above), 1.0),
        "at the step that is best for this, 1 - F1 of its last point's support is at most 0.1 in "
        f"the mean (F1: {_list(f1)})": (1.0 - f1[_CHOICE], 0.1),
    }
    if kind == "free":
        claims.popitem()  # everything is the support
    title = f"{_KINDS[kind][0]}, {_CHOICE}"
    measure = "ratio, or 1 - F1"
    judge = Judge(config.runs)
    return [
        judge.at_most(f"{title}: {said}.", number, limit, measure=measure)
        for said, (number, limit) in claims.items()
    ]


EXPERIMENT = Experiment(
    "constraints",
    "Denoising before a projection, a proximal step or Frank-Wolfe's corner, against averages, "
    "dual averaging and Adam on 17 problems.",
    ConstraintsConfig(),
    {"runs": 2, "dear_runs": 1, "calls": 30, "steps": (0.1, 1.0, 10.0)},
    _unit,
    _gather,
    _panels,
    _claims,
    count=lambda config: len(_cells(config)),
    check=lambda config: [problem(name) for name in (*config.problems, *config.frank_wolfe)],
)
