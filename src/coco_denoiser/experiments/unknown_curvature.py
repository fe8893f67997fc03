"""What it costs not to know L: known, ten times over, ten times under, and not needed.

Each method follows its own path on the same noise. The error is that of the gradient which
the optimizer sees, ||theta_k - f'(x_k)||^2; for the raw oracle it is that of the noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from coco_denoiser import Denoiser
from coco_denoiser.experiments import paths
from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curve, Curves
from coco_denoiser.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.optimizers import SGD, Adam, Optimizer
from coco_denoiser.problems import LogisticRegression, Problem, Quadratic, datasets
from coco_denoiser.typing import Array, Float64

NAME = "unknown-curvature"
_RAW, _KNOWN, _OVER, _UNDER = "raw oracle", "L known", "L 10 times over", "L 10 times under"
_NONE, _NOISE = "Gaussian_32, no L", "Gaussian_32, noise known"
_FACTORS = {_KNOWN: 1.0, _OVER: 10.0, _UNDER: 0.1}


@dataclass(frozen=True)
class UnknownConfig(Config):
    """The paper's quadratic, and logistic regression on data that is always there."""

    runs: int = 100
    window: int = 8
    gaussian_window: int = 32
    steps: int = 32
    dimension: int = 10
    sigma: float = 10.0
    start: float = 100.0
    logistic_steps: int = 100


class Setting(NamedTuple):
    """A problem with an optimizer."""

    name: str
    problem: Problem
    start: float
    steps: int
    adam: bool
    late: int


def _settings(config: UnknownConfig) -> list[Setting]:
    quadratic = Quadratic.spaced(config.dimension, noise_std=config.sigma)
    far, k, n = config.start, config.steps, config.logistic_steps
    return [
        Setting("quadratic, SGD", quadratic, far, k, adam=False, late=k // 2),
        Setting("quadratic, Adam", quadratic, far, k, adam=True, late=k // 4),
        Setting("breast cancer, SGD", _breast_cancer(), 1.0, n, adam=False, late=n // 4),
    ]


@lru_cache(maxsize=1)
def _breast_cancer() -> LogisticRegression:
    data = datasets.breast_cancer()
    weight = 1.0 / np.sqrt(len(data.labels))
    return LogisticRegression(data.features, data.labels, regularization=weight)


def _series(problem: Problem) -> list[str]:
    known = [_NOISE] if isinstance(problem, Quadratic) else []
    return [_RAW, *_FACTORS, _NONE, *known]


class _Recorder:
    """A denoiser that notes the error of what it returns."""

    def __init__(self, problem: Problem, denoiser: Denoiser | None) -> None:
        self.problem, self.denoiser = problem, denoiser
        self.reset()

    def reset(self) -> None:
        self.errors: list[float] = []
        if self.denoiser is not None:
            self.denoiser.reset()

    def __call__(self, x: Array, g: Array) -> Array:
        theta = g if self.denoiser is None else self.denoiser(x, g)
        self.errors.append(float(np.sum((theta - self.problem.gradient(x)) ** 2)))
        return theta


def _denoiser(config: UnknownConfig, problem: Problem, series: str) -> Denoiser | None:
    if series == _RAW:
        return None
    if series in _FACTORS:
        return Denoiser(_FACTORS[series] * problem.L, config.window, tol=paths.TOLERANCE)
    noise = config.sigma if series == _NOISE else None
    return Denoiser(window=config.gaussian_window, tol=paths.TOLERANCE, noise_std=noise)


def _optimizer(setting: Setting, recorder: _Recorder) -> Optimizer:
    if setting.adam:
        return Adam(10.0, beta1=0.5, beta2=0.999, eps=1e-8, denoiser=recorder)
    return SGD(1.0 / setting.problem.L, denoiser=recorder)


def _unit(config: UnknownConfig, index: int) -> Unit:
    unit: dict[str, Float64] = {}
    for setting in _settings(config):
        for series in _series(setting.problem):
            recorder = _Recorder(setting.problem, _denoiser(config, setting.problem, series))
            optimizer = _optimizer(setting, recorder)
            found = paths.follow(
                setting.problem,
                [paths.Method(series, lambda _, made=optimizer: made)],  # type: ignore[misc]
                np.full(setting.problem.dimension, setting.start),
                setting.steps,
                lambda name=setting.name: generator(config, name, index),  # type: ignore[misc]
            )
            unit |= {f"{setting.name} {name}": values for name, values in found.items()}
            unit[f"{setting.name} {series} error"] = np.array(recorder.errors)
    return unit


def _gather(config: UnknownConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    for name, problem, _, steps, _, late in _settings(config):
        series, at, mine = _series(problem), np.arange(steps), paths.part(units, f"{name} ")
        error = {s: np.stack([u[f"{s} error"] for u in mine]) for s in series}
        for s in series:
            curves.add(f"{name} error", s, at, error[s])
        for s in series[4:]:
            excess = (error[s] - error[_RAW]) / error[_RAW].mean(axis=0)
            curves.add(f"{name} step by step", f"{s} over {_RAW}", at, excess)
        paths.gather(curves, mine, series, paths.Regimes(1, late), prefix=f"{name} ")
        distance = {s: np.stack([u[f"{s} distance"] for u in mine])[:, -late:] for s in series}
        for what, runs in (("error", error), ("distance", distance)):
            mean = {s: runs[s].mean(axis=1, keepdims=True) for s in series}
            for a in series:
                curves.add(f"{name} mean {what}", a, 0, mean[a])
                for b in (_RAW, _KNOWN):
                    if a != b:
                        curves.add(f"{name} mean {what}", f"{a} minus {b}", 0, mean[a] - mean[b])
                halfway = 0.5 * (mean[_RAW] + mean[_KNOWN]) - mean[a]
                curves.add(f"{name} mean {what}", f"{a} beyond half the gain", 0, halfway)
    return curves


def _panels(result: Result) -> list[Panel]:
    return [
        paths.panel(
            f"{setting.name} {what}",
            setting.name if what == "error" else "",
            _series(setting.problem),
            new_row=i == 0,
        )
        for what in ("error", "distance")
        for i, setting in enumerate(_settings(result.config))
    ]


def _claims(result: Result) -> list[Claim]:
    curves, ours = result.curves, Judge(result.config.runs)
    names = [setting.name for setting in _settings(result.config)]
    everywhere = [
        (name, what, series)
        for name in names
        for what in ("error", "distance")
        for series in curves.series(f"{name} error")[4:]
    ]
    claims = [
        ours.no_worse(
            "With the Gaussian model, which needs no L, neither the error of the gradients nor the "
            "distance in the end is worse than with the raw oracle, in any of the settings.",
            [curves.relative(f"{n} mean {what}", s, _RAW) for n, what, s in everywhere],
        ),
        ours.no_worse(
            "With the Gaussian model, the error is at no step above that of the raw oracle.",
            [curves[key] for key in curves if key[0].endswith("step by step")],
        ),
    ]
    for name in names:
        shown = [key for key in everywhere if key[0] == name]
        kept = ", ".join(
            f"{s} {_kept(curves, f'{n} mean {what}', s):.0%} of the {what}'s"
            for n, what, s in shown
        )
        claims.append(
            ours.increases(
                f"{name}: without L, the Gaussian model keeps at least half of the gain of the "
                f"known L ({kept}).",
                [curves[f"{n} mean {what}", f"{s} beyond half the gain"] for n, what, s in shown],
                measure="smallest margin over half the gain, in standard errors",
            )
        )
    return [
        *claims,
        ours.increases(
            "An L ten times under the true one makes gradients worse than raw on the quadratic "
            f"({_times(curves, names[0])} times the error with SGD, "
            f"{_times(curves, names[1])} times with Adam).",
            [curves.difference(f"{name} mean error", _UNDER, _RAW) for name in names[:2]],
        ),
        ours.increases(
            "An L ten times over gains less than the known one, in every setting.",
            [curves.difference(f"{name} mean error", _OVER, _KNOWN) for name in names],
        ),
        paths.solved(curves, [f"{name} " for name in names]),
    ]


def _kept(curves: Curves, panel: str, series: str) -> float:
    gain: list[Curve] = [curves[panel, f"{s} minus {_RAW}"] for s in (series, _KNOWN)]
    return float(gain[0].mean[0] / gain[1].mean[0])


def _times(curves: Curves, name: str) -> str:
    panel = f"{name} mean error"
    return f"{curves[panel, _UNDER].mean[0] / curves[panel, _RAW].mean[0]:.1f}"


EXPERIMENT = Experiment(
    NAME,
    "Gradients and paths with L known, ten times over, ten times under, and without L.",
    UnknownConfig(),
    {"runs": 6},
    _unit,
    _gather,
    _panels,
    _claims,
    check=lambda _: _breast_cancer(),
)
