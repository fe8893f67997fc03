"""Denoisers among baselines: the same oracle calls for all, as the textbook has them and tuned.

    textbook    every method at the step and the second parameter that its authors advise
    tuned       every method at its best over one grid, chosen on runs of their own

A unit is one method on one problem: it tunes on noise of its own, and then meets the noise
that all methods meet. All runs of a method go in one batch: run i of one method is to be
compared with run i of another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from coco_denoiser.paper.experiments import logistic
from coco_denoiser.paper.experiments.claims import Claim, Judge, critical, t_statistic
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit, generator
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.experiments.paths import SHORT, TOLERANCE, named, short_windows, solved
from coco_denoiser.paper.optimizers import (
    IGT,
    SGD,
    Adam,
    DenoiserLike,
    GradientEMA,
    GradientMean,
    HeavyBall,
    Optimizer,
    ScheduleFree,
    decreasing,
    run,
    tail_average,
)
from coco_denoiser.paper.problems import Problem, Quadratic
from coco_denoiser.typing import Array, Float64

COCO, GAUSSIAN = "COCO_8", "Gaussian_32"
DENOISERS = (COCO, GAUSSIAN)


class Rival(NamedTuple):
    """A method that walks a path of its own.

    Attributes:
        name: the series of its iterates.
        make: its optimizer, from a step size, a second parameter and a denoiser.
        textbook: the second parameter as its authors set it; 0 if there is none.
        grid: the second parameter's values when it is tuned.
        adaptive: whether its steps are lengths in x, as Adam's, and not multiples of 1/L.
        averages: whether the averages of its iterates are methods too.
        denoiser: which of DENOISERS stands between oracle and update; "" for none.
    """

    name: str
    make: Callable[[float, float, DenoiserLike | None], Optimizer]
    textbook: float = 0.0
    grid: tuple[float, ...] = (0.0,)
    adaptive: bool = False
    averages: bool = False
    denoiser: str = ""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of what is recorded: the iterates, and their averages if any."""
        names = (self.name, "PR average", "tail average") if self.averages else (self.name,)
        return tuple(helped(name, self.denoiser) for name in names) if self.denoiser else names


def helped(name: str, denoiser: str) -> str:
    """Return the name of a method with a denoiser put into it."""
    return f"{name}, {denoiser}"


def _mean(step: float, weight: Callable[[int], float], slope: float) -> Optimizer:
    """Return SGD along a mean of gradients, corrected by a slope in multiples of 1/step."""
    return SGD(step, denoiser=GradientMean(weight, slope=slope / step))


_MOMENTA = (0.9, (0.5, 0.9))  # the textbook's, and those to choose from
_COMBINED = (
    Rival("SGD", lambda step, _, d: SGD(step, denoiser=d), averages=True),
    Rival("decreasing", lambda step, _, d: SGD(decreasing(step), denoiser=d)),
    Rival("Adam", lambda s, beta, d: Adam(s, beta1=beta, denoiser=d), *_MOMENTA, adaptive=True),
    Rival("schedule-free", lambda s, beta, d: ScheduleFree(s, beta=beta, denoiser=d), *_MOMENTA),
)
RIVALS = (
    *_COMBINED,
    Rival("heavy ball", lambda step, beta, _: HeavyBall(step, beta=beta), *_MOMENTA),
    Rival("gradient EMA", lambda step, beta, _: GradientEMA(step, beta=beta), *_MOMENTA),
    Rival("IGT", lambda step, tail, _: IGT(step, tail=tail), 1.0, (1.0, 0.5)),
    Rival(
        "slope-corrected mean",
        lambda step, slope, _: _mean(step, lambda k: 0.1 / (1 - 0.9**k), slope),
        0.5,
        (0.5, 0.1),
    ),
    # Mairal (2013), with the weights k^-power.
    Rival("surrogates", lambda s, power, _: _mean(s, lambda k: k**-power, 1.0), 0.5, (0.5, 0.75)),
    *(rival._replace(denoiser=name) for name in DENOISERS for rival in _COMBINED),
)
_PROTOCOLS = ("textbook", "tuned")
_LIMIT = "known-Hessian limit"
_POINTS = 50  # of a curve
_COLUMNS = {
    "Steps and averages": ("SGD", "decreasing", "PR average", "tail average"),
    "Momentum": ("SGD", "heavy ball", "gradient EMA", "IGT", "schedule-free", "Adam"),
    "Corrected means": ("SGD", "slope-corrected mean", "surrogates"),
}


def limit(problem: Quadratic) -> float:
    """Return sqrt(k) times the least mean distance after k calls, if the Hessian were known.

    Then each answer g_i = H (x_i - x*) + noise tells x_i - H^-1 g_i, which is x* with Gaussian
    noise of covariance sigma^2 H^-2, wherever x_i is, so that no unbiased estimate has a smaller
    covariance than that of their mean, sigma^2 H^-2 / k (Cramér-Rao). Its mean length is drawn.
    """
    noise = np.random.default_rng(0).standard_normal((200_000, problem.dimension))
    return float(np.linalg.norm(problem.noise_std * noise / problem.hessian, axis=1).mean())


def _names(denoiser: str) -> list[str]:
    """Return the series with a denoiser, or with none if it is empty."""
    return [name for r in RIVALS if r.denoiser == denoiser for name in r.series]


def walk(
    rival: Rival,
    problem: Problem,
    starts: Array,
    calls: int,
    rng: np.random.Generator,
    *,
    step: float,
    second: float,
) -> tuple[dict[str, Float64], float]:
    """Follow a method from starts (runs, d) for a number of oracle calls, one a step.

    Return how far its series are from the minimiser, each (runs, calls + 1), and the share of its
    steps whose window was solved to less than the tolerance. Beyond twice the start's distance it
    counts as twice, so that a mean over runs says something of the others.
    """
    rows = named(rival.denoiser, problem.L) if rival.denoiser else None
    with short_windows() as short:
        iterates = run(rival.make(step, second, rows), problem, starts, steps=calls, rng=rng)
    recorded = [iterates]
    if rival.averages:
        recorded += [tail_average(iterates, start) for start in (0, calls // 2)]
    cap = 2 * np.linalg.norm(starts - problem.minimizer, axis=-1)
    distances = (np.linalg.norm(path - problem.minimizer, axis=-1) for path in recorded)
    capped = [np.asarray(np.minimum(distance, cap).T) for distance in distances]
    return dict(zip(rival.series, capped, strict=True)), short() / (calls * len(starts))


@dataclass(frozen=True)
class Rivals(Experiment):
    """What is run on one problem.

    Attributes:
        problem: "quadratic" or a data set.
        tuning_runs: the runs at every point of the grid, beside the `runs` that are shown.
        calls: the oracle calls of a run.
        start: the start in every coordinate.
        adam_step: the paper's step of Adam here; that of the other methods is 1/L.
        steps: the grid, in multiples of these.
    """

    quick: ClassVar = {"runs": 3, "tuning_runs": 2, "calls": 30}

    runs: int = 20
    problem: str = "quadratic"
    tuning_runs: int = 5
    calls: int = 100
    start: float = 100.0
    adam_step: float = 10.0
    steps: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)

    @property
    def name(self) -> str:
        return f"rivals-{self.problem}"

    @property
    def summary(self) -> str:
        return (
            "Momentum, averaging, IGT, schedule-free, Adam and others against COCO_8 and the "
            f"Gaussian model on {self.problem}, at textbook settings and tuned."
        )

    def count(self) -> int:
        return len(RIVALS)

    def check(self) -> None:
        self._problem()

    def _problem(self) -> Problem:
        if self.problem == "quadratic":
            return Quadratic.spaced(10, noise_std=10.0)
        return logistic.regression(self.problem)

    def unit(self, index: int) -> Unit:
        rival, problem = RIVALS[index], self._problem()
        scale = self.adam_step if rival.adaptive else 1 / problem.L
        short = []

        def go(purpose: str, runs: int, step: float, second: float) -> dict[str, Float64]:
            starts = np.full((runs, problem.dimension), self.start)
            rng = generator(self, f"{self.problem} {purpose}", 0)
            distances, share = walk(
                rival, problem, starts, self.calls, rng, step=step * scale, second=second
            )
            short.append(share)
            return distances

        @cache
        def shown(step: float, second: float) -> dict[str, Float64]:
            return go("shown", self.runs, step, second)

        grid = [(step, second) for step in self.steps for second in rival.grid]
        trials = [go("tuning", self.tuning_runs, *setting) for setting in grid]
        at = self._grid()
        unit: dict[str, Float64] = {}
        for name in rival.series:
            ends = np.stack([self._end(trial[name]) for trial in trials])
            best = grid[int(ends.mean(axis=1).argmin())]
            unit[f"{name} tuning"] = ends.reshape(len(self.steps), len(rival.grid), -1)
            unit[f"{name} best"] = np.array(best)
            for protocol, setting in zip(_PROTOCOLS, ((1.0, rival.textbook), best), strict=True):
                distance = shown(*setting)[name]
                unit[f"{name} {protocol}"] = distance[:, at]
                unit[f"{name} {protocol} end"] = self._end(distance)
        unit["short"] = np.array([np.mean(short)])
        return unit

    def _grid(self) -> Float64:
        return np.unique(np.linspace(0, self.calls, _POINTS + 1).round().astype(int))

    def _end(self, distance: Float64) -> Float64:
        """Return the mean distance over the last tenth of the calls, (runs,)."""
        return np.asarray(distance[:, -(self.calls // 10) :].mean(axis=1))

    def gather(self, units: Sequence[Unit]) -> Curves:
        curves, steps, at = Curves(), {}, self._grid()
        owners = {n: unit for rival, unit in zip(RIVALS, units, strict=True) for n in rival.series}
        for protocol in _PROTOCOLS:
            for name, unit in owners.items():
                curves.add(protocol, name, at, unit[f"{name} {protocol}"])
            ends = {n: unit[f"{n} {protocol} end"][:, None] for n, unit in owners.items()}
            curves.compare(f"{protocol} end", self.calls, ends)
        for name, unit in owners.items():
            tuning = unit[f"{name} tuning"]
            better = tuning.mean(axis=2).argmin(axis=1)
            steps[name] = tuning[np.arange(len(better)), better].T
            curves.add("step", name, self.steps, steps[name])
            spent = tuning.size * self.calls
            curves.exact("tuned step", name, spent, unit[f"{name} best"][0])
            curves.exact("tuned second parameter", name, spent, unit[f"{name} best"][1])
        for denoiser in DENOISERS:
            ours = helped("SGD", denoiser)
            curves.add("step", f"SGD minus {ours}", self.steps, steps["SGD"] - steps[ours])
        problem = self._problem()
        if isinstance(problem, Quadratic):
            least = limit(problem) / np.sqrt(at[1:])
            for protocol in _PROTOCOLS:
                curves.exact(protocol, _LIMIT, at[1:], least)
            curves.exact("step", _LIMIT, self.steps, np.full(len(self.steps), least[-1]))
        for rival, unit in zip(RIVALS, units, strict=True):
            curves.exact(SHORT, rival.series[0], TOLERANCE, unit["short"])
        return curves

    def panels(self, curves: Curves) -> list[Panel]:
        panels = []
        for name, what, x, y, log in (
            ("textbook", "textbook", "oracle calls", "‖x − x*‖", "y"),
            ("tuned", "tuned", "oracle calls", "‖x − x*‖", "y"),
            ("step", "by step", "step, in textbook steps", "‖x − x*‖ at the end", "xy"),
        ):
            like = Panel(name, "", x, y, log=log, new_row=True)
            for column, methods in _COLUMNS.items():
                plain = [method for method in methods if (name, method) in curves]
                with_help = [helped(method, denoiser) for denoiser in DENOISERS for method in plain]
                others = tuple(other for other in (*with_help, _LIMIT) if (name, other) in curves)
                shown, references = (*plain, *others), frozenset(others)
                title = f"{column}, {what}"
                panels.append(replace(like, title=title, series=shown, references=references))
                like = replace(like, new_row=False)
        return panels

    def _compared(self, curves: Curves, protocol: str, pairs: Sequence[tuple[str, str]]) -> str:
        """State which of (ours, theirs) is nearer at the end, and by how much, beyond chance."""
        panel = f"{protocol} end"
        threshold = critical(len(pairs), self.runs)
        found: dict[str, list[str]] = {"wins": [], "ties": [], "loses": []}
        for ours, theirs in pairs:
            gap = curves.difference(panel, ours, theirs)
            t = float(t_statistic(gap.mean, gap.sem)[0])
            verdict = "ties" if abs(t) < threshold else "wins" if t < 0 else "loses"
            found[verdict].append(f"{theirs} {curves.percent(panel, ours, theirs)}")
        return "; ".join(f"{name}: {', '.join(items)}" for name, items in found.items() if items)

    def claims(self, curves: Curves) -> list[Claim]:
        claims = [claim for name in DENOISERS for claim in self._denoiser_claims(curves, name)]
        if self.problem == "quadratic":
            claims += self._quadratic_claims(curves, self._best(curves, COCO))
        return [*claims, solved(curves)]

    def _best(self, curves: Curves, denoiser: str) -> str:
        names = _names(denoiser)
        return min(names, key=lambda name: float(curves["step", name].mean.min()))

    def _denoiser_claims(self, curves: Curves, denoiser: str) -> list[Claim]:
        mine, alone = _names(denoiser), _names("")
        sgd = helped("SGD", denoiser)
        spent = sorted({curves["tuned step", name].x[0] for name in alone})
        tuning = " or ".join(f"{calls:,.0f}" for calls in spent)
        budgets = ("", f", after {tuning} oracle calls to tune a method with one parameter or two")
        added = [(helped(name, denoiser), name) for name in alone if helped(name, denoiser) in mine]
        claims = []
        for protocol, budget in zip(_PROTOCOLS, budgets, strict=True):
            best = sgd if protocol == "textbook" else self._best(curves, denoiser)
            for said, than, pairs, after in (
                (f"every method that {denoiser} is added to", "to the minimiser", added, ""),
                (best, "than every method without a denoiser", [(best, n) for n in alone], budget),
            ):
                nearer = f"{protocol.capitalize()}: {said} ends nearer {than}"
                claims.append(
                    Judge(self.runs).increases(
                        f"{nearer} ({self._compared(curves, protocol, pairs)}){after}.",
                        [
                            curves.difference(f"{protocol} end", theirs, ours)
                            for ours, theirs in pairs
                        ],
                    )
                )
        lead, plain = curves["step", f"SGD minus {sgd}"], curves["step", "SGD"]
        changes = ", ".join(
            f"{-gap / of:+.0%} at {step:g}"
            for step, gap, of in zip(lead.x, lead.mean, plain.mean, strict=True)
        )
        sentence = (
            f"At every step size SGD with {denoiser} ends nearer than SGD "
            f"({changes} textbook steps, on the runs of the tuning)."
        )
        return [*claims, Judge(self.tuning_runs).increases(sentence, [lead])]

    def _quadratic_claims(self, curves: Curves, best: str) -> list[Claim]:
        ours = Judge(self.runs)
        hard = ("decreasing", "IGT")
        changes = ", ".join(f"{name} {curves.percent('tuned end', name, best)}" for name in hard)
        floor = curves["tuned", _LIMIT].mean[-1]
        ends = [
            curves[p, n].part(slice(-1, None)) for p in _PROTOCOLS for r in RIVALS for n in r.series
        ]
        return [
            ours.no_worse(
                f"Tuned, a decreasing step and IGT are as good as {best}, the best method with "
                f"COCO ({changes}).",
                [curves.relative("tuned end", name, best) for name in hard],
            ),
            ours.no_worse(
                "No method is nearer at the end than the known-Hessian limit, which is "
                f"{floor:.2f}.",
                [end.over(floor).times(-1).shifted(1) for end in ends],
            ),
        ]
