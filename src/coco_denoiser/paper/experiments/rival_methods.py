"""The methods that `rivals` compares, each with a second parameter to tune and with a denoiser."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from coco_denoiser.paper.experiments.paths import named, short_windows
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
from coco_denoiser.paper.problems import Problem
from coco_denoiser.typing import Array, Float64

COCO, GAUSSIAN = "COCO_8", "Gaussian_32"
DENOISERS = (COCO, GAUSSIAN)
MOMENTA = (0.5, 0.9)


class Rival(NamedTuple):
    """A method that walks a path of its own.

    Attributes:
        name: the series of its iterates.
        make: its optimizer, from a step size, its second parameter by name and a denoiser.
        second: the name of the second parameter; "" for none.
        textbook: the second parameter as its authors set it.
        grid: the second parameter's values when it is tuned.
        adaptive: whether its steps are lengths in x, as Adam's, and not multiples of 1/L.
        averages: whether the averages of its iterates are methods too.
        denoiser: which of DENOISERS stands between oracle and update; "" for none.
    """

    name: str
    make: Callable[..., Optimizer]
    second: str = ""
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


def _decreasing(step: float, denoiser: DenoiserLike | None) -> Optimizer:
    return SGD(decreasing(step), denoiser=denoiser)


def _slope_corrected(step: float, denoiser: DenoiserLike | None, slope: float) -> Optimizer:
    """Return SGD along a fading mean of gradients, corrected by a slope in multiples of 1/step."""
    fading = GradientMean(lambda k: 0.1 / (1 - 0.9**k), slope=slope / step)
    return SGD(step, denoiser=denoiser or fading)


def _surrogates(step: float, denoiser: DenoiserLike | None, power: float) -> Optimizer:
    """Return averaged surrogates with the weights k^-power (Mairal, 2013)."""
    return SGD(step, denoiser=denoiser or GradientMean(lambda k: k**-power, slope=1 / step))


_COMBINED = (
    Rival("SGD", SGD, averages=True),
    Rival("decreasing", _decreasing),
    Rival("Adam", Adam, "beta1", 0.9, MOMENTA, adaptive=True),
    Rival("schedule-free", ScheduleFree, "beta", 0.9, MOMENTA),
)
RIVALS = (
    *_COMBINED,
    Rival("heavy ball", HeavyBall, "beta", 0.9, MOMENTA),
    Rival("gradient EMA", GradientEMA, "beta", 0.9, MOMENTA),
    Rival("IGT", IGT, "tail", 1.0, (1.0, 0.5)),
    Rival("slope-corrected mean", _slope_corrected, "slope", 0.5, (0.5, 0.1)),
    Rival("surrogates", _surrogates, "power", 0.5, (0.5, 0.75)),
    *(rival._replace(denoiser=name) for name in DENOISERS for rival in _COMBINED),
)


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
    given = {rival.second: second} if rival.second else {}
    optimizer = rival.make(step, denoiser=rows, **given)
    with short_windows() as short:
        iterates = run(optimizer, problem, starts, steps=calls, rng=rng)
    recorded = [iterates]
    if rival.averages:
        recorded += [tail_average(iterates, start) for start in (0, calls // 2)]
    cap = 2 * np.linalg.norm(starts - problem.minimizer, axis=-1)
    distances = (np.linalg.norm(path - problem.minimizer, axis=-1) for path in recorded)
    capped = [np.asarray(np.minimum(distance, cap).T) for distance in distances]
    return dict(zip(rival.series, capped, strict=True)), short() / (calls * len(starts))
