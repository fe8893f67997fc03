"""The methods of the experiment `rivals`, what is recorded of them, and what none can beat.

All runs of a method go in one batch, so that every method meets the same noise: run i of one
is to be compared with run i of another.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad

from coco_denoiser import Denoiser
from coco_denoiser.experiments.paths import TOLERANCE, Rows, short_windows
from coco_denoiser.optimizers import (
    IGT,
    MARS,
    SGD,
    STORM,
    STRSAGA,
    Adam,
    DenoiserLike,
    GradientEMA,
    HeavyBall,
    Optimizer,
    PolyakRuppert,
    ScheduleFree,
    TailAverage,
    decreasing,
    run,
)
from coco_denoiser.problems import Problem, Quadratic
from coco_denoiser.typing import Array, Float64

COCO, GAUSSIAN = "COCO_8", "Gaussian_32"
DENOISERS = (COCO, GAUSSIAN)
MOMENTA = (0.5, 0.9)
_NONE = (0.0,)  # the grid of a method that has no second parameter

Make = Callable[[float, float, DenoiserLike | None], Optimizer]


class Rival(NamedTuple):
    """A method that walks a path of its own.

    Attributes:
        name: the series of its iterates.
        make: its optimizer, from a step size, its second parameter and a denoiser.
        textbook: the second parameter as its authors set it.
        grid: the second parameter's values when it is tuned.
        adaptive: whether its steps are lengths in x, as Adam's, and not multiples of 1/L.
        calls: the oracle calls of a step.
        averages: whether the averages of its iterates are methods too.
        one_by_one: whether it cannot take a batch of runs.
        denoiser: which of DENOISERS stands between oracle and update; "" for none.
    """

    name: str
    make: Make
    textbook: float = 0.0
    grid: tuple[float, ...] = _NONE
    adaptive: bool = False
    calls: int = 1
    averages: bool = False
    one_by_one: bool = False
    denoiser: str = ""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of what is recorded: the iterates, and their averages if any."""
        names = (self.name, "PR average", "tail average") if self.averages else (self.name,)
        return tuple(helped(name, self.denoiser) for name in names) if self.denoiser else names


def helped(name: str, denoiser: str) -> str:
    """Return the name of a method with a denoiser put into it."""
    return f"{name}, {denoiser}"


_COMBINED = (
    Rival("SGD", lambda step, _, coco: SGD(step, denoiser=coco), averages=True),
    Rival("decreasing", lambda step, _, coco: SGD(decreasing(step), denoiser=coco)),
    Rival(
        "Adam",
        lambda step, beta, coco: Adam(step, beta1=beta, denoiser=coco),
        0.9,
        MOMENTA,
        adaptive=True,
    ),
    Rival(
        "schedule-free",
        lambda step, beta, coco: ScheduleFree(step, beta=beta, denoiser=coco),
        0.9,
        MOMENTA,
    ),
)
RIVALS = (
    *_COMBINED,
    Rival("heavy ball", lambda step, beta, _: HeavyBall(step, beta=beta), 0.9, MOMENTA),
    Rival("gradient EMA", lambda step, beta, _: GradientEMA(step, beta=beta), 0.9, MOMENTA),
    Rival("IGT", lambda step, tail, _: IGT(step, tail=tail), 1.0, (1.0, 0.5)),
    Rival("STORM", lambda step, beta, _: STORM(step, beta=beta), 0.9, MOMENTA, calls=2),
    Rival(
        "MARS", lambda step, beta, _: MARS(step, beta1=beta), 0.95, MOMENTA, adaptive=True, calls=2
    ),
    Rival("STRSAGA", lambda step, *_: STRSAGA(step), one_by_one=True),
    *(rival._replace(denoiser=name) for name in DENOISERS for rival in _COMBINED),
)


def _rows(name: str, problem: Problem) -> Rows | None:
    """Return denoisers of a name, if it is not empty. The Gaussian model is not told L."""
    if name == COCO:
        return Rows(lambda: Denoiser(problem.L, 8, tol=TOLERANCE))
    return Rows(lambda: Denoiser(model="gaussian", window=32)) if name else None


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
    """Follow a rival from starts (runs, d) for a number of oracle calls.

    Return how far its series are from the minimiser, each (runs, calls + 1), and the share of its
    steps whose window was solved to less than the tolerance. A distance is that of the last
    iterate that so many calls could pay for. Beyond twice the start's it counts as twice, so that
    a mean over runs says something of the others.
    """
    steps = (calls + rival.calls - 1) // rival.calls  # the first step is always one call
    optimizer = rival.make(step, second, _rows(rival.denoiser, problem))
    with short_windows() as short:
        batches = list(starts) if rival.one_by_one else [starts]
        paths = [run(optimizer, problem, batch, steps=steps, rng=rng) for batch in batches]
    evaluations = paths[0].evaluations
    iterates = np.stack([path.iterates for path in paths], axis=1)
    iterates = iterates.reshape(steps + 1, *starts.shape)
    recorded = [iterates]
    if rival.averages:
        averages = (PolyakRuppert(), TailAverage(steps // 2))
        recorded += [np.stack([average(x) for x in iterates]) for average in averages]
    paid = np.searchsorted(evaluations, np.arange(calls + 1), side="right") - 1
    cap = 2 * np.linalg.norm(starts - problem.minimizer, axis=-1)
    distances = (np.linalg.norm(path - problem.minimizer, axis=-1)[paid] for path in recorded)
    capped = [np.asarray(np.minimum(distance, cap).T) for distance in distances]
    return dict(zip(rival.series, capped, strict=True)), short() / (steps * len(starts))


def limit(problem: Quadratic) -> float:
    """Return sqrt(k) times the least mean distance after k calls, if the Hessian were known.

    Then each answer g_i = H (x_i - x*) + noise tells x_i - H^-1 g_i, which is x* with Gaussian
    noise of covariance sigma^2 H^-2, wherever x_i is. k of them hold the information
    k H^2 / sigma^2 on x*, so that no unbiased estimate has a smaller covariance than that of
    their mean, sigma^2 H^-2 / k (Cramér-Rao): a root mean square of sigma sqrt(tr H^-2 / k).
    The mean distance of a Gaussian is a little less, and is what is computed here, as
    E sqrt(Q) = pi^-1/2 integral of (1 - E exp(-u^2 Q)) / u^2 over u > 0.
    """
    spread = (problem.noise_std / np.asarray(problem.hessian)) ** 2
    unit = float(np.sqrt(spread.sum()))

    def integrand(u: float) -> float:
        logs = np.log1p(2 * (u / unit) ** 2 * spread)
        return float(-np.expm1(-0.5 * logs.sum())) / u**2

    integral = float(quad(integrand, 0, 1)[0] + quad(integrand, 1, np.inf)[0])
    return unit * integral / math.sqrt(math.pi)
