"""What the tight set gains over pairwise co-coercivity, and where; beyond the paper.

In every run K points are observed with noise, and denoised twice on the same noise: onto the
gradients whose every pair is co-coercive, and onto those of one function. The K points are the
last ones of an SGD path, at its start or later, or a cloud around a point. What is shown is the
change of the mean squared error, of all K gradients and of the newest alone, which is the one
that an optimizer uses. Late paths are also denoised with noise drawn afresh, on which the
points do not depend.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coco_denoiser import solve
from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curve, Curves
from coco_denoiser.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.typing import Float64

NAME = "interpolation"
_TOLERANCE = 1e-6  # far below the noise
_WIDTH = 30.0  # where the gradient of log-cosh flattens


class Points(NamedTuple):
    """How K points come about: SGD with a step after so many others, or a cloud if step is 0."""

    series: str
    step: float
    skip: int = 0
    spread: float = 0.0
    fresh: bool = False


ARRANGEMENTS = (
    Points("SGD, step 1/L, late", 1.0, 30),
    Points("SGD, step 0.3/L, late", 0.3, 30),
    Points("SGD, step 0.1/L, late", 0.1, 30),
    Points("SGD, step 1/L, first steps", 1.0),
    Points("cloud of size σ/L", 0.0, spread=10.0),
    Points("cluster of size 0.1 σ/L", 0.0, spread=1.0),
    Points("SGD, step 0.3/L, late, fresh noise", 0.3, 30, fresh=True),
)
LATE, CLOUD, CLUSTER, FRESH = ARRANGEMENTS[:3], ARRANGEMENTS[4], ARRANGEMENTS[5], ARRANGEMENTS[6]


@dataclass(frozen=True)
class InterpolationConfig(Config):
    """The paper's synthetic oracle, from 4 to 32 points; the largest window has fewer runs."""

    runs: int = 240
    dimension: int = 10
    sigma: float = 10.0
    windows: tuple[int, ...] = (4, 8, 16, 32)
    share: tuple[int, ...] = (1, 1, 2, 6)
    blocks: int = 6


def _problems(config: InterpolationConfig) -> dict[str, Callable[[Float64], Float64]]:
    """Return gradients of two functions with curvature up to L = 1."""
    scale = np.linspace(1.0, 1.0 / 3.0, config.dimension)
    return {
        "quadratic": lambda x: scale * x,
        "log-cosh": lambda x: scale * _WIDTH * np.tanh(x / _WIDTH),
    }


def _count(config: InterpolationConfig) -> int:
    return len(_problems(config)) * len(ARRANGEMENTS) * config.blocks


def _unit(config: InterpolationConfig, index: int) -> Unit:
    """Return by K squared errors (runs, 2, 2): of pairwise and tight, in all and of the newest.

    And what share of the others' mean noise the newest gradient has more in the tight answer.
    """
    which, block = divmod(index, config.blocks)
    number, kind = divmod(which, len(ARRANGEMENTS))
    name, gradient = list(_problems(config).items())[number]
    unit: dict[str, Float64] = {}
    for K, share in zip(config.windows, config.share, strict=True):
        runs = max(config.runs // share, 2)
        errors, taken = [], []
        for run in range(runs * block // config.blocks, runs * (block + 1) // config.blocks):
            rng = generator(config, f"{NAME} {name} {ARRANGEMENTS[kind].series} {K}", run)
            points, seen = _observe(config, ARRANGEMENTS[kind], gradient, K, rng)
            exact = gradient(points)
            pairwise, tight = (
                _denoised(points, seen, word) for word in ("pairwise", "interpolation")
            )
            squares = [np.sum((theta - exact) ** 2, axis=1) for theta in (pairwise, tight)]
            errors.append([[each.sum(), each[-1]] for each in squares])
            noise = (seen - exact)[:-1].mean(axis=0)
            taken.append([(tight - pairwise)[-1] @ noise / (noise @ noise)])
        unit[str(K)] = np.array(errors).reshape(-1, 2, 2)
        unit[f"{K} taken"] = np.array(taken).reshape(-1, 1)
    return unit


def _denoised(points: Float64, seen: Float64, constraints: str) -> Float64:
    return solve(
        points, seen, L=1.0, constraints=constraints, tol=_TOLERANCE, throw=False
    ).gradients


def _observe(
    config: InterpolationConfig,
    kind: Points,
    gradient: Callable[[Float64], Float64],
    K: int,
    rng: np.random.Generator,
) -> tuple[Float64, Float64]:
    """Return K points and their noisy gradients."""
    d, sigma = config.dimension, config.sigma
    if kind.step == 0.0:
        points = 2.0 * sigma + kind.spread * rng.standard_normal((K, d))
        return points, gradient(points) + sigma * rng.standard_normal((K, d))
    x = np.full(d, 100.0)
    points, seen = np.empty((kind.skip + K, d)), np.empty((kind.skip + K, d))
    for k in range(kind.skip + K):
        points[k], seen[k] = x, gradient(x) + sigma * rng.standard_normal(d)
        x = x - kind.step * seen[k]
    points, seen = points[kind.skip :], seen[kind.skip :]
    if kind.fresh:
        seen = gradient(points) + sigma * rng.standard_normal((K, d))
    return points, seen


def _gather(config: InterpolationConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    K = np.array(config.windows)
    for number, problem in enumerate(_problems(config)):
        for at, kind in enumerate(ARRANGEMENTS):
            start = (number * len(ARRANGEMENTS) + at) * config.blocks
            mine = units[start : start + config.blocks]
            samples = [np.concatenate([unit[str(k)] for unit in mine]) for k in K]
            for column, what in enumerate(("total", "newest")):
                change = [_change(errors[:, :, column]) for errors in samples]
                ratio, error = np.array(change).T
                curves.exact(f"{problem}, {what}", kind.series, K, 100 * ratio, 100 * error)
            taken = [np.concatenate([unit[f"{k} taken"] for unit in mine]) for k in K]
            mean, spread = np.array([_mean(share) for share in taken]).T
            curves.exact(f"{problem}, noise taken over", kind.series, K, mean, spread)
            kept = [errors[:, 0, 0].mean() / k for errors, k in zip(samples, K, strict=True)]
            share = np.array(kept) / (config.dimension * config.sigma**2)
            curves.exact(f"{problem}, pairwise over oracle", kind.series, K, share)
        for what in ("total", "newest"):
            curves.exact(f"{problem}, {what}", "pairwise", K, np.zeros(K.size))
    return curves


def _mean(samples: Float64) -> tuple[float, float]:
    return float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(len(samples)))


def _change(errors: Float64) -> tuple[float, float]:
    """Return mean(b) / mean(a) - 1 of paired errors (runs, 2), and its standard error."""
    a, b = errors.T
    ratio = b.mean() / a.mean()
    spread = np.std(b - ratio * a, ddof=1) / np.sqrt(len(a)) / a.mean()
    return float(ratio - 1), float(spread)


def _panels(result: Result) -> list[Panel]:
    shown = tuple(kind.series for kind in ARRANGEMENTS)
    return [
        Panel(
            f"{problem}, {what}",
            f"{problem}: {'all K gradients' if what == 'total' else 'the newest gradient'}",
            "number of points K",
            "change of the MSE, %",
            (*shown, "pairwise"),
            references=frozenset({"pairwise"}),
            log="x",
            new_row=what == "total",
        )
        for problem in _problems(result.config)
        for what in ("total", "newest")
    ]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    problems = list(_problems(config))
    ours, all_sizes = Judge(config.runs), Judge(max(config.runs // max(config.share), 2))

    def change(what: str, kinds: Sequence[Points], *, sign: float = 1.0) -> list[Curve]:
        found = [
            curves[f"{problem}, {what}", kind.series] for problem in problems for kind in kinds
        ]
        return [c.times(sign) for c in found]

    def span(curve_list: Sequence[Curve]) -> str:
        low = min(float(c.mean.min()) for c in curve_list)
        high = max(float(c.mean.max()) for c in curve_list)
        return f"{low:+.1f}% to {high:+.1f}%"

    def minus(some: Sequence[Curve], others: Sequence[Curve]) -> list[Curve]:
        return [a.minus(b) for a, b in zip(some, others, strict=True)]

    def few(curve_list: Sequence[Curve]) -> list[Curve]:
        """Leave out the largest windows, whose runs are few."""
        return [c.part(slice(2)) for c in curve_list]

    return [
        all_sizes.no_worse(
            "The tight set never raises the total error, wherever the points are "
            f"({span(change('total', ARRANGEMENTS))} here).",
            change("total", ARRANGEMENTS, sign=0.01),
            measure="largest increase of the total MSE that the runs leave possible, as a share",
        ),
        all_sizes.increases(
            "On late SGD paths at steps 1/L and 0.3/L it lowers the total error, for all K "
            f"({span(change('total', LATE[:2]))}).",
            change("total", LATE[:2], sign=-1.0),
            measure="smallest gain, in standard errors",
        ),
        all_sizes.increases(
            "On points that are clustered it gains less, for all K "
            f"({span(change('total', (CLUSTER,)))}), than in a cloud as wide as the noise allows "
            f"({span(change('total', (CLOUD,)))}).",
            minus(change("total", (CLUSTER,)), change("total", (CLOUD,))),
        ),
        all_sizes.somewhere_negative(
            "It can raise the error of the newest gradient: on late paths at step 0.3/L "
            f"({span(change('newest', LATE[1:2]))}).",
            change("newest", LATE[1:2], sign=-1.0),
            measure="smallest gain, in standard errors",
        ),
        ours.increases(
            "That is because the points depend on the noise: with fresh noise at the same "
            "points the newest gradient does better, at 4 and 8 points.",
            few(minus(change("newest", LATE[1:2]), change("newest", (FRESH,)))),
            measure="smallest difference, in standard errors",
        ),
        ours.increases(
            "The newest gradient then takes over noise that the others shed, as the centroid is "
            f"preserved: {span(change('noise taken over', LATE[1:2], sign=100.0))} of their mean "
            "noise.",
            few(minus(change("noise taken over", LATE[1:2]), change("noise taken over", (FRESH,)))),
            measure="smallest difference to fresh noise, in standard errors",
        ),
        ours.increases(
            "In a cloud, where no point is the newest, one gradient gains too, at 4 and 8 points "
            f"({span(change('newest', (CLOUD,)))} for all K).",
            few(change("newest", (CLOUD,), sign=-1.0)),
            measure="smallest gain, in standard errors",
        ),
    ]


EXPERIMENT = Experiment(
    NAME,
    "What the gradients of one function gain over pairwise co-coercivity, 4 to 32 points.",
    InterpolationConfig(),
    {"runs": 12, "blocks": 1},
    _unit,
    _gather,
    _panels,
    _claims,
    count=_count,
)
