"""Denoise before the projection: COCO and its rivals under constraints and penalties.

A cell is a problem of `constraint_problems.py` at a step size, in multiples of 1/L, or under
Frank-Wolfe, which has none. The methods meet the same noise. A method's excess in a cell is the
lower of two, each the median of the runs: that of the last twentieth of its iterates, and that of
the average of the second half. What counts is its ratio to the *best rival*: the lowest excess of
all methods without a denoiser at all steps, each tuned in hindsight.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

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
from coco_denoiser.experiments.paths import Rows, named, short_windows
from coco_denoiser.optimizers import (
    SGD,
    Adam,
    DenoiserLike,
    DualAveraging,
    FrankWolfe,
    GradientMean,
    Optimizer,
    Schedule,
    run,
)
from coco_denoiser.typing import Array, Float64

_PLAIN: dict[str, Callable[[float], Optimizer]] = {
    "SGD": SGD,
    "1/√t": lambda step: SGD(lambda k: step / (1 + k / 10) ** 0.5),
    "1/t": lambda step: SGD(lambda k: step / (1 + k / 10)),
    "dual averaging": DualAveraging,
    "Adam": Adam,
}


def _fading(beta: float) -> Schedule:
    return lambda k: (1 - beta) / (1 - beta**k)


# Means of gradients: their weights, and the slope that corrects them, in L; None is 1/step.
_WEIGHTS: dict[str, Schedule] = {
    **{f"{beta}": _fading(beta) for beta in (0.9, 0.97, 0.99)},
    "1/t": lambda k: max(2 / (k + 1), 0.01),
    "1/√t": lambda k: k**-0.5,
    "Mokhtari": lambda k: 4 / (k + 7) ** (2 / 3),
}
_SLOPES = {"EMA": 0.0, "slope L/2": 0.5, "slope L/10": 0.1, "surrogates": None}
_MEANS = {f"{slope} {weight}": (slope, weight) for slope in _SLOPES for weight in _WEIGHTS}
_MEANS["mean of gradients"] = _MEANS.pop("EMA 1/t")
_RIVALS = (*_PLAIN, *_MEANS)
_FW_RIVALS = ("raw", *(mean for mean, (slope, _) in _MEANS.items() if slope != "surrogates"))
_OURS = ("COCO_16", "fold 2", "fold 16", "fold 32", "Gaussian 32", "Gaussian 128")
_STEP_L = ("fold 2, L=1/s", "fold 16, L=1/s")  # under Frank-Wolfe steps say nothing about L
_DEAR = ("fold 32", "Gaussian 128")
_METHODS, _FW_METHODS = (*_RIVALS, *_OURS, *_STEP_L), (*_FW_RIVALS, *_OURS)
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
SHARES = tuple(2.0**-k for k in range(6))  # of the calls, after which excess is recorded


@dataclass(frozen=True)
class ConstraintsConfig(Config):
    """What is run.

    Attributes:
        dear_runs: the runs of the two methods that take the most time, but under Frank-Wolfe.
        steps: step sizes in multiples of 1/L; for Adam, of a tenth of the way to go. Below 0.03
            the rivals are alone, so that none is best at the end of its grid.
        calls: an upper limit on the oracle calls of a run.
        problems: the names of the problems.
    """

    runs: int = 20
    dear_runs: int = 10
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


def optimizer(method: str, of: Composite, multiple: float) -> Optimizer:
    """Return a method for a batch of runs, at a multiple of 1/L; NaN for Frank-Wolfe."""
    L, step = of.smooth.L, multiple / of.smooth.L
    denoiser: DenoiserLike | None = None
    if method in _MEANS:
        slope, weight = _MEANS[method]
        share = _SLOPES[slope]
        denoiser = GradientMean(_WEIGHTS[weight], slope=1 / step if share is None else share * L)
    elif method in _OURS + _STEP_L:
        bound = 1 / step if method in _STEP_L else L
        denoiser = Rows(lambda: named(method.removesuffix(", L=1/s"), bound))
    if math.isnan(multiple):
        return FrankWolfe(of.map.corner, denoiser=denoiser)
    if method == "Adam":
        return (Adam if of.map.separable else _OneScale)(0.1 * of.reach * multiple)
    return SGD(step, denoiser=denoiser) if denoiser else _PLAIN[method](step)


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
        for method in _FW_METHODS if free else _RIVALS if step < 0.03 else _METHODS:
            dear = method in _DEAR and not free
            runs = min(config.runs, config.dear_runs) if dear else config.runs
            path = run(
                optimizer(method, of, step),
                of,
                np.tile(of.start, (runs, 1)),
                steps=calls,
                rng=generator(config, name, 0),
                prox=None if free else lambda x, s: np.clip(of.map.prox(x, s), -far, far),
            ).iterates
            found = of.map.active(path[-1])
            hits = np.sum(found & exact, axis=1)
            ends = [_ends(of, path[: max(int(share * calls), 1) + 1]) for share in SHARES]
            unit[f"{method} last"], unit[f"{method} average"] = np.swapaxes(ends, 0, 1)
            unit[f"{method} non-zeros"] = np.sum(found, axis=1).astype(float)
            unit[f"{method} F1"] = 2.0 * hits / np.maximum(found.sum(axis=1) + exact.sum(), 1)
        unit["short"] = np.array([float(short())])
    return unit


def _ends(of: Composite, path: Array) -> tuple[Array, Array]:
    """Return the excess of the last twentieth of a path, and of its second half's average."""
    calls = len(path) - 1
    late = path[-max(calls // 20, 1) :]
    each = of.excess(late.reshape(-1, of.dimension)).reshape(len(late), -1)
    return each.mean(axis=0), of.excess(path[calls // 2 + 1 :].mean(axis=0)).astype(float)


def _gather(config: ConstraintsConfig, units: Sequence[Unit]) -> Curves:
    curves, count = Curves(), len(config.steps)

    def medians(cells: Sequence[Unit], key: str, share: int = 0) -> Float64:
        found = [np.atleast_2d(unit[key])[share] if key in unit else np.nan for unit in cells]
        return np.minimum([float(np.median(runs)) for runs in found], 1e300)

    def add(panel: str, x: Sequence[float], cells: Sequence[Unit], methods: Sequence[str]) -> None:
        for method in methods:
            for what in ("last", "average", "non-zeros", "F1"):
                curves.exact(f"{panel}: {what}", method, x, medians(cells, f"{method} {what}"))
            for i, share in enumerate(SHARES):
                both = (medians(cells, f"{method} {what}", i) for what in ("last", "average"))
                title = f"{panel}: excess" + f" after {share:g} of the calls" * (i > 0)
                curves.exact(title, method, x, np.maximum(np.minimum(*both), 1e-300))
        curves.exact(f"{panel}: start", "start", x, medians(cells, "start"))

    for i, name in enumerate(config.problems):
        add(name, config.steps, units[i * count : (i + 1) * count], _METHODS)
    rest = units[len(config.problems) * count :]
    for name, unit in zip(config.frank_wolfe, rest, strict=True):
        add(f"Frank-Wolfe, {name}", (1.0,), [unit], _FW_METHODS)
    for kind in _KINDS:
        _summarise(curves, config, kind)
    if config.frank_wolfe:
        order = np.arange(1, len(config.frank_wolfe) + 1)
        for method in _FW_METHODS:
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


def _table(curves: Curves, config: ConstraintsConfig, kind: str) -> dict[str, Float64]:
    """Return the ratios (problems, steps) of every method."""
    return {m: np.array([_ratios(curves, n, m) for n in _of(config, kind)]) for m in _METHODS}


def _summarise(curves: Curves, config: ConstraintsConfig, kind: str) -> None:
    """Add by step: the geometric mean of the ratios, the share of usable steps, the mean F1."""
    names = _of(config, kind)
    if not names:
        return
    table = _table(curves, config, kind)
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
    def panels(kinds: Sequence[str], what: str, title: str, y: str) -> list[Panel]:
        log, y_range = ("x", (0.0, 1.05)) if what else ("xy", (0.5, 1e3))
        titles = {kind: title or _KINDS[kind][0] for kind in kinds if _of(result.config, kind)}
        return [
            Panel(
                k + what,
                t.format(_KINDS[k][0]),
                "step, in 1/L",
                y,
                _SHOWN,
                log=log,
                y_range=y_range,
            )
            for k, t in titles.items()
        ]

    above = panels(("seen", "held out", "free"), "", "", "excess / best rival's")
    usable = panels(("constrained", "free"), ": usable", "{}: usable", "share of problems")
    f1 = panels(("constrained",), ": F1", "Support of the last point", "F1")
    return [*above, replace(usable[0], new_row=True), *usable[1:], *f1]


def _mean(values: Float64) -> float:
    return float(np.exp(np.log(values).mean()))


def _list(numbers: Mapping[str, float]) -> str:
    return "; ".join(f"{name} {number:.3g}" for name, number in numbers.items())


def _claims(result: Result) -> list[Claim]:
    curves, config = result.curves, result.config
    said: dict[str, tuple[float, float]] = {}
    for kind in ("seen", "held out", "free"):
        if _of(config, kind):
            said |= _kind_claims(curves, config, kind)
    if config.frank_wolfe:
        means = {m: _mean(curves["Frank-Wolfe", m].mean) for m in _FW_METHODS}
        sentence = "has at most the excess of each problem's best mean of gradients"
        said[f"Frank-Wolfe, {_FW_CHOICE}: it {sentence} ({_list(means)})."] = (
            means[_FW_CHOICE],
            1.0,
        )
    at_most = Judge(config.runs).at_most
    return [at_most(text, *numbers, measure="ratio, or 1 - F1") for text, numbers in said.items()]


def _kind_claims(
    curves: Curves, config: ConstraintsConfig, kind: str
) -> dict[str, tuple[float, float]]:
    """Return sentences on one kind of problems, each with its number and its limit."""
    table, steps = _table(curves, config, kind), np.array(config.steps)
    best = {m: np.nanmin(ratios, axis=1) for m, ratios in table.items()}
    tuned, near, long = (
        {m: _mean(ratios) for m, ratios in part.items()}
        for part in (
            best,
            *({m: r[:, at] for m, r in table.items()} for at in (steps == 1.0, steps >= 1.0)),
        )
    )
    f1 = {m: float(np.nanmax(curves[f"{kind}: F1", m].mean)) for m in _METHODS}
    by_name = dict(zip(_of(config, kind), best[_CHOICE].tolist(), strict=True))
    claims = {
        "at its best step it has at most the excess of each problem's best rival, every rival at "
        f"its best step ({_list(tuned)}; by problem: {_list(by_name)})": (tuned[_CHOICE], 1.0),
        "at its best step it has at most half of the excess of SGD, last or average, at its best "
        "step": (tuned[_CHOICE] / tuned["SGD"], 0.5),
        f"untuned, at 1/L, it is within twice the best rival, which is tuned ({_list(near)})": (
            near[_CHOICE],
            2.0,
        ),
        "over all steps from 1/L on it has a lower excess than every rival, in units of the best "
        f"of them ({_list(long)})": (long[_CHOICE] / min(long[m] for m in _RIVALS), 1.0),
        "at the step that is best for this, 1 - F1 of its last point's support is at most 0.1 in "
        f"the mean (F1: {_list(f1)})": (1.0 - f1[_CHOICE], 0.1),
    }
    if kind == "free":
        claims.popitem()  # everything is the support
    return {f"{_KINDS[kind][0]}, {_CHOICE}: {said}.": at for said, at in claims.items()}


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
