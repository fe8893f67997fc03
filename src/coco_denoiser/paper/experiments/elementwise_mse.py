"""The error of each single gradient, for points near to and far from each other (ElementwiseMSE).

Seven configurations of eight points, each scaled to three sizes: the same noise meets the same
shape, small, middling and large. The first is that of the paper's Figures 3 and 11, as its
authors published it; the six rows of Figure 10 are drawn, since theirs are not published. A
grid of dimensions and numbers of points is beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from coco_denoiser import denoise
from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.paper.experiments.panels import Kind, Panel
from coco_denoiser.paper.problems import Quadratic
from coco_denoiser.typing import Float64

NAME = "elementwise-mse"
_BLOCK = 250  # runs of a unit
_SHOWN = 0  # the configuration of the paper's Figures 3 and 11
# The points of those figures, in percent of the half width of the box.
_PUBLISHED = (
    (-41.301, 74.709, 76.801), (-2.251, 43.942, -29.886), (7.229, -99.206, -8.051),
    (-28.423, 93.405, -84.205), (7.797, -54.388, -13.775), (24.609, 27.766, -12.694),
    (-50.339, -3.522, 60.404), (-14.805, 88.319, 61.111),
)  # fmt: skip
_BEST, _MIDDLE, _WORST = (1, 2, 6, 8), (3, 5), (4, 7)  # as the paper ranks them
_NO_MORE = 0.02  # of the oracle's error: what an error may exceed it by and still be "at most"
_GRID = tuple(product((1, 2, 5, 20), (2, 3, 5, 12)))  # dimensions and numbers of points


@dataclass(frozen=True)
class ElementwiseConfig(Config):
    """The paper's numbers; the boxes of the grid have the half width `grid_half_width`."""

    runs: int = 1000
    dimension: int = 3
    points: int = 8
    sigma: float = 10.0
    configurations: int = 7
    half_widths: tuple[float, ...] = (10.0, 100.0, 1000.0)
    grid_half_width: float = 10.0


def _shape(config: ElementwiseConfig, number: int) -> Float64:
    """Return the points of a configuration in [-1, 1]^d."""
    if number == _SHOWN:
        return np.array(_PUBLISHED) / 100.0
    rng = generator(config, f"{NAME} points", number)
    return rng.uniform(-1, 1, (config.points, config.dimension))


def _unit(config: ElementwiseConfig, index: int) -> Unit:
    """Return squared errors (boxes, runs, points) of COCO, and the oracle's (runs, points)."""
    number, part = divmod(index, len(config.in_blocks(_BLOCK)))
    if number >= config.configurations:
        return _grid_unit(config, index - len(config.in_blocks(_BLOCK)) * config.configurations)
    problem = Quadratic.spaced(config.dimension)
    shape = _shape(config, number)
    noise = np.stack(
        [
            generator(config, NAME, number * config.runs + run).standard_normal(shape.shape)
            for run in config.in_blocks(_BLOCK)[part]
        ]
    )
    noise *= config.sigma
    boxes = [_errors(problem, half_width * shape, noise) for half_width in config.half_widths]
    return {"coco": _squares(np.stack(boxes)), "oracle": _squares(noise)}


def _grid_unit(config: ElementwiseConfig, index: int) -> Unit:
    """Return what COCO adds to error and variance of each point, (runs, points), over d sigma^2."""
    d, K = _GRID[index]
    problem = Quadratic.spaced(d)
    rng = generator(config, f"{NAME} grid", index)
    points = config.grid_half_width * rng.uniform(-1, 1, (K, d))
    noise = config.sigma * rng.standard_normal((config.runs, K, d))
    moved = _errors(problem, points, noise)
    scale = d * config.sigma**2
    centred = moved - moved.mean(axis=0), noise - noise.mean(axis=0)
    return {
        "error": (_squares(moved) - _squares(noise)) / scale,
        "variance": (_squares(centred[0]) - _squares(centred[1])) / scale,
    }


def _errors(problem: Quadratic, points: Float64, noise: Float64) -> Float64:
    """Return what is left of noise (runs, points, d) when COCO has denoised the gradients."""
    exact = problem.gradient(points)
    return np.stack([denoise(points, exact + each, L=problem.L) for each in noise]) - exact


def _squares(vectors: Float64) -> Float64:
    return np.asarray(np.sum(vectors**2, axis=-1))


def _panel(config: ElementwiseConfig, number: int, box: int) -> str:
    return f"configuration {number + 1}, l={config.half_widths[box]:g}"


def _gather(config: ElementwiseConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    at = np.arange(1, config.points + 1)
    blocks, theory = len(config.in_blocks(_BLOCK)), config.dimension * config.sigma**2
    oracles = []
    for number in range(config.configurations):
        mine = units[number * blocks : (number + 1) * blocks]
        coco = np.concatenate([unit["coco"] for unit in mine], axis=1)
        oracle = np.concatenate([unit["oracle"] for unit in mine])
        oracles.append(oracle.mean(axis=1))
        for box in range(len(config.half_widths)):
            panel = _panel(config, number, box)
            curves.add(panel, "COCO", at, coco[box])
            curves.add(panel, "Oracle (E)", at, oracle)
            curves.exact(panel, "Oracle (T)", at, np.full(at.size, theory))
            gain = (coco[box] - oracle) / theory
            curves.add("COCO minus oracle", panel, at, gain)
            curves.add("total, COCO minus oracle", panel, box, gain.mean(axis=1, keepdims=True))
            if box > 0:
                larger = f"{panel} minus l={config.half_widths[box - 1]:g}"
                total = (coco[box] - coco[box - 1]).sum(axis=1, keepdims=True)
                curves.add("larger minus smaller box", larger, box, total)
        if number == _SHOWN:
            groups = [coco[1][:, np.array(g) - 1].mean(axis=1) for g in (_BEST, _MIDDLE, _WORST)]
            for i, name in enumerate(("middle minus best", "worst minus middle")):
                curves.add("ranks", name, i, (groups[i + 1] - groups[i])[:, None])
        shape = _shape(config, number)
        apart = np.linalg.norm(shape[:, None] - shape, axis=2) + np.diag([np.inf] * config.points)
        curves.exact("distance to the nearest", f"{number + 1}", at, apart.min(axis=1))
        if number == _SHOWN:
            for axis in range(config.dimension):
                curves.exact("disposition", f"coordinate {axis + 1}", at, 100.0 * shape[:, axis])
    curves.add("oracle", "all points", 0, np.mean(oracles, axis=0)[:, None] / theory - 1)
    for (d, K), unit in zip(_GRID, units[-len(_GRID) :], strict=True):
        for what in ("error", "variance"):
            curves.add(f"grid {what}", f"d={d}, K={K}", np.arange(1, K + 1), unit[what])
    return curves


def _panels(result: Result) -> list[Panel]:
    config, places = result.config, ("left", "centre", "right")
    figures = ["3", *(f"10, row {number}" for number in range(1, config.configurations))]
    panels = [
        Panel(
            _panel(config, number, box),
            f"l = {config.half_widths[box]:g}",
            "point",
            "squared error",
            references=frozenset({"Oracle (T)"}),
            kind=Kind.MARKERS,
            new_row=box == 0,
            figure=f"{figures[number]}, {places[box]}",
            y_range=(0.0, 350.0),
        )
        for number in range(config.configurations)
        for box in range(len(config.half_widths))
    ]
    title = "Points of Figure 3, l = 100"
    space = Panel("disposition", title, "x", "y", kind=Kind.SPACE, new_row=True, figure="11")
    return [*panels, space]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    boxes, runs = range(len(config.half_widths)), config.runs
    paper = Judge(runs, figure=3)
    numbers = range(config.configurations)
    gain = "COCO minus oracle"
    first = [curves[gain, _panel(config, _SHOWN, box)] for box in boxes]
    others = [
        curves[gain, _panel(config, number, box)]
        for number in numbers
        for box in boxes
        if number != _SHOWN
    ]
    widest = [_panel(config, number, boxes[-1]) for number in numbers]
    lost = [curves["total, COCO minus oracle", name] for name in widest]
    taken = -np.mean([c.mean for c in lost])
    increase = "largest increase that the runs leave possible, as a share of the oracle's error"
    bound: dict[str, Any] = {"margin": _NO_MORE, "measure": increase}
    tightest = [curves[gain, _panel(config, number, 0)].times(-1) for number in numbers]
    gained = "a gain for every point of the smallest box"
    here = Judge(runs).increases("", tightest[_SHOWN : _SHOWN + 1], measure=gained)
    elsewhere = Judge(runs).increases("", tightest[_SHOWN + 1 :], measure=gained)
    tighter = paper.increases(
        "The tighter the box, the lower the total error, in every configuration.",
        curves.panel("larger minus smaller box"),
    )
    return [
        paper.no_worse(
            "MSE(θ_k) ≤ MSE(g_k) for every point, in every box.", first, provided=here, **bound
        ),
        tighter,
        paper.equivalent(
            f"In the largest box denoising is almost null: it takes away {taken:.1%} of the error.",
            lost,
            provided=tighter,
        ),
        _isolation_claim(result, box=1),
        *_grid_claims(result),
        Judge(runs, figure=10).no_worse(
            "MSE(θ_k) ≤ MSE(g_k) for every point of every further configuration, in every box.",
            others,
            provided=elsewhere,
            **bound,
        ),
        Judge(runs, figure=11).increases(
            "In the published configuration x1, x2, x6, x8 come out best, then x3, x5, and worst "
            "x4, x7.",
            curves.panel("ranks"),
            measure="smallest difference between the means of these groups, in standard errors",
        ),
        Judge(runs).equivalent(
            "The oracle's error is d σ².", [curves["oracle", "all points"]], theory=True
        ),
    ]


def _isolation_claim(result: Result, box: int) -> Claim:
    config, curves = result.config, result.curves
    correlations = [
        _rank_correlation(
            curves["distance to the nearest", f"{number + 1}"].mean,
            curves[_panel(config, number, box), "COCO"].mean,
        )
        for number in range(config.configurations)
    ]
    rank = np.mean(correlations)
    spread = 1 / np.sqrt((config.points - 1) * config.configurations)
    return Judge(1000, figure=3).increases(  # the spread is known, not estimated
        "In the middle box, more isolated points have larger errors: the rank correlation of "
        f"error and distance to the nearest point is {rank:.2f}.",
        [Curve(np.ones(1), np.array([rank]), np.array([spread]))],
        measure="mean rank correlation over the configurations, in standard errors under no "
        "relation",
    )


def _grid_claims(result: Result) -> list[Claim]:
    ours = Judge(result.config.runs)
    paper = replace(ours, figure=3)
    return [
        ours.increases(
            "MSE(θ_k) < MSE(g_k) for every point of a quadratic's windows in a small box: d from 1 "
            f"to 20 and K from 2 to 12, {len(_GRID)} windows.",
            [curve.times(-1) for curve in result.curves.panel("grid error")],
        ),
        paper.increases(
            "The variance of each gradient falls: Var(θ_k) < Var(g_k) for every point of these "
            "windows.",
            [curve.times(-1) for curve in result.curves.panel("grid variance")],
        ),
    ]


def _rank_correlation(a: Float64, b: Float64) -> float:
    """Return Spearman's coefficient; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Float64) -> Float64:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - 0.5 * (counts - 1))[inverse])


EXPERIMENT = Experiment(
    NAME,
    "Error of each of 8 gradients with and without COCO, in a small, a middling, a large box.",
    ElementwiseConfig(),
    {"runs": 250},
    _unit,
    _gather,
    _panels,
    _claims,
    figure="ElementwiseMSE, ElementwiseMSE_SM, MSE_singular_RndConfig_disposition",
    count=lambda config: config.configurations * len(config.in_blocks(_BLOCK)) + len(_GRID),
    seconds=8.0,
)
