"""The pictures of the page: what is in a frame, as data, and the plots that a script fills.

A frame is everything that changes with the step shown; axes change with the settings alone, so
that they stay where they are while a run plays. Both are plain numbers by the name of the source
or the axis they fill.
"""

import math
from typing import Any

import contourpy
import numpy as np
from bokeh.models import Arrow, ColumnDataSource, HoverTool, Range1d, VeeHead
from bokeh.plotting import figure

from coco_denoiser.paper.experiments.palette import COCO, EXACT, GAUSSIAN, PLAIN
from coco_denoiser.paper.explore.objectives import OBJECTIVES
from coco_denoiser.paper.explore.simulation import START, Simulation
from coco_denoiser.typing import AnyArray, Array

ARROWS = 3  # at this many last points: more hide the path
# Whatever differs in colour also differs in dash or marker.
RUNS = {
    "plain": ("SGD", PLAIN, "6", "square"),
    "coco": ("with COCO", COCO, "solid", "circle"),
    "gaussian": ("Gaussian model", GAUSSIAN, "2 4 6 4", "triangle"),
}
AVERAGE = ("average of SGD's later half", "#111111", "1 2")
_ARROWS = {
    "noisy gradient": (PLAIN, "5 3"),
    "denoised gradient": (COCO, "solid"),
    "true gradient": (EXACT, "1 3"),
}
_CURVES = {"distance": "distance to minimum", "error": "error of the gradient"}
_REACH = 140.0  # contours are drawn that far: a run that diverges is stopped at 100
_HALF_WIDTH, _ASPECT = 12.5, 4 / 3
_WIDER = 1.6  # factor from one width of the plane to the next
_SMALLEST = 1e-12  # of what is drawn on a logarithmic axis

Columns = dict[str, dict[str, list[float]]]
"""Columns of numbers, by the name of the source that they fill."""


def contours(name: str) -> dict[str, list[list[float]]]:
    """Return lines of equal value in the plane of the first two coordinates, as xs and ys."""
    problem = OBJECTIVES[name].problem(0.0)
    # Finer near the origin, where the steps are.
    side = np.sinh(np.linspace(-6.0, 6.0, 121)) / np.sinh(6.0) * _REACH
    grid = np.zeros((121, 121, problem.dimension))
    grid[..., 0], grid[..., 1] = np.meshgrid(side, side)
    generator = contourpy.contour_generator(side, side, problem.value(grid))
    levels = 0.4 * 1.9 ** np.arange(16)
    lines = [np.asarray(line).T for level in levels for line in generator.lines(level)]
    return {"xs": [digits(x) for x, _ in lines], "ys": [digits(y) for _, y in lines]}


def curves(simulation: Simulation) -> Columns:
    """Return what grows with the steps, in full: paths, distances and errors."""
    content: Columns = {}
    for name, path in simulation.paths.items():
        content[f"{name}-path"] = _columns(x=path.points[:, 0], y=path.points[:, 1])
        content[f"{name}-error"] = _curve(path.errors, first=1)
    for name, distances in simulation.distances.items():
        content[f"{name}-distance"] = _curve(distances, first=0)
    return content


def frame(simulation: Simulation, k: int) -> Columns:
    """Return what else is shown after k steps with COCO: its last window.

    Arrows are the steps that gradients ask for at the last points of the window.
    """
    coco, step = simulation.paths["coco"], simulation.settings.step / simulation.problem.L
    window, solution = slice(max(0, k - simulation.settings.window), k), coco.solutions[k - 1]
    content: Columns = {}
    for name, gradients, count in (
        ("noisy gradient", coco.observed[window], ARROWS),
        ("denoised gradient", solution.gradients, ARROWS),
        ("true gradient", coco.exact[window], 1),
    ):
        at = coco.points[window][-count:]
        to = at - step * gradients[-count:]
        alpha = np.linspace(1.0, 0.3, ARROWS)[: len(at)][::-1]
        content[name] = _columns(x0=at[:, 0], y0=at[:, 1], x1=to[:, 0], y1=to[:, 1], alpha=alpha)
    weights = solution.weights[-1][::-1]
    return content | {"bars": _columns(age=np.arange(len(weights)), weight=weights)}


def legend() -> list[tuple[str, str, str]]:
    """Return label, colour and dash of what the plane shows; Bokeh's legend takes long to draw."""
    runs = [look[:3] for look in RUNS.values()]
    return [*runs, AVERAGE, *((f"→ {name}", *look) for name, look in _ARROWS.items())]


def axes(simulation: Simulation) -> dict[str, tuple[float, float]]:
    """Return where the axes begin and end: wide enough for every step of the run.

    They change in a few large steps, so that most runs leave them alone, which saves the browser
    half of its work.
    """
    paths = simulation.paths.values()
    far = max(float(np.abs(path.points[:, :2]).max()) for path in paths)
    strides = max(0, math.ceil(math.log(1.2 * far / _HALF_WIDTH, _WIDER)))
    half = _HALF_WIDTH * _WIDER**strides
    return {
        "x": (-half, half),
        "y": (-half / _ASPECT, half / _ASPECT),
        "step": (0.0, float(simulation.settings.steps)),
        "distance": _decades(np.concatenate([*simulation.distances.values()])),
        "error": _decades(np.concatenate([path.errors for path in paths])),
        "age": (-0.6, max(min(simulation.settings.window, simulation.settings.steps), 4) - 0.4),
    }


def _decades(values: Array) -> tuple[float, float]:
    """Return what a logarithmic axis spans: whole decades, and down to an even one."""
    largest = max(float(values.max()), _SMALLEST)
    least = max(float(values.min()), 1e-6 * largest)
    low, high = math.floor(math.log10(least) / 2) * 2, math.ceil(math.log10(largest))
    return 10.0**low, 10.0**high


def _curve(values: Array, *, first: int) -> dict[str, list[float]]:
    return _columns(x=np.arange(first, first + len(values)), y=np.maximum(values, _SMALLEST))


def _columns(**values: AnyArray) -> dict[str, list[float]]:
    return {name: digits(column) for name, column in values.items()}


def digits(values: AnyArray) -> list[float]:
    """Return numbers with as many digits as a picture can show."""
    return [float(f"{value:.4g}") for value in values]


def plots() -> list[figure]:
    """Return the plots, whose sources and axes the script of the page finds by name and fills."""
    names = ("x", "y", "step", *_CURVES, "age")
    ranges = {name: Range1d(0.1, 1.0, name=f"{name}-axis") for name in names}
    return [_plane(ranges), *(_curves(name, ranges) for name in _CURVES), _weights(ranges)]


def _source(name: str, columns: str) -> ColumnDataSource:
    return ColumnDataSource({column: [] for column in columns.split()}, name=name)


def _plane(ranges: dict[str, Range1d]) -> figure:
    """The plane: contours, the paths, and the steps that the gradients ask for."""
    plot = _figure(name="paths", aspect_ratio=_ASPECT, x_range=ranges["x"], y_range=ranges["y"])
    plot.grid.grid_line_color = None
    plot.multi_line("xs", "ys", source=_source("contours", "xs ys"), line_color="#c9c9c9")
    plot.scatter([0], [0], marker="x", size=11, line_width=2, color=EXACT)
    plot.scatter(*([each] for each in START), size=9, color="white", line_color=EXACT)
    for name, (_, colour, dash, marker) in RUNS.items():
        look = {"source": _source(f"{name}-path", "x y"), "color": colour, "alpha": 0.5}
        plot.line("x", "y", line_dash=dash, line_width=1.6, **look)
        plot.scatter("x", "y", marker=marker, size=4, **look)
    for name, (colour, pattern) in _ARROWS.items():
        plot.add_layout(
            Arrow(end=VeeHead(size=11, fill_color=colour, line_color=colour),
                  source=_source(name, "x0 y0 x1 y1 alpha"), x_start="x0", y_start="y0",
                  x_end="x1", y_end="y1", line_color=colour, line_dash=pattern, line_width=3,
                  line_alpha="alpha")
        )  # fmt: skip
    return plot


def _curves(name: str, ranges: dict[str, Range1d]) -> figure:
    """One number over the steps, on a logarithmic axis."""
    plot = _figure(
        name=name, height=200, y_axis_type="log", x_range=ranges["step"], y_range=ranges[name],
        y_axis_label=_CURVES[name], x_axis_label="steps",
    )  # fmt: skip
    looks = {run: look[:3] for run, look in RUNS.items()}
    if name == "distance":
        looks["average"] = AVERAGE
    for run, (_, colour, dash) in looks.items():
        source = _source(f"{run}-{name}", "x y")
        plot.line("x", "y", source=source, color=colour, line_dash=dash, line_width=2)
    plot.add_tools(HoverTool(tooltips=[("step", "@x"), (_CURVES[name], "@y{0.00e+0}")]))
    return plot


def _weights(ranges: dict[str, Range1d]) -> figure:
    """How the newest denoised residual is averaged from those in the window."""
    plot = _figure(
        name="weights", height=200, x_axis_label="steps ago", y_axis_label="weight",
        x_range=ranges["age"], y_range=Range1d(0, 1.02),
    )  # fmt: skip
    source = _source("bars", "age weight")
    plot.vbar("age", top="weight", width=0.8, source=source, color=COCO)
    plot.add_tools(HoverTool(tooltips=[("steps ago", "@age"), ("weight", "@weight{0.000}")]))
    return plot


def _figure(**options: Any) -> figure:
    plot = figure(
        sizing_mode="stretch_width",
        toolbar_location="right",
        tools="pan,box_zoom,reset,save",
        **options,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.grid.grid_line_color = "#e4e4e4"
    plot.outline_line_color = None
    plot.axis.minor_tick_line_color = None
    return plot
