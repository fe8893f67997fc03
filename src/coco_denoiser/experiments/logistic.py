"""SGD, STRSAGA and Adam with COCO_K in logistic regression (real_dataset).

The noise comes from picking one example, so it is neither Gaussian nor independent of the
point: this is COCO outside its assumptions. `breast-cancer` is ours, for it comes with
scikit-learn and is always there.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from coco_denoiser.experiments.claims import (
    Claim,
    increases,
    nowhere_positive,
    somewhere_negative,
)
from coco_denoiser.experiments.experiment import (
    Config,
    Curves,
    Experiment,
    Result,
    Unit,
    generator,
)
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.experiments.paths import (
    Method,
    Regimes,
    apart,
    coco,
    coco_name,
    difference,
    follow,
    gather,
    percent,
    solved,
)
from coco_denoiser.optimizers import SGD, STRSAGA, Adam, Optimizer
from coco_denoiser.problems import Dataset, LogisticRegression, Problem, datasets

_BASES = ("SGD", "STRSAGA", "Adam")
_BANDS = "largest difference, in the standard errors of the two bands"
_GRID = 100  # the objective, which takes a pass over the data, is computed so many times


@dataclass(frozen=True)
class LogisticConfig(Config):
    """What is run on one data set; tuples are in the order SGD, STRSAGA, Adam.

    Attributes:
        data: the data set.
        regularized: whether there is a Tikhonov term, of weight 1.00001 / sqrt(n).
        step_sizes: of the three methods.
        divided_by_L: which of them are divided by L.
        steps: of the three methods.
        around_minimizer: which of them start at x* + start, and not at start.
        starts: what that start is in every coordinate.
        windows: K of the three methods.
    """

    runs: int = 100
    data: str = "fourclass"
    regularized: bool = False
    step_sizes: tuple[float, float, float] = (1.0, 1.0, 80.0)
    divided_by_L: tuple[bool, bool, bool] = (True, True, True)  # noqa: N815
    steps: tuple[int, int, int] = (800, 800, 800)
    around_minimizer: tuple[bool, bool, bool] = (False, False, False)
    starts: tuple[float, float, float] = (1.0, 1.0, 1.0)
    windows: tuple[tuple[int, ...], ...] = ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8, 16))


_SOURCES: dict[str, Callable[[], Dataset]] = {
    "fourclass": datasets.fourclass,
    "mushrooms": datasets.mushrooms,
    "breast-cancer": datasets.breast_cancer,
}


def _problem(config: LogisticConfig) -> LogisticRegression:
    return regression(config.data, regularized=config.regularized)


def dataset(name: str) -> Dataset:
    """Return a data set by its name."""
    return _SOURCES[name]()


def regression(data: str, *, regularized: bool) -> LogisticRegression:
    """Return the problem of a data set, the same object every time."""
    # The folder is part of the key: a test, or a user, may name another one.
    return _load(data, regularized, os.environ.get(datasets.DATA_VARIABLE))


@lru_cache(maxsize=4)
def _load(data: str, regularized: bool, _: str | None) -> LogisticRegression:  # noqa: FBT001
    found = _SOURCES[data]()
    weight = 1.00001 / np.sqrt(len(found.labels)) if regularized else 0.0
    return LogisticRegression(found.features, found.labels, regularization=weight)


def _method(config: LogisticConfig, which: int, window: int) -> Method:
    def make(problem: Problem) -> Optimizer:
        size = config.step_sizes[which] / (problem.L if config.divided_by_L[which] else 1.0)
        kinds = {"SGD": SGD, "STRSAGA": STRSAGA, "Adam": Adam}
        return kinds[_BASES[which]](size, denoiser=coco(problem, window))

    return Method(coco_name(_BASES[which], window), make)


def _every(config: LogisticConfig, which: int) -> int:
    return max(1, config.steps[which] // _GRID)


def _unit(config: LogisticConfig, index: int) -> Unit:
    problem = _problem(config)
    unit: dict[str, np.ndarray] = {}
    for which, base in enumerate(_BASES):
        start = np.full(problem.dimension, config.starts[which])
        if config.around_minimizer[which]:
            start = start + problem.minimizer
        unit |= follow(
            problem,
            [_method(config, which, window) for window in config.windows[which]],
            start,
            config.steps[which],
            lambda name=f"{config.data} {base}": generator(config, name, index),  # type: ignore[misc]
            every=_every(config, which),
        )
    return unit


def _regimes(config: LogisticConfig, which: int) -> Regimes:
    steps = config.steps[which]
    return Regimes(early=steps // 20, late=steps // 16)


def _gather(config: LogisticConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    for which, base in enumerate(_BASES):
        series = [coco_name(base, window) for window in config.windows[which]]
        regimes, every = _regimes(config, which), _every(config, which)
        gather(curves, units, series, regimes, prefix=f"{base} ", every=every)
    return curves


def _panels(result: Result) -> list[Panel]:
    return [
        Panel(
            f"{base} {what}",
            base if what == "distance" else "",
            "oracle calls k",
            label,
            tuple(coco_name(base, window) for window in result.config.windows[which]),
            log="y",
            new_row=which == 0,
        )
        for what, label in (("distance", "‖xₖ − x*‖"), ("objective", "f(xₖ) − f(x*)"))
        for which, base in enumerate(_BASES)
    ]


def _claims(result: Result) -> list[Claim]:
    curves, config = result.curves, result.config
    claims = []
    for base in _BASES[:2]:
        names = _names(config, base)
        claims.append(
            increases(
                f"{base}: the distance in the variance regime falls consistently with K "
                f"{_changes(result, base, 'late')}.",
                [difference(curves, f"{base} late", a, b) for a, b in pairwise(names)],
                config.runs,
            )
        )
        changes = _changes(result, base, "early")
        if config.data == "fourclass":
            claims.append(
                increases(
                    f"{base}: COCO delays the bias regime {changes}.",
                    [difference(curves, f"{base} early", name, base) for name in names[1:]],
                    config.runs,
                )
            )
        else:
            inside = "; the start lies within the noise, so that curves rise to their plateau"
            claims.append(
                nowhere_positive(
                    f"{base}: there is no significant delay in the bias regime {changes}"
                    f"{inside if config.data == 'mushrooms' else ''}.",
                    [apart(curves, f"{base} early", name, base) for name in names[1:]],
                    config.runs,
                    measure=_BANDS,
                )
            )
    prefixes = [f"{base} " for base in _BASES]
    return [*claims, *_adam_claims(result), solved(curves, prefixes)]


def _adam_claims(result: Result) -> list[Claim]:
    curves, config = result.curves, result.config
    names = _names(config, "Adam")
    gains = [difference(curves, "Adam late", "Adam", name) for name in names[1:]]
    late = _changes(result, "Adam", "late")
    if config.data == "fourclass":
        return [
            nowhere_positive(
                f"Adam: there is no variance gain for a small K, here K = 2 {late}.",
                gains[:1],
                config.runs,
            ),
            increases(
                "Adam: there is a variance gain for a large K, here K = 16.",
                gains[-1:],
                config.runs,
            ),
            nowhere_positive(
                "Adam: there is almost no delay in the bias regime "
                f"{_changes(result, 'Adam', 'early')}.",
                [apart(curves, "Adam early", name, "Adam") for name in names[1:]],
                config.runs,
                measure=_BANDS,
            ),
        ]
    steps = [difference(curves, "Adam late", a, b) for a, b in pairwise(names)]
    return [
        increases(
            f"Adam benefits from COCO, for every K {late}.",
            gains,
            config.runs,
            note="COCO_2 makes Adam worse here. Why is not known; successive denoised gradients "
            "share noise, which Adam's own average of them can then not remove.",
        ),
        somewhere_negative(
            "Adam: the variance does not improve consistently with K.",
            steps,
            config.runs,
            measure="smallest gain from one K to the next, in standard errors",
        ),
    ]


def _names(config: LogisticConfig, base: str) -> list[str]:
    return [coco_name(base, window) for window in config.windows[_BASES.index(base)]]


def _changes(result: Result, base: str, regime: str) -> str:
    """Return, in brackets, by how much each window changes the distance in a regime."""
    which = _BASES.index(base)
    regimes = _regimes(result.config, which)
    changes = ", ".join(
        percent(result.curves, f"{base} {regime}", name, base)
        for name in _names(result.config, base)[1:]
    )
    windows = ", ".join(str(window) for window in result.config.windows[which][1:])
    steps = f"first {regimes.early}" if regime == "early" else f"last {regimes.late}"
    return f"({changes} for K = {windows} in the {steps} steps)"


def _check(config: LogisticConfig) -> None:
    _problem(config)


_CONFIGS = {
    "fourclass": LogisticConfig(),
    "mushrooms": LogisticConfig(
        data="mushrooms",
        runs=50,
        regularized=True,
        step_sizes=(2.0, 4.0, 0.1),
        divided_by_L=(True, True, False),
        steps=(1000, 1000, 200),
        around_minimizer=(True, True, False),
        starts=(0.05, 0.05, 1.0),
        windows=((1, 2, 4, 8),) * 3,
    ),
    "breast-cancer": LogisticConfig(
        data="breast-cancer",
        runs=50,
        regularized=True,
        step_sizes=(1.0, 1.0, 0.1),
        divided_by_L=(True, True, False),
        steps=(800, 800, 400),
        windows=((1, 2, 4, 8),) * 3,
    ),
}
EXPERIMENTS = tuple(
    Experiment(
        f"logistic-{data}",
        {"fourclass": "real_dataset (top)", "mushrooms": "real_dataset (bottom)"}.get(
            data, "none: the same on data that is always there"
        ),
        f"SGD, STRSAGA and Adam, each with COCO_K, for logistic regression on {data}.",
        config,
        {"runs": 3},
        lambda config: int(config.runs),
        _unit,
        _gather,
        _panels,
        _claims,
        _check,
    )
    for data, config in _CONFIGS.items()
)
