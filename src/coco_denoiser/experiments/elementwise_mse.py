"""The error of each single gradient, for points near to and far from each other (ElementwiseMSE).

Six configurations of eight points, each drawn in a cube and scaled to three sizes: the same
noise meets the same shape, small, middling and large.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from coco_denoiser import denoise
from coco_denoiser.experiments.claims import (
    Claim,
    agrees,
    increases,
    nowhere_positive,
)
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

NAME = "elementwise-mse"
_BLOCK = 250  # runs of a unit
_SHOWN = 0  # the configuration of the paper's main text and of the picture in space


@dataclass(frozen=True)
class ElementwiseConfig(Config):
    """The paper's numbers."""

    runs: int = 1000
    dimension: int = 3
    points: int = 8
    sigma: float = 10.0
    configurations: int = 6
    half_widths: tuple[float, ...] = (10.0, 100.0, 1000.0)


def _blocks(config: ElementwiseConfig) -> int:
    return -(-config.runs // _BLOCK)


def _count(config: ElementwiseConfig) -> int:
    return config.configurations * _blocks(config)


def _shape(config: ElementwiseConfig, number: int) -> Array:
    """Return the points of a configuration in [-1, 1]^d."""
    rng = generator(config, f"{NAME} points", number)
    return rng.uniform(-1, 1, (config.points, config.dimension))


def _unit(config: ElementwiseConfig, index: int) -> Unit:
    """Return squared errors (boxes, runs, points) of COCO, and the oracle's (runs, points)."""
    number, block = divmod(index, _blocks(config))
    runs = range(block * _BLOCK, min((block + 1) * _BLOCK, config.runs))
    problem = Quadratic.spaced(config.dimension)
    shape = _shape(config, number)
    coco = np.empty((len(config.half_widths), len(runs), config.points))
    oracle = np.empty((len(runs), config.points))
    for row, run in enumerate(runs):
        rng = generator(config, NAME, number * config.runs + run)
        noise = config.sigma * rng.standard_normal(shape.shape)
        oracle[row] = np.sum(noise**2, axis=1)
        for box, half_width in enumerate(config.half_widths):
            points = half_width * shape
            exact = problem.gradient(points)
            theta = denoise(points, exact + noise, L=problem.L)
            coco[box, row] = np.sum((theta - exact) ** 2, axis=1)
    return {"coco": coco, "oracle": oracle}


def _panel(config: ElementwiseConfig, number: int, box: int) -> str:
    return f"configuration {number + 1}, l={config.half_widths[box]:g}"


def _gather(config: ElementwiseConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    at = np.arange(1, config.points + 1)
    blocks = _blocks(config)
    for number in range(config.configurations):
        mine = units[number * blocks : (number + 1) * blocks]
        coco = np.concatenate([unit["coco"] for unit in mine], axis=1)
        oracle = np.concatenate([unit["oracle"] for unit in mine])
        for box in range(len(config.half_widths)):
            panel = _panel(config, number, box)
            curves.add(panel, "COCO", at, coco[box])
            curves.add(panel, "Oracle (E)", at, oracle)
            curves.exact(panel, "Oracle (T)", at, np.full(at.size, _theory(config)))
            curves.add("COCO minus oracle", panel, at, coco[box] - oracle)
            if box > 0:
                larger = f"{panel} minus l={config.half_widths[box - 1]:g}"
                total = (coco[box] - coco[box - 1]).sum(axis=1, keepdims=True)
                curves.add("larger minus smaller box", larger, box, total)
        shape = _shape(config, number)
        apart = np.linalg.norm(shape[:, None] - shape, axis=2)
        curves.exact("mean distance to the others", f"{number + 1}", at, apart.mean(axis=1))
        if number == _SHOWN:
            for axis in range(config.dimension):
                curves.exact("disposition", f"coordinate {axis + 1}", at, 100.0 * shape[:, axis])
    return curves


def _theory(config: ElementwiseConfig) -> float:
    return config.dimension * config.sigma**2


def _panels(result: Result) -> list[Panel]:
    config = result.config
    panels = [
        Panel(
            _panel(config, number, box),
            f"Configuration {number + 1}, l = {config.half_widths[box]:g}",
            "point",
            "squared error",
            references=frozenset({"Oracle (T)"}),
            kind=Kind.MARKERS,
            new_row=box == 0,
        )
        for number in range(config.configurations)
        for box in range(len(config.half_widths))
    ]
    title = f"Configuration {_SHOWN + 1} in space, l = 100"
    return [*panels, Panel("disposition", title, "x", "y", kind=Kind.SPACE, new_row=True)]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    boxes = range(len(config.half_widths))
    numbers = range(config.configurations)
    names = [_panel(config, number, box) for number in numbers for box in boxes]
    largest = [_panel(config, number, boxes[-1]) for number in numbers]
    gains = [curves["COCO minus oracle", name] for name in names]
    oracle = [curves[_panel(config, number, 0), "Oracle (E)"] for number in numbers]
    growth = "larger minus smaller box"
    rank, spread = _isolation(result, 1)
    return [
        nowhere_positive(
            "MSE(θ_k) ≤ MSE(g_k) for every point of every configuration in every box.",
            gains,
            config.runs,
        ),
        agrees(
            "The oracle's error is d σ² for every point.",
            [Curve(c.x, c.mean - _theory(config), c.sem) for c in oracle],
            config.runs,
            theory=True,
        ),
        increases(
            "The tighter the box, the lower the total error.",
            [curves[growth, series] for series in curves.series(growth)],
            config.runs,
        ),
        agrees(
            "In the largest box (l=1000) denoising is almost null: it takes away "
            f"{_share(result):.1%} of the oracle's error.",
            [_bands(curves[name, "COCO"], curves[name, "Oracle (E)"]) for name in largest],
            config.runs,
            measure="largest difference, in the standard errors of the two bars",
        ),
        increases(
            "In the middle box (l=100), more isolated points have larger errors.",
            [Curve(np.ones(1), np.array([rank]), np.array([spread]))],
            1000,
            measure="mean rank correlation of error and mean distance to the other points, in "
            "standard errors under no relation",
        ),
    ]


def _bands(a: Curve, b: Curve) -> Curve:
    """Return a - b with the error that the two bars give, as if the noise were not the same."""
    return Curve(a.x, a.mean - b.mean, np.hypot(a.sem, b.sem))


def _share(result: Result) -> float:
    """Return what share of the oracle's error COCO takes away in the largest box."""
    config, curves = result.config, result.curves
    last = len(config.half_widths) - 1
    names = [_panel(config, number, last) for number in range(config.configurations)]
    gain = np.mean([curves["COCO minus oracle", name].mean for name in names])
    return float(-gain / _theory(config))


def _isolation(result: Result, box: int) -> tuple[float, float]:
    """Return the mean rank correlation over the configurations, and its spread by chance."""
    config, curves = result.config, result.curves
    ranks = [
        stats.spearmanr(
            curves["mean distance to the others", f"{number + 1}"].mean,
            curves[_panel(config, number, box), "COCO"].mean,
        ).statistic
        for number in range(config.configurations)
    ]
    chance = 1 / np.sqrt((config.points - 1) * config.configurations)
    return float(np.mean(ranks)), float(chance)


EXPERIMENTS = (
    Experiment(
        NAME,
        "ElementwiseMSE, ElementwiseMSE_SM, MSE_singular_RndConfig_disposition",
        "Error of each of 8 gradients with and without COCO, in a small, a middling, a large box.",
        ElementwiseConfig(),
        {"runs": 100},
        _count,
        _unit,
        _gather,
        _panels,
        _claims,
    ),
)
