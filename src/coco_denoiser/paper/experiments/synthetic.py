"""SGD and Adam on a quadratic with Gaussian noise, where COCO's assumptions hold exactly.

    minimise  f(x) = 1/2 x' diag(1, …, 1/3) x      from      g(x) = f'(x) + sigma·noise

Four figures on one problem: COCO_K in SGD and in Adam, COCO_K against smaller steps, and COCO
against the other ways to reduce the variance of SGD.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar

import numpy as np

from coco_denoiser.paper.experiments import paths
from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Unit
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.optimizers import Adam
from coco_denoiser.paper.problems import Quadratic

_ADAM_STEP = 10.0
_NO_MOMENTUM = ", beta1=0"  # beside the figure: what COCO_2 does for Adam without momentum
_WINDOWS: tuple[int | None, ...] = (1, 2, 4, 8, 16, None)
_SMALLER_STEPS = {2: 0.8, 4: 0.6, 8: 0.4}  # the share of 1/L that the paper tuned to COCO_K
_AT_ANY_STEP = 8  # the window that is tried at each of these steps
_EARLY = 6
_NEARER = {"SGD": 3, "Adam": _EARLY}  # steps each of which must lead nearer
_STALLED = 6  # steps whose mean is compared with that of as many before them
_STANDSTILL = 0.1  # a fall of less between them: in the bias regime it is by nine tenths
_FALL = (
    f"largest fall from the {_STALLED} steps before the last {_STALLED} to these that the runs "
    "leave possible, as a share"
)


def _adam(window: int | None, beta1: float = 0.5) -> paths.Method:
    found = paths.helped("Adam", window, partial(Adam, beta1=beta1), lambda _: _ADAM_STEP)
    return found._replace(series=found.series + _NO_MOMENTUM * (beta1 == 0))


_SGD_ALONE = paths.sgd(1)
_WINDOWED = [paths.sgd(K) for K in _SMALLER_STEPS]
_SMALLER = [
    paths.sgd(1, step)._replace(series=f"SGD+SS(COCO_{K})") for K, step in _SMALLER_STEPS.items()
]
_HELPED = [
    paths.sgd(_AT_ANY_STEP, step)._replace(series=f"SGD+COCO_{_AT_ANY_STEP}, step {step}/L")
    for step in _SMALLER_STEPS.values()
]


@dataclass(frozen=True)
class Synthetic(paths.Paths):
    """The paper's numbers; `late` counts the last steps, where noise dominates."""

    quick: ClassVar = {"runs": 40}
    seconds = 1.5
    figure: ClassVar[str]  # of the paper, and its place there
    methods: ClassVar[Sequence[paths.Method]]
    runs: int = 100
    steps: int = 32
    dimension: int = 10
    sigma: float = 10.0
    start: float = 100.0
    late: int = 16

    def races(self) -> dict[str, paths.Race]:
        problem = Quadratic.spaced(self.dimension, noise_std=self.sigma)
        # One name for the noise of all four figures, so that SGD is the same curve in each.
        return {"": paths.Race("synthetic", problem, self.methods, self.start, self.steps)}

    def gather(self, units: Sequence[Unit]) -> Curves:
        curves = Curves()
        series = [method.series for method in self.methods]
        paths.gather(curves, units, series, early=_EARLY, late=self.late)
        at = np.arange(self.steps + 1)
        distance = paths.distances(units, series)
        for name in series:
            end = distance[name][:, -_STALLED:].mean(axis=1)
            before = distance[name][:, -2 * _STALLED : -_STALLED].mean(axis=1)
            fall = (before - end) / end.mean()
            curves.add("last fall", name, self.steps - _STALLED, fall[:, None])
            falls = -np.diff(distance[name][:, : _EARLY + 1], axis=1)
            curves.add("first falls", name, at[1 : _EARLY + 1], falls)
        if "SGD" in series:
            squares = distance["SGD"][:, 1:] ** 2 / self._theory()[1:] - 1
            curves.add(
                "squared distance over theory", "SGD", 1, squares.mean(axis=1, keepdims=True)
            )
        return curves

    def _theory(self) -> np.ndarray:
        """Return E||x_k||^2 of SGD with step 1/L: x <- (1 - a) x - noise for each eigenvalue a."""
        a = np.linspace(1, 1 / 3, self.dimension)
        shrink = (1 - a) ** 2
        out = np.empty((self.steps + 1, a.size))
        out[0] = self.start**2
        for k in range(self.steps):
            out[k + 1] = shrink * out[k] + self.sigma**2
        return np.asarray(out.sum(axis=1))

    def panels(self, _: Curves) -> list[Panel]:
        series = [method.series for method in self.methods if ", " not in method.series]
        return [paths.panel("distance", "Distance to the minimiser", series, figure=self.figure)]

    def _regimes(self, curves: Curves, base: str) -> list[Claim]:
        """Return the claims that SGD's and Adam's figures have in common."""
        paper = Judge(self.runs, figure=4)
        names = [paths.coco_name(base, window) for window in _WINDOWS]
        steps = [curves.difference("late", a, b) for a, b in pairwise(names)]
        if base == "Adam":
            steps = steps[:-1]  # the paper says of the last two that they are superimposed
        gains, changes = (curves.percents(regime, names[1:], base) for regime in ("late", "early"))
        improved = paper.premise(
            "a gain in the variance regime with all points",
            [curves.difference("late", base, names[-1])],
        )
        note = ""
        if base == "Adam":
            without = curves.percent(
                "late", *(f"{name}{_NO_MOMENTUM}" for name in (names[1], base))
            )
            note = (
                "COCO_2 and momentum average the same neighbouring gradients: in Adam without "
                f"momentum (beta1 = 0) COCO_2 changes the distance by {without}."
            )
        return [
            paper.increases(
                f"In the bias regime all converge: each of the first {_NEARER[base]} steps brings "
                f"{base} nearer to the minimiser, for every K.",
                [curves["first falls", name].part(slice(_NEARER[base])) for name in names],
                provided=improved,
            ),
            paper.no_worse(
                f"COCO does not compromise the bias regime of {base}: no K is further away in the "
                f"first {_EARLY} steps ({changes} for K = 2, 4, 8, 16, all).",
                [curves.relative("early", name, base) for name in names[1:]],
                provided=improved,
            ),
            paper.increases(
                f"Even K = 2 improves {base} significantly in the variance regime "
                f"({curves.percent('late', names[1], base)}).",
                [curves.difference("late", base, names[1])],
                note=note,
            ),
            paper.no_worse(
                f"{base} alone ends in stagnation, the variance regime.",
                [curves["last fall", base]],
                margin=_STANDSTILL,
                measure=_FALL,
            ),
            paper.increases(
                f"In the variance regime (last {self.late} steps) the distance of {base} falls "
                f"monotonically with K: {gains} against {base} alone for K = 2, 4, 8, 16, all.",
                steps,
                note=note,
            ),
        ]

    def claims(self, curves: Curves) -> list[Claim]:
        claims = [paths.solved(curves)]
        if ("squared distance over theory", "SGD") in curves:
            claims.insert(
                0,
                Judge(self.runs).equivalent(
                    "SGD's mean squared distance is what theory gives.",
                    [curves["squared distance over theory", "SGD"]],
                    margin=0.1,
                    theory=True,
                ),
            )
        return claims


class SyntheticSGD(Synthetic):
    """SGD alone and with every window."""

    name = "synthetic-sgd"
    summary = "SGD against SGD+COCO_K on a quadratic with Gaussian noise, K = 2, 4, 8, 16, all."
    numbers = (4,)
    figure = "4, left"
    methods: ClassVar = [paths.sgd(window) for window in _WINDOWS]

    def claims(self, curves: Curves) -> list[Claim]:
        return [*self._regimes(curves, "SGD"), *super().claims(curves)]


class SyntheticAdam(Synthetic):
    """Adam alone and with every window; it needs longer to get to where noise dominates."""

    name = "synthetic-adam"
    summary = "Adam against Adam+COCO_K on the same problem."
    numbers = (4,)
    figure = "4, right"
    methods: ClassVar = [*map(_adam, _WINDOWS), _adam(1, 0.0), _adam(2, 0.0)]

    def claims(self, curves: Curves) -> list[Claim]:
        pair = "Adam+COCO_16", "Adam+COCO"
        paper = Judge(self.runs, figure=4)
        same = paper.equivalent(
            "Adam+COCO_16 and Adam+COCO are superimposed.",
            [curves.relative(regime, *pair) for regime in ("early", "late")],
            provided=paper.premise(
                "a gain over Adam alone", [curves.difference("late", "Adam", name) for name in pair]
            ),
        )
        ahead = (self.start - _ADAM_STEP) * np.sqrt(self.dimension)
        first = paper.equivalent(
            "Adam receives an initial step size and adjusts it afterwards: its first step is "
            f"{_ADAM_STEP:g} in every coordinate.",
            [curves["distance", "Adam"].part(slice(1, 2)).over(ahead).shifted(-1)],
        )
        alone, helped = (f"{name}{_NO_MOMENTUM}" for name in ("Adam", "Adam+COCO_2"))
        useful = Judge(self.runs).increases(
            "Without momentum (beta1 = 0) COCO_2 improves Adam "
            f"({curves.percent('late', helped, alone)}).",
            [curves.difference("late", alone, helped)],
        )
        return [*self._regimes(curves, "Adam"), same, first, useful, *super().claims(curves)]


class TunedStep(Synthetic):
    """Steps that are smaller instead."""

    name = "tuned-step"
    summary = "SGD+COCO_K against SGD with a step small enough for the same variance."
    numbers = (13,)
    figure = "13"
    methods: ClassVar = [_SGD_ALONE, *_WINDOWED, *_SMALLER, *_HELPED]

    def claims(self, curves: Curves) -> list[Claim]:
        paper = Judge(self.runs, figure=13)
        smaller = [method.series for method in _SMALLER]
        pairs = [(ours.series, tuned) for ours, tuned in zip(_WINDOWED, smaller, strict=True)]
        late, early = (
            ", ".join(curves.percent(regime, tuned, ours) for ours, tuned in pairs)
            for regime in ("late", "early")
        )
        any_step = [
            ("SGD", f"SGD+COCO_{_AT_ANY_STEP}"),
            *zip(smaller, (method.series for method in _HELPED), strict=True),
        ]
        gains = ", ".join(curves.percent("late", ours, alone) for alone, ours in any_step)
        steps = ", ".join(f"{step}/L" for step in _SMALLER_STEPS.values())
        return [
            paper.equivalent(
                "The smaller steps reach the same variance regime as COCO_2, COCO_4, COCO_8 "
                f"({late}).",
                [curves.relative("late", tuned, ours) for ours, tuned in pairs],
            ),
            paper.increases(
                "SGD with a smaller step is clearly outperformed in the bias regime: it is further "
                f"away in the first {_EARLY} steps ({early} against COCO_2, 4, 8).",
                [curves.difference("early", tuned, ours) for ours, tuned in pairs],
                provided=paper.premise(
                    "a gain over SGD in the variance regime",
                    [curves.difference("late", "SGD", ours) for ours, _ in pairs],
                ),
            ),
            paper.increases(
                "For any given step size COCO enhances SGD: here COCO_"
                f"{_AT_ANY_STEP} at the steps 1/L, {steps} ({gains} in the variance regime).",
                [curves.difference("late", alone, ours) for alone, ours in any_step],
            ),
            *super().claims(curves),
        ]


class VarianceReduction(Synthetic):
    """Averages and decreasing steps instead."""

    name = "variance-reduction"
    summary = "COCO against a decreasing step and against Polyak-Ruppert averaging."
    numbers = (14,)
    figure = "14"
    methods: ClassVar = [
        _SGD_ALONE,
        paths.DECREASING,
        _SGD_ALONE._replace(series="SGD+PRaveraging", averaged=True),
        paths.sgd(None),
    ]

    def gather(self, units: Sequence[Unit]) -> Curves:
        curves, at = super().gather(units), np.arange(self.steps + 1)
        series = [method.series for method in self.methods]
        distance = paths.distances(units, series)
        ours = distance["SGD+COCO"]
        for rival in series[:-1]:
            lead = (ours - distance[rival]) / distance[rival].mean(axis=0)
            curves.add("step by step", f"SGD+COCO over {rival}", at, lead)
        best = np.min([distance[rival].mean(axis=0) for rival in series[:-1]], axis=0)
        curves.exact("step by step", "COCO over the best rival", at, ours.mean(axis=0) / best - 1)
        rates = {}  # p of k^-p between the middle and the end of a run
        for name in series:
            d = distance[name]
            half, end = d[:, 13:17].mean(axis=1), d[:, -4:].mean(axis=1)
            curves.add("still falling", name, self.steps // 2, (half - end)[:, None])
            rates[name] = np.log(half / end)[:, None] / np.log((self.steps - 1.5) / 14.5)
        curves.compare("rate", self.steps // 2, rates)
        curves.compare("last step", self.steps, {name: distance[name][:, -1:] for name in series})
        return curves

    def claims(self, curves: Curves) -> list[Claim]:
        paper = Judge(self.runs, figure=14)
        rivals = ("SGD", "SGD+DecreasingSS", "SGD+PRaveraging")
        leads = [curves["step by step", f"SGD+COCO over {rival}"] for rival in rivals]
        worst = float(curves["step by step", "COCO over the best rival"].mean.max())
        exponents = [curves["rate", name].mean[0] for name in ("SGD+COCO", "SGD+PRaveraging")]
        falling = [curves["still falling", name] for name in (*rivals[1:], "SGD+COCO")]
        ahead = paper.increases(
            "In the second half of the run it is ahead of all three at every step.",
            [lead.part(slice(17, None)).times(-1) for lead in leads],
        )
        return [
            paper.no_worse(
                "COCO with all points is the best at any iteration: no other is ahead by more than "
                f"the margin at any step (at most {worst:.1%}).",
                leads,
            ),
            ahead,
            paper.no_worse(
                "The bias regime of COCO is as fast as that of SGD.",
                [curves.relative("early", "SGD+COCO", "SGD")],
                provided=ahead,
            ),
            paper.increases("The other three go on converging.", falling),
            paper.equivalent(
                "In the variance regime COCO converges at a rate similar to that of averaging: "
                f"k^-p with p = {exponents[0]:.2f} and {exponents[1]:.2f} over the second half.",
                [curves.difference("rate", "SGD+PRaveraging", "SGD+COCO")],
                margin=0.1,
                measure="largest difference of the exponents that the runs leave possible",
                note="Averaging is still getting rid of the starting point, which it forgets like "
                "1/k; noise alone would leave it k^-1/2.",
            ),
            paper.increases(
                "A decreasing step delays the bias regime, and Polyak-Ruppert averaging even more.",
                [
                    curves.difference("early", "SGD+DecreasingSS", "SGD"),
                    curves.difference("early", "SGD+PRaveraging", "SGD+DecreasingSS"),
                ],
            ),
            paper.increases(
                "In the end averaging outperforms both SGD and the decreasing step.",
                [curves.difference("last step", rival, "SGD+PRaveraging") for rival in rivals[:2]],
                measure="smallest lead at the last step, in standard errors",
            ),
            *super().claims(curves),
        ]
