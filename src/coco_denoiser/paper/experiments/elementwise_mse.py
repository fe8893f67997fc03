"""The error of each single gradient, for points near to and far from each other (ElementwiseMSE).

Seven configurations of eight points, each scaled to three sizes: the same noise meets the same
shape, small, middling and large. The first is that of the paper's Figures 3 and 11, as its
authors published it; the six rows of Figure 10 are drawn, since theirs are not published. A
grid of dimensions and numbers of points is beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.paper.experiments.panels import Kind, Panel
from coco_denoiser.paper.pairs import denoise_windows
from coco_denoiser.paper.problems import Quadratic
from coco_denoiser.typing import Float64

NAME = "elementwise-mse"
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
    if index >= config.configurations:
        return _grid_unit(config, index - config.configurations)
    shape, first = _shape(config, index), index * config.runs
    draws = (generator(config, NAME, first + run) for run in range(config.runs))
    noise = config.sigma * np.stack([rng.standard_normal(shape.shape) for rng in draws])
    problem = Quadratic.spaced(config.dimension)
    boxes = [_errors(problem, half_width * shape, noise) for half_width in config.half_widths]
    return {"coco": _squares(np.stack(boxes)), "oracle": _squares(noise)}


def _grid_unit(config: ElementwiseConfig, index: int) -> Unit:
    """Return what COCO adds to error and variance of each point, (runs, points), over d sigma^2."""
    d, K = _GRID[index]
    rng = generator(config, f"{NAME} grid", index)
    points = config.grid_half_width * rng.uniform(-1, 1, (K, d))
    noise = config.sigma * rng.standard_normal((config.runs, K, d))
    moved, scale = _errors(Quadratic.spaced(d), points, noise), d * config.sigma**2
    spread, drawn = moved - moved.mean(axis=0), noise - noise.mean(axis=0)
    return {
        "error": (_squares(moved) - _squares(noise)) / scale,
        "variance": (_squares(spread) - _squares(drawn)) / scale,
    }


def _errors(problem: Quadratic, points: Float64, noise: Float64) -> Float64:
    """Return what is left of noise (runs, points, d) when COCO has denoised the gradients."""
    exact = problem.gradient(points)
    return denoise_windows(points, exact + noise, L=problem.L) - exact


def _squares(vectors: Float64) -> Float64:
    return np.asarray(np.sum(vectors**2, axis=-1))


def _panel(config: ElementwiseConfig, number: int, box: int) -> str:
    return f"configuration {number + 1}, l={config.half_widths[box]:g}"


def _gather(config: ElementwiseConfig, units: Sequence[Unit]) -> Curves:
    curves = Curves()
    at, theory = np.arange(1, config.points + 1), config.dimension * config.sigma**2
    shown, grid = units[: config.configurations], units[config.configurations :]
    for number, unit in enumerate(shown):
        coco, oracle = unit["coco"], unit["oracle"]
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
        shape = _shape(config, number)
        apart = np.linalg.norm(shape[:, None] - shape, axis=2) + np.diag([np.inf] * config.points)
        curves.exact("distance to the nearest", f"{number + 1}", at, apart.min(axis=1))
    middle_box = shown[_SHOWN]["coco"][1]
    groups = [middle_box[:, np.array(g) - 1].mean(axis=1) for g in (_BEST, _MIDDLE, _WORST)]
    curves.add("ranks", "groups", [1, 2], np.diff(groups, axis=0).T)
    for axis, coordinates in enumerate(100.0 * _shape(config, _SHOWN).T, start=1):
        curves.exact("disposition", f"coordinate {axis}", at, coordinates)
    oracles = np.mean([unit["oracle"].mean(axis=1) for unit in shown], axis=0)
    curves.add("oracle", "all points", 0, oracles[:, None] / theory - 1)
    for (d, K), unit in zip(_GRID, grid, strict=True):
        for what in ("error", "variance"):
            curves.add(f"grid {what}", f"d={d}, K={K}", np.arange(1, K + 1), unit[what])
    return curves


def _panels(result: Result) -> list[Panel]:
    config, theory = result.config, frozenset({"Oracle (T)"})
    box = Panel("", "", "point", "squared error", references=theory, kind=Kind.MARKERS)
    panels = [
        replace(
            box,
            name=_panel(config, number, i),
            title=f"l = {config.half_widths[i]:g}",
            new_row=i == 0,
            y_range=(0.0, 350.0),
            figure=f"{'3' if number == _SHOWN else f'10, row {number}'}, {place}",
        )
        for number in range(config.configurations)
        for i, place in enumerate(("left", "centre", "right"))
    ]
    title = "Points of Figure 3, l = 100"
    space = Panel("disposition", title, "x", "y", kind=Kind.SPACE, new_row=True, figure="11")
    return [*panels, space]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    paper, ours = Judge(config.runs, figure=3), Judge(config.runs)
    largest = len(config.half_widths) - 1
    lost = [
        curves["total, COCO minus oracle", _panel(config, number, largest)]
        for number in range(config.configurations)
    ]
    taken = -np.mean([c.mean for c in lost])
    tighter = paper.increases(
        "The tighter the box, the lower the total error, in every configuration.",
        curves.panel("larger minus smaller box"),
    )
    first, *further = range(config.configurations)
    return [
        _bound_claim(result, 3, "MSE(θ_k) ≤ MSE(g_k) for every point, in every box.", [first]),
        tighter,
        paper.equivalent(
            f"In the largest box denoising is almost null: it takes away {taken:.1%} of the error.",
            lost,
            provided=tighter,
        ),
        _isolation_claim(result, box=1),
        ours.increases(
            "MSE(θ_k) < MSE(g_k) for every point of a quadratic's windows in a small box: d from 1 "
            f"to 20 and K from 2 to 12, {len(_GRID)} windows.",
            [curve.times(-1) for curve in curves.panel("grid error")],
        ),
        paper.increases(
            "The variance of each gradient falls: Var(θ_k) < Var(g_k) for every point of these "
            "windows.",
            [curve.times(-1) for curve in curves.panel("grid variance")],
        ),
        _bound_claim(
            result,
            10,
            "MSE(θ_k) ≤ MSE(g_k) for every point of every further configuration, in every box.",
            further,
        ),
        Judge(config.runs, figure=11).increases(
            "In the published configuration x1, x2, x6, x8 come out best, then x3, x5, and worst "
            "x4, x7.",
            [curves["ranks", "groups"]],
            measure="smallest difference between the means of these groups, in standard errors",
        ),
        ours.equivalent(
            "The oracle's error is d σ².", [curves["oracle", "all points"]], theory=True
        ),
    ]


def _bound_claim(result: Result, figure: int, sentence: str, numbers: Sequence[int]) -> Claim:
    """Claim that no error of these configurations is above the oracle's, and the smallest below."""
    config, judge = result.config, Judge(result.config.runs, figure)
    boxes = [
        [result.curves["COCO minus oracle", _panel(config, number, box)] for number in numbers]
        for box in range(len(config.half_widths))
    ]
    return judge.no_worse(
        sentence,
        [curve for box in boxes for curve in box],
        margin=_NO_MORE,
        measure="largest increase that the runs leave possible, as a share of the oracle's error",
        provided=judge.premise(
            "a gain for every point of the smallest box", [curve.times(-1) for curve in boxes[0]]
        ),
    )


def _isolation_claim(result: Result, box: int) -> Claim:
    from scipy.stats import spearmanr  # takes a second, which no other experiment should wait for

    config, curves = result.config, result.curves
    correlations = [
        spearmanr(
            curves["distance to the nearest", f"{number + 1}"].mean,
            curves[_panel(config, number, box), "COCO"].mean,
        ).statistic
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


EXPERIMENT = Experiment(
    NAME,
    "Error of each of 8 gradients with and without COCO, in a small, a middling, a large box.",
    ElementwiseConfig(),
    {"runs": 250},
    _unit,
    _gather,
    _panels,
    _claims,
    numbers=(3, 10, 11),
    count=lambda config: config.configurations + len(_GRID),
    seconds=8.0,
)
