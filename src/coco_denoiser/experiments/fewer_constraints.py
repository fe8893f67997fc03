"""Many points: how few of their pairs matter, and what it costs to compare near points only.

K points on a path of SGD (step 0.1/L) or uniform in a cube, on the quadratic of the other
experiments, with noise as in the paper. All K(K - 1)/2 pairs, exactly; then, for K up to 256,
only the pairs of a point with its m nearest. The error of a window is its mean over the points,
relative to the oracle's. Windows of K points are fewer the larger K is: as 1/K.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coco_denoiser import solve
from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curve, Curves
from coco_denoiser.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.experiments.paths import TOLERANCE
from coco_denoiser.problems import Quadratic
from coco_denoiser.typing import Float64

NAME = "fewer-constraints"
_PLACES = ("SGD path", "uniform")
_SIZES = (64, 128, 256, 512, 1024)
_SWEPT = 256  # the most points for which the number of neighbours is varied
_LEAST = 2  # windows, without which a large size is left out
NEIGHBORS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class ManyConfig(Config):
    """Our own numbers: the paper has no such figure. `runs` is for K = 64."""

    runs: int = 32
    dimension: int = 10
    sigma: float = 10.0
    step: float = 0.1
    start: float = 100.0
    half_width: float = 10.0


def _repeats(config: ManyConfig, K: int) -> int:
    """Return how many windows of K points there are: two at least of the smallest sizes."""
    return max(config.runs * _SIZES[0] // K, _LEAST if _SIZES[1] >= K else 0)


def _windows(config: ManyConfig) -> list[tuple[int, str, int]]:
    """Return size, place and number of every window."""
    return [
        (K, place, number)
        for K in _SIZES
        if _repeats(config, K) >= _LEAST
        for place in _PLACES
        for number in range(_repeats(config, K))
    ]


def _observed(
    config: ManyConfig, problem: Quadratic, K: int, place: str, rng: np.random.Generator
) -> tuple[Float64, Float64]:
    """Return points and noise."""
    noise = config.sigma * rng.standard_normal((K, config.dimension))
    if place == "uniform":
        return rng.uniform(-config.half_width, config.half_width, noise.shape), noise
    points = np.empty_like(noise)
    x = np.full(config.dimension, config.start)
    for k in range(K):
        points[k] = x
        x = x - config.step / problem.L * (problem.gradient(x) + noise[k])
    return points, noise


def _unit(config: ManyConfig, index: int) -> Unit:
    """Return errors relative to the oracle's for every m, all pairs last, and active shares."""
    K, place, _ = _windows(config)[index]
    problem = Quadratic.spaced(config.dimension)
    points, noise = _observed(config, problem, K, place, generator(config, NAME, index))
    exact = problem.gradient(points)
    errors, shifts, active = [], [], 0.0
    for m in (*(NEIGHBORS if K <= _SWEPT else ()), None):
        found = solve(points, exact + noise, L=problem.L, neighbors=m, tol=TOLERANCE)
        errors.append(np.sum((found.gradients - exact) ** 2) / np.sum(noise**2))
        shift = (found.gradients - exact - noise).mean(axis=0)
        shifts.append(np.linalg.norm(shift) / config.sigma)
        pulled = found.multipliers[np.triu_indices(K, 1)]
        active = float(np.mean(pulled > 1e-6 * pulled.max()))
    return {"error": np.array(errors), "shift": np.array(shifts), "active": np.array([active])}


def _gather(config: ManyConfig, units: Sequence[Unit]) -> Curves:
    windows = _windows(config)
    sizes = sorted({K for K, _, _ in windows})

    def stacked(K: int, place: str, name: str) -> Float64:
        return np.stack(
            [unit[name] for unit, window in zip(units, windows, strict=True)
             if window[:2] == (K, place)]
        )  # fmt: skip

    curves = Curves()
    for place in _PLACES:
        for panel, name in (("active", "active"), ("error of all pairs", "error")):
            samples = [stacked(K, place, name)[:, -1] for K in sizes]
            mean = [sample.mean() for sample in samples]
            sem = [sample.std(ddof=1) / np.sqrt(sample.size) for sample in samples]
            curves.exact(panel, place, sizes, mean, sem)
            if panel == "active":
                pairs = np.array(sizes) * (np.array(sizes) - 1) / 2
                each = [count / np.array(sizes) for count in (pairs * mean, pairs * sem)]
                curves.exact("active pairs a point", place, sizes, *each)
        for K in sizes:
            if K <= _SWEPT:
                errors = stacked(K, place, "error")
                cost = errors[:, :-1] / errors[:, -1:] - 1.0
                curves.add(f"cost {place}", f"K={K}", NEIGHBORS, cost)
                curves.add(f"gain {place}", f"K={K}", NEIGHBORS[1:], -np.diff(cost, axis=1))
    worst = [max(float(unit[name].max()) for unit in units) for name in ("error", "shift")]
    curves.exact(
        "worst window", "error over the oracle's, and shift of the centroid", [0, 1], worst
    )
    return curves


def _panels(_: Result) -> list[Panel]:
    points = "number of points K"
    return [
        Panel("active", "Share of active pairs", points, "active / all pairs", log="xy"),
        Panel("error of all pairs", "Error with all pairs", points, "error / oracle's", log="xy"),
        *(
            Panel(
                f"cost {place}",
                f"{place[0].upper()}{place[1:]}: cost of m neighbours",
                "neighbours m",
                "extra error / error with all pairs",
                log="xy",
                new_row=place == _PLACES[0],
            )
            for place in _PLACES
        ),
    ]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    worst = curves["worst window", "error over the oracle's, and shift of the centroid"].mean
    series = curves.series("cost uniform")
    ours = Judge(_repeats(config, int(series[-1].removeprefix("K="))))
    gains = [curves[f"gain {place}", K] for place in _PLACES for K in series]
    falls = []
    for place in _PLACES:
        active = curves["active", place]
        shown = active.x <= _SWEPT
        at = list(zip(*(column[shown] for column in active), strict=True))
        for (_, more, a), (K, less, b) in pairwise(at):
            falls.append(Curve(np.array([K]), np.array([more - less]), np.array([np.hypot(a, b)])))
    last = {place: curves[f"cost {place}", series[-1]] for place in _PLACES}
    return [
        ours.at_most(
            "With any number of neighbours the total error is at most the oracle's: the feasible "
            "set only grows.",
            float(worst[0]),
            1 + 1e-6,
            measure="largest ratio of a window; threshold: 1, up to the solver's tolerance",
            theory=True,
        ),
        ours.at_most(
            "With any number of neighbours the centroid is preserved.",
            float(worst[1]),
            1e-6,
            measure="largest shift of a window, in σ; threshold: the solver's tolerance",
            theory=True,
        ),
        ours.increases(
            f"The share of pairs that are active falls as K doubles, up to {series[-1]}.", falls
        ),
        ours.increases(
            "Every doubling of the number of neighbours, from 1 to 16, lowers the error.", gains
        ),
        ours.no_worse(
            f"16 neighbours cost at most 10% of the error of all pairs, at {series[-1]}.",
            [cost.part(slice(-1, None)) for cost in last.values()],
            margin=0.1,
            note="Cost: "
            + ", ".join(f"{cost.mean[-1]:.0%} ({place})" for place, cost in last.items())
            + ".",
        ),
    ]


EXPERIMENT = Experiment(
    NAME,
    "Share of active pairs and error for 64 to 1024 points, and the cost of near pairs only.",
    ManyConfig(),
    {"runs": 4},
    _unit,
    _gather,
    _panels,
    _claims,
    count=lambda config: len(_windows(config)),
)
