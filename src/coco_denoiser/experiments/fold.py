"""Folding: what leaves the window is mixed into its successor, beside what forgets it.

On the paper's quadratic at three steps, on one whose curvatures range over three decades, and
in logistic regression; then whether the variance of the fold is what it says, and what a wrong
L does. "SGD+COCO_2, folding" is a filter that keeps two vectors.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from coco_denoiser import Denoiser, optimizers
from coco_denoiser.experiments.claims import Claim, agrees, increases, nowhere_positive
from coco_denoiser.experiments.experiment import (
    Array,
    Config,
    Curve,
    Curves,
    Experiment,
    Result,
    Unit,
    generator,
)
from coco_denoiser.experiments.logistic import load
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.experiments.paths import (
    Method,
    Regimes,
    coco,
    coco_name,
    difference,
    follow,
    gather,
    percent,
    solved,
)
from coco_denoiser.optimizers import SGD, Optimizer, decreasing
from coco_denoiser.problems import Problem, Quadratic
from coco_denoiser.problems.base import Array as Vector

Forget: TypeAlias = Literal["drop", "fold"]

NAME = "fold"
_FOLD = "SGD+COCO_2, folding"
_FACTORS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # of the L that is assumed
_WRONG: dict[str, Forget] = {"SGD+COCO_2": "drop", _FOLD: "fold"}


@dataclass(frozen=True)
class FoldConfig(Config):
    """The paper's synthetic problem; its step and steps for each problem are in `_SETTINGS`."""

    runs: int = 60
    dimension: int = 10
    sigma: float = 10.0
    start: float = 100.0


class Setting(NamedTuple):
    """A problem with the step, as a share of 1/L, the number of steps, and where to start."""

    title: str
    step: float
    steps: int
    problem: Callable[[FoldConfig], Problem]
    start: Callable[[FoldConfig], float] = lambda config: config.start


def _quadratic(config: FoldConfig) -> Problem:
    return Quadratic.spaced(config.dimension, noise_std=config.sigma)


def _ill_conditioned(config: FoldConfig) -> Problem:
    return Quadratic(np.logspace(0, -3, config.dimension), noise_std=config.sigma)


_SETTINGS = {
    "1/L": Setting("Quadratic, step 1/L", 1.0, 32, _quadratic),
    "0.7/L": Setting("Quadratic, step 0.7/L", 0.7, 32, _quadratic),
    "0.3/L": Setting("Quadratic, step 0.3/L", 0.3, 150, _quadratic),
    "ill": Setting("Curvatures 1 to 0.001, step 0.3/L", 0.3, 150, _ill_conditioned),
    "breast-cancer": Setting(
        "Logistic, breast-cancer, step 0.5/L",
        0.5,
        400,
        lambda _: load("breast-cancer", regularized=True),
        lambda _: 1.0,
    ),
}
_QUADRATIC = ("1/L", "0.7/L", "0.3/L")
_WATCHED = {"1/L": "step 1/L", "0.3/L": "step 0.3/L", "ill": "curvatures 1 to 0.001"}


def _methods(setting: Setting) -> list[Method]:
    def sgd(window: int, forget: Forget) -> Method:
        def make(problem: Problem) -> Optimizer:
            return SGD(setting.step / problem.L, denoiser=coco(problem, window, forget=forget))

        return Method(coco_name("SGD", window) + ", folding" * (forget == "fold"), make)

    alone = sgd(1, "drop")
    return [
        alone,
        sgd(2, "drop"),
        sgd(8, "drop"),
        sgd(2, "fold"),
        sgd(8, "fold"),
        Method("SGD+PRaveraging", alone.make, averaged=True),
        Method("SGD+DecreasingSS", lambda problem: SGD(decreasing(1 / problem.L))),
    ]


_SERIES = [method.series for method in _methods(_SETTINGS["1/L"])]


def _unit(config: FoldConfig, index: int) -> Unit:
    unit: dict[str, Array] = {}
    for name, setting in _SETTINGS.items():
        problem = setting.problem(config)
        start = np.full(problem.dimension, setting.start(config))

        def rng(name: str = name) -> np.random.Generator:
            return generator(config, f"{NAME} {name}", index)

        found = follow(problem, _methods(setting), start, setting.steps, rng, every=_every(setting))
        unit |= {f"{name}: {key}": array for key, array in found.items()}
        if name in _WATCHED:
            claimed, error = _watch(problem, setting, start, rng())
            unit[f"{name}: claimed"], unit[f"{name}: error"] = claimed, error / config.sigma**2
        if name == "0.3/L":
            for series, forget in _WRONG.items():
                unit[f"{series}: wrong L"] = _with_wrong_curvature(
                    problem, setting, start, rng, forget
                )
    return unit


def _every(setting: Setting) -> int:
    return max(1, setting.steps // 100)


def _watch(
    problem: Problem, setting: Setting, start: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return, at every step, the variance that the filter claims and its squared error."""
    filtering = Denoiser(problem.L, 2, forget="fold")
    claimed, error = [], []

    def watched(x: Vector, g: Vector) -> Vector:
        theta = filtering(x, g)
        claimed.append(filtering.state_dict()["variances"][0])
        error.append(np.mean((theta - problem.gradient(x)) ** 2))
        return theta

    optimizer = SGD(setting.step / problem.L, denoiser=watched)
    optimizers.run(optimizer, problem, start, steps=setting.steps, rng=rng)
    return np.array(claimed), np.array(error)


def _with_wrong_curvature(
    problem: Problem,
    setting: Setting,
    start: Array,
    rng: Callable[[], np.random.Generator],
    forget: Forget,
) -> Array:
    """Return the mean distance in the last half for every assumed L; the step stays the same."""
    found = []
    for factor in _FACTORS:
        denoiser = coco(problem, 2, forget=forget, factor=factor)
        optimizer = SGD(setting.step / problem.L, denoiser=denoiser)
        path = optimizers.run(optimizer, problem, start, steps=setting.steps, rng=rng())
        apart = np.linalg.norm(path.iterates - problem.minimizer, axis=1)
        found.append(apart[-(setting.steps // 2) :].mean())
    return np.array(found)


def _gather(_: FoldConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    for name, setting in _SETTINGS.items():
        own = [
            {key.removeprefix(f"{name}: "): u[key] for key in u if key.startswith(f"{name}: ")}
            for u in units
        ]
        regimes = Regimes(early=setting.steps // 5, late=setting.steps // 2)
        gather(curves, own, _SERIES, regimes, prefix=f"{name} ", every=_every(setting))
        end = {s: np.stack([unit[f"{s} objective"][-1:] for unit in own]) for s in ("SGD", _FOLD)}
        curves.add(f"{name} end", f"{_FOLD} minus SGD", setting.steps, end[_FOLD] - end["SGD"])
        if name in _WATCHED:
            label, at = _WATCHED[name], np.arange(1, setting.steps + 1)
            error, claimed = (np.stack([u[key] for u in own]) for key in ("error", "claimed"))
            curves.add("variance", label, at, error)
            curves.add("variance", f"{label}, claimed", at, claimed)
            late = slice(-(setting.steps // 2), None)
            excess = error[:, late].mean(axis=1) - claimed[:, late].mean(axis=1)
            curves.add("variance late", f"{label} minus claimed", at[late][0], excess[:, None])
    alone = np.stack([unit["0.3/L: SGD distance"] for unit in units])
    level = alone[:, -(_SETTINGS["0.3/L"].steps // 2) :].mean(axis=1, keepdims=True)
    for series in _WRONG:
        found = np.stack([unit[f"{series}: wrong L"] for unit in units])
        curves.add("wrong L", series, _FACTORS, found)
        curves.add("wrong L minus SGD", series, _FACTORS, found - level)
    curves.add("wrong L", "SGD", _FACTORS, np.repeat(level, len(_FACTORS), axis=1))
    distance = np.stack([unit[f"0.3/L: {_FOLD} distance"] for unit in units])
    quarter = _SETTINGS["0.3/L"].steps // 4
    falls = distance[:, -2 * quarter : -quarter].mean(axis=1) - distance[:, -quarter:].mean(axis=1)
    curves.add("still falling", _FOLD, quarter, falls[:, None])
    return curves


def _panels(_: Result) -> list[Panel]:
    calls, series = "oracle calls k", tuple(_SERIES)

    def distance(name: str, *, new_row: bool = False) -> Panel:
        title = _SETTINGS[name].title
        return Panel(
            f"{name} distance", title, calls, "‖xₖ − x*‖", series, log="y", new_row=new_row
        )

    claimed = frozenset(f"{label}, claimed" for label in _WATCHED.values())
    return [
        *(distance(name) for name in _QUADRATIC),
        distance("ill", new_row=True),
        Panel(
            "ill objective",
            "The same, its objective",
            calls,
            "f(xₖ) − f(x*)",
            series,
            log="y",
        ),
        distance("breast-cancer"),
        Panel(
            "variance",
            f"Error of {_FOLD}, measured and claimed",
            calls,
            "mean square error / σ²",
            references=claimed,
            log="y",
            new_row=True,
        ),
        Panel(
            "wrong L",
            "L wrong, step 0.3/L",
            "assumed L / true L",
            "‖xₖ − x*‖, last half",
            references=frozenset({"SGD"}),
            log="xy",
        ),
    ]


def _late(curves: Curves, names: Iterable[str], a: str, b: str) -> list[Curve]:
    return [difference(curves, f"{name} late", a, b) for name in names]


def _changes(
    curves: Curves, a: str, b: str, names: Iterable[str] = _QUADRATIC, regime: str = "late"
) -> str:
    return ", ".join(percent(curves, f"{name} {regime}", a, b) for name in names)


def _claims(result: Result) -> list[Claim]:
    curves, runs = result.curves, result.config.runs
    wrong = {name: curves["wrong L minus SGD", name] for name in _WRONG}
    over, under = np.array(_FACTORS) >= 1.0, np.array(_FACTORS) == min(_FACTORS)
    ratios = ", ".join(
        f"{_late_mean(curves, label) / _late_mean(curves, f'{label}, claimed'):.2f}"
        for label in _WATCHED.values()
    )
    return [
        increases(
            "Folding is worth more than a window: on the quadratic, COCO_2 with folding is nearer "
            f"than COCO_2 in the last half ({_changes(curves, _FOLD, 'SGD+COCO_2')} at 1/L, "
            "0.7/L, 0.3/L).",
            _late(curves, _QUADRATIC, "SGD+COCO_2", _FOLD),
            runs,
        ),
        nowhere_positive(
            "It is at least as good as COCO_8, with a quarter of the memory or less "
            f"({_changes(curves, _FOLD, 'SGD+COCO_8')}).",
            _late(curves, _QUADRATIC, _FOLD, "SGD+COCO_8"),
            runs,
        ),
        nowhere_positive(
            "With folding, a larger window is no better: COCO_8 against COCO_2 "
            f"({_changes(curves, 'SGD+COCO_8, folding', _FOLD)}).",
            _late(curves, _QUADRATIC, _FOLD, "SGD+COCO_8, folding"),
            runs,
            note="At long steps several neighbours tell more than one mixture of them.",
        ),
        increases(
            "At 0.3/L it is still falling in the last quarter.",
            [curves["still falling", _FOLD]],
            runs,
        ),
        increases(
            "On the quadratic it is nearer than averaging and a decreasing step, at every step "
            f"size ({_changes(curves, _FOLD, 'SGD+PRaveraging')} against averaging, "
            f"{_changes(curves, _FOLD, 'SGD+DecreasingSS')} against the decreasing step).",
            [
                found
                for rival in ("SGD+PRaveraging", "SGD+DecreasingSS")
                for found in _late(curves, _QUADRATIC, rival, _FOLD)
            ],
            runs,
        ),
        increases(
            "Logistic regression: it is nearer than SGD, COCO_2 and COCO_8 in the last half "
            f"({', '.join(_changes(curves, _FOLD, s, ['breast-cancer']) for s in _SERIES[:3])}).",
            [found for s in _SERIES[:3] for found in _late(curves, ["breast-cancer"], s, _FOLD)],
            runs,
        ),
        nowhere_positive(
            "Folding does not compromise the bias regime: it is no further than SGD in the first "
            f"fifth ({_changes(curves, _FOLD, 'SGD', _SETTINGS, 'early')} at 1/L, 0.7/L, 0.3/L, "
            "curvatures 1 to 0.001, breast-cancer).",
            [difference(curves, f"{name} early", _FOLD, "SGD") for name in _SETTINGS],
            runs,
            note="Many small steps in one direction leave the mixture behind, since each alone "
            "breaks no bound.",
        ),
        nowhere_positive(
            "Nor does it stall where curvatures differ by a factor of 1000 "
            f"({_changes(curves, _FOLD, 'SGD', ['ill'])} in distance to SGD, last half).",
            _late(curves, ["ill"], _FOLD, "SGD"),
            runs,
            note="It does: folding acts like a step that falls as 1/k, too short for directions "
            "of little curvature.",
        ),
        nowhere_positive(
            "There, the objective at least ends no higher than that of SGD.",
            [curves["ill end", f"{_FOLD} minus SGD"]],
            runs,
        ),
        agrees(
            "The variance is calibrated: the error in the last half is what the recursion claims "
            f"(measured / claimed: {ratios} at 1/L, 0.3/L, curvatures 1 to 0.001).",
            [curves["variance late", f"{label} minus claimed"] for label in _WATCHED.values()],
            runs,
            note="It leaves out that the mixture has a bias, and that t depends on the noise.",
        ),
        nowhere_positive(
            "With L exact or overestimated up to 10 times, folding is no further than SGD.",
            [Curve(*(column[over] for column in wrong[_FOLD]))],
            runs,
        ),
        increases(
            "With L underestimated 10 times, both COCO_2 and folding are further than SGD.",
            [Curve(*(column[under] for column in curve)) for curve in wrong.values()],
            runs,
        ),
        solved(curves, [f"{name} " for name in _SETTINGS]),
    ]


def _late_mean(curves: Curves, series: str) -> float:
    mean = curves["variance", series].mean
    return float(mean[-(mean.size // 2) :].mean())


EXPERIMENTS = (
    Experiment(
        NAME,
        "none: beyond the paper",
        "COCO_K whose window folds what leaves it, against COCO_K that forgets, and averaging.",
        FoldConfig(),
        {"runs": 6},
        lambda config: int(config.runs),
        _unit,
        _gather,
        _panels,
        _claims,
    ),
)
