"""A window on which the error of one gradient grows, and grows with K (ElementwiseMSE).

    f(x) = 1/2 dist(x, C)^2,    C = {x : x_1 <= -|(x_2, x_3)|},

the origin and K - 1 points on a circle around it in the plane x_1 = 0. Every constraint between
the origin and the circle is tight with the same normal, so that the estimate at the origin is
pulled up by the largest errors on the circle. docs/theory.md has the proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coco_denoiser import denoise
from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.paper.experiments.panels import Kind, Panel
from coco_denoiser.typing import Float64

NAME = "counterexample"
_ERROR, _VARIANCE, _TOTAL = "error at the centre", "variance at the centre", "mean error of all"


@dataclass(frozen=True)
class CounterexampleConfig(Config):
    """Our own numbers; noise and box are of the size of the paper's Figure 3."""

    runs: int = 1000
    points: tuple[int, ...] = (2, 3, 5, 9, 17, 33)
    radius: float = 1000.0
    sigma: float = 10.0


def star(K: int, radius: float) -> Float64:
    """Return (K, 3): the origin, and K - 1 points evenly on a circle in the plane x_1 = 0."""
    angles = 2 * np.pi * np.arange(K - 1) / (K - 1)
    points = np.zeros((K, 3))
    points[1:, 1:] = radius * np.stack((np.cos(angles), np.sin(angles)), axis=1)
    return points


def gradient(points: Float64) -> Float64:
    """Return the gradient of f at points of the plane x_1 = 0."""
    exact = 0.5 * points
    exact[:, 0] = 0.5 * np.linalg.norm(points, axis=1)
    return exact


def _unit(config: CounterexampleConfig, index: int) -> Unit:
    """Return, for one K, the errors over sigma of all gradients after and before, (runs, K, 3)."""
    K = config.points[index]
    points = star(K, config.radius)
    exact = gradient(points)
    rng = generator(config, NAME, index)
    noise = config.sigma * rng.standard_normal((config.runs, K, 3))
    moved = np.stack([denoise(points, exact + each, L=1.0) for each in noise]) - exact
    return {"after": moved / config.sigma, "before": noise / config.sigma}


def _gather(config: CounterexampleConfig, units: Sequence[Unit]) -> Curves:
    """Return shares of the oracle's error, each with the noise's own deviation taken off."""
    curves = Curves()
    at = np.array(config.points)
    shares: dict[str, list[Float64]] = {_ERROR: [], _VARIANCE: [], _TOTAL: []}
    for unit in units:
        after, before = unit["after"], unit["before"]
        root, noise = after[:, 0], before[:, 0]
        shares[_ERROR].append(np.sum(root**2 - noise**2, axis=1) / 3)
        spread, drawn = (each - each.mean(axis=0) for each in (root, noise))
        shares[_VARIANCE].append(np.sum(spread**2 - drawn**2, axis=1) / 3)
        shares[_TOTAL].append(np.mean(after**2 - before**2, axis=(1, 2)))
    for name, columns in shares.items():
        curves.add("share", name, at, 1 + np.stack(columns, axis=1))
    curves.exact("share", "Oracle", at, np.ones(at.size))
    return curves


def _panels(_: Result) -> list[Panel]:
    series = (_ERROR, _VARIANCE, _TOTAL, "Oracle")
    return [
        Panel(
            "share",
            "The gradient at the centre",
            "number of points K",
            "share of the oracle's error",
            series,
            references=frozenset({"Oracle"}),
            log="x",
            kind=Kind.MARKERS,
        )
    ]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    paper, ours = Judge(config.runs, figure=3), Judge(config.runs)
    error, variance, total = (curves["share", name] for name in (_ERROR, _VARIANCE, _TOTAL))
    less = ours.increases("", [variance.shifted(-1).times(-1)], measure="a smaller variance")
    last = f"K = {config.points[-1]}"
    growth = [error.part(slice(i, i + 1)).minus(error.part(slice(i + 1, i + 2)))
              for i in range(error.x.size - 1)]  # fmt: skip
    return [
        paper.no_worse(
            "MSE(θ_k) ≤ MSE(g_k) for arbitrary d and K: here for the gradient at the centre of a "
            f"circle of points, d = 3 ({error.mean[-1] - 1:+.0%} at {last}).",
            [error.shifted(-1)],
            margin=0.02,
            measure="largest increase that the runs leave possible, over the oracle's error",
            note="The constraints pull this gradient towards the largest errors around it. All of "
            "the increase is bias. For K = 2 the statement is proved.",
            provided=less,
        ),
        paper.increases(
            "The elementwise MSE decreases with K: here from each K to the next "
            f"({', '.join(f'{share - 1:+.0%}' for share in error.mean)} for K = "
            f"{', '.join(map(str, config.points))}).",
            growth,
            measure="smallest fall from one K to the next, in standard errors",
            note="More points mean a larger largest error around the centre.",
        ),
        ours.increases(
            "The variance of this gradient is nevertheless smaller than the oracle's, for every K.",
            [variance.shifted(-1).times(-1)],
            theory=True,
        ),
        ours.increases(
            "So is the mean error of all gradients, for every K.",
            [total.shifted(-1).times(-1)],
            theory=True,
        ),
    ]


EXPERIMENT = Experiment(
    NAME,
    "Error of the gradient at the centre of a circle of points, for 2 to 33 points.",
    CounterexampleConfig(),
    {"runs": 200},
    _unit,
    _gather,
    _panels,
    _claims,
    figure="ElementwiseMSE (refuted)",
    count=lambda config: len(config.points),
)
