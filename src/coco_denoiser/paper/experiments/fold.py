"""Folding, which mixes what leaves a window into its successor, against forgetting it.

On the paper's quadratic at two steps, on one whose curvatures range over three decades, and
in logistic regression. "SGD+COCO_2, folding" is a filter that keeps two vectors.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from coco_denoiser.paper.experiments import paths
from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import Unit
from coco_denoiser.paper.experiments.logistic import regression
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.problems import Problem, Quadratic

FOLD = "SGD+COCO_2, folding"


class Setting(NamedTuple):
    """A problem with the step, as a share of 1/L, the number of steps, and where to start."""

    title: str
    step: float
    steps: int
    problem: Callable[[], Problem]
    start: float = 100.0


def _quadratic() -> Problem:
    return Quadratic.spaced(10, noise_std=10.0)


SETTINGS = {
    "1/L": Setting("Quadratic, step 1/L", 1.0, 32, _quadratic),
    "0.3/L": Setting("Quadratic, step 0.3/L", 0.3, 150, _quadratic),
    "ill": Setting(
        "Curvatures 1 to 0.001, step 0.3/L",
        0.3,
        150,
        lambda: Quadratic(np.logspace(0, -3, 10), noise_std=10.0),
    ),
    "breast-cancer": Setting(
        "Logistic, breast-cancer, step 0.5/L",
        0.5,
        400,
        lambda: regression("breast-cancer"),
        1.0,
    ),
}
QUADRATIC = ("1/L", "0.3/L")


def _methods(step: float) -> list[paths.Method]:
    alone = paths.sgd(1, step)
    return [
        alone,
        *(paths.sgd(K, step) for K in (2, 8)),
        *(paths.sgd(K, step, forget="fold") for K in (2, 8)),
        alone._replace(series="SGD+PRaveraging", averaged=True),
        paths.DECREASING,
    ]


_SERIES = [method.series for method in _methods(1.0)]


@dataclass(frozen=True)
class Fold(paths.Paths):
    """What is run on every setting."""

    name = "fold"
    summary = (
        "COCO_K whose window folds what leaves it, against COCO_K that forgets, and averaging."
    )
    quick: ClassVar = {"runs": 6}
    runs: int = 60

    def races(self) -> dict[str, paths.Race]:
        return {
            f"{name} ": paths.Race(f"fold {name}", problem(), _methods(step), start, steps)
            for name, (_, step, steps, problem, start) in SETTINGS.items()
        }

    def gather(self, units: Sequence[Unit]) -> Curves:
        curves = Curves()
        for name, setting in SETTINGS.items():
            early, late = setting.steps // 5, setting.steps // 2
            paths.gather(curves, units, _SERIES, early=early, late=late, prefix=f"{name} ")
        return curves

    def panels(self, _: Curves) -> list[Panel]:
        return [
            paths.panel(f"{name} distance", setting.title, _SERIES, new_row=name == "ill")
            for name, setting in SETTINGS.items()
        ]

    def claims(self, curves: Curves) -> list[Claim]:
        ours = Judge(self.runs)
        late, early = [f"{name} late" for name in QUADRATIC], [f"{name} early" for name in SETTINGS]

        def lead(other: str, names: Iterable[str] = QUADRATIC) -> list[Curve]:
            return [curves.difference(f"{name} late", other, FOLD) for name in names]

        def excess(a: str, b: str, panels: Iterable[str] = late) -> list[Curve]:
            return [curves.relative(panel, a, b) for panel in panels]

        def said(a: str, b: str, panels: Iterable[str] = late) -> str:
            return ", ".join(curves.percent(panel, a, b) for panel in panels)

        window, averaging, decreasing_step = "SGD+COCO_8", "SGD+PRaveraging", "SGD+DecreasingSS"
        return [
            ours.increases(
                "Folding is worth more than a window: on the quadratic, COCO_2 with folding is "
                f"nearer than COCO_2 in the last half ({said(FOLD, 'SGD+COCO_2')} at 1/L and "
                "0.3/L).",
                lead("SGD+COCO_2"),
            ),
            ours.no_worse(
                "It is at least as good as COCO_8, with an eighth of the memory "
                f"({said(FOLD, window)}).",
                excess(FOLD, window),
            ),
            ours.no_worse(
                "With folding, a larger window is no better: COCO_8 against COCO_2 "
                f"({said(f'{window}, folding', FOLD)}).",
                excess(FOLD, f"{window}, folding"),
                note="At long steps several neighbours tell more than one mixture of them.",
            ),
            ours.increases(
                "On the quadratic it is nearer than averaging and a decreasing step, at both step "
                f"sizes ({said(FOLD, averaging)} against averaging, {said(FOLD, decreasing_step)} "
                "against the decreasing step).",
                [*lead(averaging), *lead(decreasing_step)],
            ),
            ours.increases(
                "Logistic regression: it is nearer than SGD, COCO_2 and COCO_8 in the last half "
                f"({', '.join(said(FOLD, s, ['breast-cancer late']) for s in _SERIES[:3])}).",
                [curve for s in _SERIES[:3] for curve in lead(s, ["breast-cancer"])],
            ),
            ours.no_worse(
                "Folding does not compromise the bias regime: it is no further than SGD in the "
                f"first fifth ({said(FOLD, 'SGD', early)} at 1/L, 0.3/L, curvatures 1 to 0.001, "
                "breast-cancer).",
                excess(FOLD, "SGD", early),
                note="Many small steps in one direction leave the mixture behind, since each alone "
                "breaks no bound.",
            ),
            ours.no_worse(
                "Where curvatures differ by a factor of 1000 it is no further than SGD "
                f"({said(FOLD, 'SGD', ['ill late'])} in the last half).",
                excess(FOLD, "SGD", ["ill late"]),
                note="Folding acts like a step that falls as 1/k, too short for directions of "
                "little curvature.",
            ),
            paths.solved(curves),
        ]
