"""How the mean squared error grows with the noise, for one to ten points (MSE_totalVsVariance).

In every run K points are drawn uniformly in a cube, their gradients are observed with noise of
variance sigma^2, and denoised. The error of a window is its total squared error over K. For
points close enough to each other the error is C sigma^2, with C falling as 1/K.

The K points of a run are the first K of ten, with the same noise, so that two values of K are
compared on the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coco_denoiser import denoise, denoise_pairs
from coco_denoiser.experiments.claims import Claim, agrees, at_most, increases, nowhere_positive
from coco_denoiser.experiments.experiment import (
    Array,
    Config,
    Curve,
    Curves,
    Experiment,
    Result,
    Unit,
    generator,
)
from coco_denoiser.experiments.panels import Kind, Panel
from coco_denoiser.problems import Quadratic

NAME = "mse-vs-variance"


@dataclass(frozen=True)
class VarianceConfig(Config):
    """The paper's numbers."""

    runs: int = 1000
    dimension: int = 3
    most_points: int = 10
    half_width: float = 5.0
    variances: tuple[float, ...] = tuple(100.0 * i for i in range(11))
    blocks: int = 4


def _count(config: VarianceConfig) -> int:
    return len(config.variances) * config.blocks


def _unit(config: VarianceConfig, index: int) -> Unit:
    """Return, for a block of runs at one variance, errors (runs, K) of the oracle and of COCO."""
    level, block = divmod(index, config.blocks)
    sigma = np.sqrt(config.variances[level])
    problem = Quadratic.spaced(config.dimension)
    runs = range(config.runs * block // config.blocks, config.runs * (block + 1) // config.blocks)
    most = config.most_points
    oracle, coco, centroid = (np.zeros((len(runs), most)) for _ in range(3))
    for row, run in enumerate(runs):
        rng = generator(config, NAME, level * config.runs + run)
        points = rng.uniform(-config.half_width, config.half_width, (most, config.dimension))
        exact = problem.gradient(points)
        noisy = exact + sigma * rng.standard_normal(points.shape)
        for K in range(1, most + 1):
            if K == 1 or sigma == 0.0:
                theta = noisy[:K]
            elif K == 2:
                theta = denoise_pairs(points[:2], noisy[:2], L=problem.L)
            else:
                theta = denoise(points[:K], noisy[:K], L=problem.L)
            oracle[row, K - 1] = np.sum((noisy[:K] - exact[:K]) ** 2) / K
            coco[row, K - 1] = np.sum((theta - exact[:K]) ** 2) / K
            shift = np.linalg.norm(theta.mean(axis=0) - noisy[:K].mean(axis=0))
            centroid[row, K - 1] = shift / np.linalg.norm(noisy[:K])
    return {"oracle": oracle, "coco": coco, "centroid": centroid}


def _gather(config: VarianceConfig, units: Sequence[Unit]) -> Curves:
    def collect(name: str) -> Array:
        """Put the blocks back together: (variances, runs, K)."""
        rows = [unit[name] for unit in units]
        per = config.blocks
        return np.stack([np.concatenate(rows[i : i + per]) for i in range(0, len(rows), per)])

    sigma2 = np.array(config.variances)
    oracle, coco, centroid = collect("oracle"), collect("coco"), collect("centroid")
    numbers = np.arange(1, config.most_points + 1)
    curves = Curves()
    slopes = {}
    for panel, errors in (("oracle", oracle), ("coco", coco)):
        for K in numbers:
            curves.add(panel, f"K={K}", sigma2, errors[:, :, K - 1].T)
        # Least squares through the origin, for run r of every variance together.
        slopes[panel] = np.tensordot(sigma2, errors, axes=(0, 0)) / np.sum(sigma2**2)
    for panel, series in (("oracle", "Oracle"), ("coco", "COCO")):
        curves.add("slope", series, numbers, slopes[panel])
    curves.exact("slope", "d/K (averaging)", numbers, config.dimension / numbers)
    for panel in ("oracle", "coco"):
        for K in numbers:
            fitted = sigma2 * slopes[panel][:, K - 1].mean()
            curves.exact(f"{panel} fit", f"K={K}", sigma2, fitted)
    for before, after in pairwise(numbers):
        drop = slopes["coco"][:, before - 1] - slopes["coco"][:, after - 1]
        curves.add("slope drop", f"K={before} minus K={after}", after, drop[:, None])
    # Both are theorems about every single run, not about the mean.
    noise = np.where(oracle > 0, oracle, 1.0)
    curves.exact("worst run", "total error over the oracle's", numbers, (coco / noise).max((0, 1)))
    curves.exact("worst run", "shift of the centroid", numbers, centroid.max((0, 1)))
    return curves


def _panels(result: Result) -> list[Panel]:
    series = tuple(f"K={K}" for K in range(1, result.config.most_points + 1))
    variance = "noise variance σ²"
    return [
        Panel("oracle", "Oracle", variance, "total squared error / K", series),
        Panel("coco", "COCO", variance, "total squared error / K", series),
        Panel(
            "slope",
            "Slope of error against σ²",
            "number of points K",
            "slope",
            references=frozenset({"d/K (averaging)"}),
            log="xy",
            kind=Kind.MARKERS,
        ),
    ]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    slope = curves["slope", "COCO"]
    oracle = curves["slope", "Oracle"]
    worst = curves["worst run", "total error over the oracle's"].mean
    shift = curves["worst run", "shift of the centroid"].mean
    drops = [curves["slope drop", series] for series in curves.series("slope drop")]
    # C = O(1/K): K C is bounded. It is constant for averaging, and cannot fall below that.
    growth = Curve(
        slope.x[-1:],
        slope.mean[-1:] * slope.x[-1] - config.dimension,
        slope.sem[-1:] * slope.x[-1],
    )
    exponent, error = _exponent(slope)
    fits = [
        Curve(c.x, c.mean - curves["coco fit", s].mean, c.sem)
        for s in curves.series("coco")
        for c in [curves["coco", s]]
    ]
    return [
        at_most(
            "The denoised gradients have the centroid of the observed ones (Theorem 4.1).",
            float(shift.max()),
            1e-9,
            measure="largest shift of a run, relative to its gradients; threshold: the solver's "
            "tolerance",
            theory=True,
        ),
        at_most(
            "The total error after denoising is at most the oracle's (Theorem 4.2).",
            float(worst.max()),
            1 + 1e-6,
            measure="largest ratio of a run; threshold: 1, up to the solver's tolerance",
            theory=True,
        ),
        agrees(
            "The oracle's error is d σ² for every K.",
            [Curve(oracle.x, oracle.mean - config.dimension, oracle.sem)],
            config.runs,
            theory=True,
        ),
        increases("COCO's error falls monotonically with K.", drops, config.runs),
        nowhere_positive(
            "The slope C of the error against σ² falls at least as fast as 1/K up to K=10: "
            "K·C does not exceed its value d at K=1.",
            [growth],
            config.runs,
            measure="10·C − d at K=10, in standard errors",
            note=f"C falls as K^{exponent:.3f} (± {error:.3f}): the cube is small, but not small "
            "enough for pure averaging, so K·C grows slowly.",
        ),
        agrees(
            "The error is C σ², a straight line through the origin.",
            fits,
            config.runs,
            note="The points are a little too far apart for weak noise to reach every pair: the "
            "error per σ² is larger at σ²=100 than at 1000.",
        ),
    ]


def _exponent(slope: Curve) -> tuple[float, float]:
    """Return the power of K in the slope, by weighted least squares in logarithms."""
    x, y = np.log(slope.x), np.log(slope.mean)
    weight = (slope.mean / slope.sem) ** 2
    x = x - np.average(x, weights=weight)
    power = np.sum(weight * x * y) / np.sum(weight * x * x)
    return float(power), float(1 / np.sqrt(np.sum(weight * x * x)))


EXPERIMENTS = (
    Experiment(
        NAME,
        "MSE_totalVsVariance",
        "Error of the oracle and of COCO against the noise variance, for 1 to 10 points.",
        VarianceConfig(),
        {"runs": 40, "blocks": 1},
        _count,
        _unit,
        _gather,
        _panels,
        _claims,
    ),
)
