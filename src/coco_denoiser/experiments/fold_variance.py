"""Is the variance of a fold what it claims, does its bias accumulate, and are there better folds?

Windows of two on the quadratics of `fold.py`: the fold as it is, and two others. One counts the
bias that a fold may bring, at most w rho, as variance. The other mixes the points as it mixes
the residuals: of a quadratic, the mean gradient is the gradient at the mean point, so that the
past has no bias where it stands, but it stands further away.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from coco_denoiser import Denoiser, optimizers
from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curve, Curves
from coco_denoiser.experiments.experiment import Experiment, Result, Unit, generator
from coco_denoiser.experiments.fold import QUADRATIC, SETTINGS, FoldConfig, Setting
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.optimizers import SGD
from coco_denoiser.problems import Problem
from coco_denoiser.solvers.closed_form import pull
from coco_denoiser.typing import Array, Float64

NAME = "fold-variance"
_PLAIN, _COUNTED, _MOVED, _FORGETTING = "folding", "bias counted", "points folded too", "COCO_2"
_FACTORS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # of the L that is assumed
_HONEST = "what is claimed"
_SHOWN = {"1/L": "step 1/L", "0.3/L": "step 0.3/L", "ill": "curvatures 1 to 0.001"}
_PROBLEMS = (*QUADRATIC, "ill")


class _Other:
    """A window of two with another fold, written out.

    Args:
        L: upper bound on the curvature.
        counted: whether the mixture's variance contains rho^2 / d, relative to sigma^2, which
            ||delta||^2 / d is an estimate of, times v_0 + v_1.
        moved: whether the points are mixed as well.
    """

    def __init__(self, L: float, *, counted: bool = False, moved: bool = False) -> None:
        self._c, self._counted, self._moved = L / 2, counted, moved
        self._past: tuple[Array, Array] | None = None
        self.variance = 1.0

    def __call__(self, x: Array, g: Array) -> Array:
        h = g - self._c * x
        if self._past is None:
            self._past = x, h
            return g
        point, residual = self._past
        delta = h - residual
        t = pull(float(np.linalg.norm(delta)), self._c * float(np.linalg.norm(x - point)))
        v = self.variance
        w = t / (v + 1.0)
        bias = (v + 1.0) * (1.0 - t) ** 2 if self._counted else 0.0
        self.variance = (1.0 - w) ** 2 + w**2 * (v + bias)
        phi: Array = h - w * delta
        self._past = x - w * (x - point) if self._moved else x, phi
        return phi + self._c * x


class _Watched:
    """A rule, and at every step the variance that it claims and its mean square error."""

    def __init__(self, rule: "Denoiser | _Other", problem: Problem) -> None:
        self._rule, self._problem = rule, problem
        self.claimed: list[float] = []
        self.error: list[float] = []

    def __call__(self, x: Array, g: Array) -> Array:
        theta = self._rule(x, g)
        rule = self._rule
        known = rule.variance if isinstance(rule, _Other) else rule.state_dict()["variances"].item()
        self.claimed.append(known)
        self.error.append(float(np.mean((theta - self._problem.gradient(x)) ** 2)))
        return theta


_RULES: dict[str, Callable[[float], Denoiser | _Other]] = {
    _PLAIN: lambda L: Denoiser(L, 2, forget="fold"),
    _COUNTED: lambda L: _Other(L, counted=True),
    _MOVED: lambda L: _Other(L, moved=True),
}
_WRONG: dict[str, Callable[[float], Callable[[Array, Array], Array]]] = {
    _FORGETTING: lambda L: Denoiser(L, 2),
    _PLAIN: _RULES[_PLAIN],
    _MOVED: _RULES[_MOVED],
}


def _unit(config: FoldConfig, index: int) -> Unit:
    unit: dict[str, Float64] = {}
    for name in _PROBLEMS:
        problem = SETTINGS[name].problem(config)
        for series, rule in _RULES.items():
            watched = _Watched(rule(problem.L), problem)
            unit[f"{name} {series} distance"] = _late(config, index, name, problem, watched)
            unit[f"{name} {series} claimed"] = np.array(watched.claimed)
            unit[f"{name} {series} error"] = np.array(watched.error) / config.sigma**2
    problem = SETTINGS["0.3/L"].problem(config)
    unit["SGD"] = _late(config, index, "0.3/L", problem, None)
    for series, make in _WRONG.items():
        unit[f"{series} wrong L"] = np.array(
            [
                _late(config, index, "0.3/L", problem, make(factor * problem.L))
                for factor in _FACTORS
            ]
        )
    return unit


def _late(
    config: FoldConfig,
    index: int,
    name: str,
    problem: Problem,
    denoiser: Callable[[Array, Array], Array] | None,
) -> Float64:
    """Return the mean distance in the last half of a run, as an array of no dimension."""
    setting = SETTINGS[name]
    path = optimizers.run(
        SGD(setting.step / problem.L, denoiser=denoiser),
        problem,
        np.full(problem.dimension, setting.start(config)),
        steps=setting.steps,
        rng=generator(config, f"{NAME} {name}", index),
    )
    apart = np.linalg.norm(path.iterates - problem.minimizer, axis=1)
    return np.asarray(apart[_half(setting)].mean(), dtype=np.float64)


def _half(setting: Setting) -> slice:
    return slice(-(setting.steps // 2), None)


def _gather(_: FoldConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()

    def stack(key: str) -> Float64:
        return np.stack([np.atleast_1d(unit[key]) for unit in units])

    for series in _RULES:
        for name, label in _SHOWN.items():
            half, at = _half(SETTINGS[name]), np.arange(1, SETTINGS[name].steps + 1)
            error, claimed = stack(f"{name} {series} error"), stack(f"{name} {series} claimed")
            curves.add(series, label, at, error / claimed.mean(axis=0))
            late = error[:, half].mean(axis=1, keepdims=True) / claimed[:, half].mean()
            curves.add(f"{series}, last half", label, at[half][0], late)
        curves.exact(series, _HONEST, at, np.ones(at.size))
    for name in _PROBLEMS:
        plain = stack(f"{name} {_PLAIN} distance")
        for series in _RULES:
            distance = stack(f"{name} {series} distance")
            curves.add(f"{name} late", series, SETTINGS[name].step, distance)
            excess = (distance - plain) / plain.mean()
            curves.add(f"{name} late over {_PLAIN}", series, SETTINGS[name].step, excess)
    alone = np.repeat(stack("SGD"), len(_FACTORS), axis=1)
    for series in _WRONG:
        found = stack(f"{series} wrong L")
        curves.add("wrong L", series, _FACTORS, found)
        curves.add("wrong L over SGD", series, _FACTORS, (found - alone) / alone.mean())
    curves.add("wrong L", "SGD", _FACTORS, alone)
    return curves


def _panels(_: Result) -> list[Panel]:
    honest = frozenset({_HONEST})
    titles = {_PLAIN: "A fold's error / its claimed variance", _MOVED: "Points folded too"}
    errors = [
        Panel(series, title, "oracle calls k", "measured / claimed", references=honest)
        for series, title in titles.items()
    ]
    wrong = Panel(
        "wrong L",
        "Wrong L: distance in the last half, step 0.3/L",
        "assumed L / true L",
        "‖xₖ − x*‖",
        references=frozenset({"SGD"}),
        log="xy",
        new_row=True,
    )
    return [*errors, wrong]


def _distances(curves: Curves, series: str, names: Iterable[str] = QUADRATIC) -> str:
    return ", ".join(f"{curves[f'{name} late', series].mean[0]:.1f}" for name in names)


def _claims(result: Result) -> list[Claim]:
    curves, ours = result.curves, Judge(result.config.runs)
    right, under = slice(_FACTORS.index(1.0), None), slice(1)

    def calibrated(series: str, sentence: str, note: str) -> Claim:
        late = [curves[f"{series}, last half", label] for label in _SHOWN.values()]
        ratios = ", ".join(f"{ratio.mean[0]:.2f}" for ratio in late)
        return ours.equivalent(
            f"{sentence} ({ratios} at 1/L, 0.3/L, curvatures 1 to 0.001).",
            [ratio.shifted(-1.0) for ratio in late],
            note=note,
        )

    def wrong(series: str, which: slice) -> list[Curve]:
        return [curves["wrong L over SGD", series].part(which)]

    def against_plain(series: str, names: Iterable[str]) -> list[Curve]:
        return [curves[f"{name} late over {_PLAIN}", series] for name in names]

    ill = against_plain(_MOVED, ["ill"])[0]
    return [
        calibrated(
            _PLAIN,
            "Folding is calibrated: in the last half, the error is the variance that it claims, "
            "measured / claimed = 1",
            "It claims too little: it ignores the bias of the mixture, and the dependence of t "
            "on the noise. Where curvatures differ much, the bias accumulates.",
        ),
        calibrated(
            _MOVED,
            "With the points folded too it is calibrated",
            "On the quadratic it nearly is. Where curvatures differ much it claims too much.",
        ),
        ours.increases(
            "But then the past is further away, and less is gained: on the quadratic the distance "
            f"is {_distances(curves, _MOVED)} at 1/L, 0.7/L, 0.3/L, with residuals folded only "
            f"{_distances(curves, _PLAIN)}.",
            against_plain(_MOVED, QUADRATIC),
        ),
        ours.increases(
            "Where curvatures differ by a factor of 1000 it is the better one "
            f"({_distances(curves, _MOVED, ['ill'])} against {_distances(curves, _PLAIN, ['ill'])})"
            ".",
            [ill.times(-1)],
        ),
        ours.no_worse(
            "Counting the bias as variance costs nothing on the quadratic "
            f"({_distances(curves, _COUNTED)}).",
            against_plain(_COUNTED, QUADRATIC),
            note="A fold that trusts itself less averages less.",
        ),
        ours.no_worse(
            "With L exact or overestimated up to 10 times, folding is no further than SGD.",
            wrong(_PLAIN, right),
        ),
        ours.increases(
            "With L underestimated 10 times, the bias accumulates: folding is further than SGD.",
            wrong(_PLAIN, under),
        ),
        ours.no_worse("COCO_2, which forgets, is not.", wrong(_FORGETTING, under)),
    ]


EXPERIMENT = Experiment(
    NAME,
    "The variance that a fold claims and the one it has, other folds, and folding with a wrong L.",
    FoldConfig(runs=100),
    {"runs": 10},
    _unit,
    _gather,
    _panels,
    _claims,
)
