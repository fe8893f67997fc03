"""Denoisers among baselines: the same oracle calls for all, as the textbook has them and tuned.

    textbook    every method at the step and the second parameter that its authors advise
    tuned       every method at its best over one grid, chosen on runs of their own

A unit is one method on one problem: it tunes on noise of its own, and then meets the noise
that all methods meet. All runs of a method go in one batch: run i of one method is to be
compared with run i of another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_denoiser.paper.experiments import logistic
from coco_denoiser.paper.experiments.claims import Claim, Judge, critical, t_statistic
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.experiments.paths import TOLERANCE, solved
from coco_denoiser.paper.experiments.rival_methods import COCO, DENOISERS, RIVALS, helped, walk
from coco_denoiser.paper.problems import Problem, Quadratic
from coco_denoiser.typing import Float64

_PROTOCOLS = ("textbook", "tuned")
_LIMIT = "known-Hessian limit"
_POINTS = 50  # of a curve
_SHORT = "steps short of the tolerance"
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


@dataclass(frozen=True)
class RivalsConfig(Config):
    """What is run on one problem.

    Attributes:
        problem: "quadratic" or a data set.
        tuning_runs: the runs at every point of the grid, beside the `runs` that are shown.
        calls: the oracle calls of a run.
        start: the start in every coordinate.
        adam_step: the paper's step of Adam here; that of the other methods is 1/L.
        steps: the grid, in multiples of these.
    """

    runs: int = 20
    problem: str = "quadratic"
    tuning_runs: int = 5
    calls: int = 100
    start: float = 100.0
    adam_step: float = 10.0
    steps: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)


def _problem(config: RivalsConfig) -> Problem:
    if config.problem == "quadratic":
        return Quadratic.spaced(10, noise_std=10.0)
    return logistic.regression(config.problem)


def _names(denoiser: str) -> list[str]:
    """Return the series with a denoiser, or with none if it is empty."""
    return [name for r in RIVALS if r.denoiser == denoiser for name in r.series]


def _unit(config: RivalsConfig, index: int) -> Unit:
    rival, problem = RIVALS[index], _problem(config)
    scale = config.adam_step if rival.adaptive else 1 / problem.L
    short = []

    def go(purpose: str, runs: int, step: float, second: float) -> dict[str, Float64]:
        starts = np.full((runs, problem.dimension), config.start)
        rng = generator(config, f"{config.problem} {purpose}", 0)
        distances, share = walk(
            rival, problem, starts, config.calls, rng, step=step * scale, second=second
        )
        short.append(share)
        return distances

    grid = [(step, second) for step in config.steps for second in rival.grid]
    trials = [go("tuning", config.tuning_runs, *setting) for setting in grid]
    shown = {(1.0, rival.textbook): go("shown", config.runs, 1.0, rival.textbook)}
    at = _grid(config)
    unit: dict[str, Float64] = {}
    for name in rival.series:
        ends = np.stack([_end(config, trial[name]) for trial in trials])
        best = grid[int(ends.mean(axis=1).argmin())]
        if best not in shown:
            shown[best] = go("shown", config.runs, *best)
        unit[f"{name} tuning"] = ends.reshape(len(config.steps), len(rival.grid), -1)
        unit[f"{name} best"] = np.array(best)
        for protocol, setting in zip(_PROTOCOLS, ((1.0, rival.textbook), best), strict=True):
            distance = shown[setting][name]
            unit[f"{name} {protocol}"] = distance[:, at]
            unit[f"{name} {protocol} end"] = _end(config, distance)
    unit["short"] = np.array([np.mean(short)])
    return unit


def _grid(config: RivalsConfig) -> Float64:
    return np.unique(np.linspace(0, config.calls, _POINTS + 1).round().astype(int))


def _end(config: RivalsConfig, distance: Float64) -> Float64:
    """Return the mean distance over the last tenth of the calls, (runs,)."""
    return np.asarray(distance[:, -(config.calls // 10) :].mean(axis=1))


def _gather(config: RivalsConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    rivals = list(zip(RIVALS, units, strict=True))
    owners = {name: unit for rival, unit in rivals for name in rival.series}
    at = _grid(config)
    for protocol in _PROTOCOLS:
        for name, unit in owners.items():
            curves.add(protocol, name, at, unit[f"{name} {protocol}"])
        if config.problem == "quadratic":
            problem = Quadratic.spaced(10, noise_std=10.0)
            curves.exact(protocol, _LIMIT, at[1:], limit(problem) / np.sqrt(at[1:]))
        ends = {n: unit[f"{n} {protocol} end"][:, None] for n, unit in owners.items()}
        curves.compare(f"{protocol} end", config.calls, ends)
    steps = {}
    for name, unit in owners.items():
        tuning = unit[f"{name} tuning"]
        better = tuning.mean(axis=2).argmin(axis=1)
        steps[name] = tuning[np.arange(len(better)), better].T
        curves.add("step", name, config.steps, steps[name])
        spent = tuning.size * config.calls
        curves.exact("tuned step", name, spent, unit[f"{name} best"][0])
        curves.exact("tuned second parameter", name, spent, unit[f"{name} best"][1])
    for denoiser in DENOISERS:
        ours = helped("SGD", denoiser)
        curves.add("step", f"SGD minus {ours}", config.steps, steps["SGD"] - steps[ours])
    if config.problem == "quadratic":
        last = float(curves["tuned", _LIMIT].mean[-1])
        curves.exact("step", _LIMIT, config.steps, [last] * len(config.steps))
    for rival, unit in rivals:
        curves.exact(_SHORT, rival.series[0], TOLERANCE, unit["short"])
    return curves


def _panels(result: Result) -> list[Panel]:
    curves = result.curves
    rows = (
        ("textbook", "textbook", "oracle calls", "‖x − x*‖", "y"),
        ("tuned", "tuned", "oracle calls", "‖x − x*‖", "y"),
        ("step", "by step", "step, in textbook steps", "‖x − x*‖ at the end", "xy"),
    )
    panels = []
    for name, what, x, y, log in rows:
        for column, methods in _COLUMNS.items():
            plain = [method for method in methods if (name, method) in curves]
            with_help = [helped(method, denoiser) for denoiser in DENOISERS for method in plain]
            references = [other for other in (*with_help, _LIMIT) if (name, other) in curves]
            panels.append(
                Panel(
                    name,
                    f"{column}, {what}",
                    x,
                    y,
                    (*plain, *references),
                    references=frozenset(references),
                    log=log,
                    new_row=column == next(iter(_COLUMNS)),
                )
            )
    return panels


def _compared(result: Result, protocol: str, pairs: Sequence[tuple[str, str]]) -> str:
    """State which of (ours, theirs) is nearer at the end, and by how much, beyond chance."""
    curves, panel = result.curves, f"{protocol} end"
    threshold = critical(len(pairs), result.config.runs)
    found: dict[str, list[str]] = {"wins": [], "ties": [], "loses": []}
    for ours, theirs in pairs:
        gap = curves.difference(panel, ours, theirs)
        t = float(t_statistic(gap.mean, gap.sem)[0])
        verdict = "ties" if abs(t) < threshold else "wins" if t < 0 else "loses"
        found[verdict].append(f"{theirs} {curves.percent(panel, ours, theirs)}")
    return "; ".join(f"{name}: {', '.join(items)}" for name, items in found.items() if items)


def _claims(result: Result) -> list[Claim]:
    curves, config = result.curves, result.config
    claims = [claim for name in DENOISERS for claim in _denoiser_claims(result, name)]
    if config.problem == "quadratic":
        claims += _quadratic_claims(result, _best(result, COCO))
    return [*claims, solved(curves)]


def _best(result: Result, denoiser: str) -> str:
    names = _names(denoiser)
    return min(names, key=lambda name: float(result.curves["step", name].mean.min()))


def _denoiser_claims(result: Result, denoiser: str) -> list[Claim]:
    curves, config = result.curves, result.config
    judge = Judge(config.runs)
    mine, alone = _names(denoiser), _names("")
    sgd = helped("SGD", denoiser)
    spent = sorted({curves["tuned step", name].x[0] for name in alone})
    tuning = " or ".join(f"{calls:,.0f}" for calls in spent)
    budgets = ("", f", after {tuning} oracle calls to tune a method with one parameter or two")
    claims = []
    for protocol, budget in zip(_PROTOCOLS, budgets, strict=True):
        panel = f"{protocol} end"
        ours = sgd if protocol == "textbook" else _best(result, denoiser)
        pairs = [(helped(name, denoiser), name) for name in alone]
        pairs = [pair for pair in pairs if pair[0] in mine]
        rivals = [(ours, name) for name in alone]
        claims += [
            judge.increases(
                f"{protocol.capitalize()}: every method that {denoiser} is added to ends nearer to "
                f"the minimiser ({_compared(result, protocol, pairs)}).",
                [curves.difference(panel, theirs, with_it) for with_it, theirs in pairs],
            ),
            judge.increases(
                f"{protocol.capitalize()}: {ours} ends nearer than every method without a denoiser "
                f"({_compared(result, protocol, rivals)}){budget}.",
                [curves.difference(panel, theirs, with_it) for with_it, theirs in rivals],
            ),
        ]
    lead, plain = curves["step", f"SGD minus {sgd}"], curves["step", "SGD"]
    changes = ", ".join(
        f"{-gap / of:+.0%} at {step:g}"
        for step, gap, of in zip(lead.x, lead.mean, plain.mean, strict=True)
    )
    return [
        *claims,
        Judge(config.tuning_runs).increases(
            f"At every step size SGD with {denoiser} ends nearer than SGD "
            f"({changes} textbook steps, on the runs of the tuning).",
            [lead],
        ),
    ]


def _quadratic_claims(result: Result, best: str) -> list[Claim]:
    curves, config = result.curves, result.config
    ours = Judge(config.runs)
    hard = ("decreasing", "IGT")
    changes = ", ".join(f"{name} {curves.percent('tuned end', name, best)}" for name in hard)
    floor = curves["tuned", _LIMIT].mean[-1]
    below = []
    for protocol in _PROTOCOLS:
        for name in (n for kind in ("", *DENOISERS) for n in _names(kind)):
            end = curves[protocol, name]
            below.append(end.part(slice(-1, None)).over(floor).times(-1).shifted(1))
    return [
        ours.no_worse(
            f"Tuned, a decreasing step and IGT are as good as {best}, the best method with COCO "
            f"({changes}).",
            [curves.relative("tuned end", name, best) for name in hard],
        ),
        ours.no_worse(
            f"No method is nearer at the end than the known-Hessian limit, which is {floor:.2f}.",
            below,
        ),
    ]


_CONFIGS = (
    RivalsConfig(),
    RivalsConfig(problem="fourclass", calls=400, start=1.0, adam_step=80 / 5656),
    RivalsConfig(problem="mushrooms", calls=300, start=1.0, adam_step=0.1),
    RivalsConfig(problem="breast-cancer", calls=300, start=1.0, adam_step=0.1),
)
EXPERIMENTS = tuple(
    Experiment(
        f"rivals-{config.problem}",
        "Momentum, averaging, IGT, schedule-free, Adam and others against COCO_8 and the Gaussian "
        f"model on {config.problem}, at textbook settings and tuned.",
        config,
        {"runs": 3, "tuning_runs": 2, "calls": 30},
        _unit,
        _gather,
        _panels,
        _claims,
        count=lambda _: len(RIVALS),
        check=_problem,
    )
    for config in _CONFIGS
)
