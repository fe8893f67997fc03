"""The pictures of the page: what is in a frame, as data, and the plots that show it.

A frame is everything that changes with the step shown; axes change with the settings alone, so
that they stay where they are while a run plays. Both are plain numbers by the name of the source
or the axis they fill, by the server or, in a page without one, by a script.
"""

import json
import math
from typing import Any

import numpy as np
from bokeh.models import Arrow, ColumnDataSource, CustomJS, HoverTool, Range1d, TapTool, VeeHead
from bokeh.plotting import figure

from coco_denoiser import Solution
from coco_denoiser.explore.simulation import START, Simulation
from coco_denoiser.palette import COCO, EXACT, GAUSSIAN, PLAIN
from coco_denoiser.typing import Array

ARROWS = 3  # at so many last points: more hide the path
# Whatever differs in colour also differs in dash or marker.
RUNS = {
    "plain": ("alone", PLAIN, "6", "square"),
    "coco": ("with COCO", COCO, "solid", "circle"),
    "gaussian": ("Gaussian model", GAUSSIAN, "2 4 6 4", "triangle"),
}
_ARROWS = {
    "noisy gradient": (PLAIN, "5 3"),
    "denoised gradient": (COCO, "solid"),
    "true gradient": (EXACT, "1 3"),
}
COLOURS = {"plain": PLAIN, "coco": COCO, "gaussian": GAUSSIAN}  # of a template
_DISC = ("allowed by a pair", COCO, "4 3")
_CURVES = {"distance": "distance to minimum", "error": "error of the gradient"}
_HALF_WIDTH, _ASPECT = 12.5, 4 / 3
_WIDER = 1.6  # factor from one width of the plane to the next
_SMALLEST = 1e-12  # of what is drawn on a logarithmic axis
NO_DISC: dict[str, list[float]] = {"x": [], "y": [], "radius": []}

Frame = dict[str, dict[str, Any]]
Scene = dict[str, dict[str, Any]]
"""What changes in the pictures and the words, as sources, axes and texts by name."""

_SHOW_SCENE = """
const {sources, axes, texts} = JSON.parse(cb_obj.tags[0]);
const model = name => cb_obj.document.get_model_by_name(name);
for (const [name, [start, end]] of Object.entries(axes)) model(name + "-axis").setv({start, end});
for (const [name, columns] of Object.entries(sources)) model(name).data = columns;
for (const [id, html] of Object.entries(texts)) document.getElementById(id).innerHTML = html;
"""

# The point of the window that is pointed at or touched, and the disc that belongs to it.
_SHOW_BALL = """
// A finger that is lifted points at nothing any more: what it touched remains.
const under = cb_data && cb_data.index ? cb_data.index.indices : [];
const found = under.length ? under : points.selected.indices;
const of = name => found.length ? [points.data[name][found[0]]] : [];
ball.data = {x: of("ball_x"), y: of("ball_y"), radius: of("ball_radius")};
"""


def frame(simulation: Simulation, k: int) -> tuple[Frame, int, Solution]:
    """Return what is shown after k steps, the steps that COCO took by then, and its last answer."""
    taken = min(k, len(simulation.coco.observed))  # a run may have been stopped
    chosen, found = simulation.window(taken)
    content: Frame = {}
    for name, path in simulation.paths.items():
        content[f"{name}-path"] = _columns("x y", path.points[: k + 1])
        content[f"{name}-distance"] = _curve(path.distances[: k + 1], first=0)
        content[f"{name}-error"] = _curve(path.errors[:k], first=1)
    content |= _steps(simulation, chosen, found.gradients)
    content["points"] = _balls(simulation, chosen, found.gradients)
    weights = found.weights[-1][::-1]
    content["bars"] = {"age": np.arange(len(weights), dtype=float), "weight": weights}
    return content, taken, found


def legend() -> str:
    """Return the legend of the plane, as HTML: Bokeh's own takes long to draw."""
    lines = [(label, colour, dash) for label, colour, dash, _ in RUNS.values()]
    lines += [(f"→ {name}", *look) for name, look in _ARROWS.items()]
    return "".join(
        '<span><svg width="26" height="8" aria-hidden="true"><path d="M0 4h26" stroke-width="2.5" '
        f'stroke="{colour}" stroke-dasharray="{"none" if dash == "solid" else dash}"/></svg> '
        f"{label}</span> "
        for label, colour, dash in (*lines, _DISC)
    )


def axes(simulation: Simulation) -> dict[str, tuple[float, float]]:
    """Return where the axes begin and end: wide enough for every step of the run.

    They change in a few large steps, so that most runs leave them alone, which saves the browser
    half of its work.
    """
    paths = simulation.paths.values()
    far = max(float(np.abs(path.points[:, :2]).max()) for path in paths)
    strides = max(0, math.ceil(math.log(1.2 * far / _HALF_WIDTH, _WIDER)))
    half = _HALF_WIDTH * _WIDER**strides
    distances = np.concatenate([path.distances for path in paths])
    errors = np.concatenate([path.errors for path in paths])
    return {
        "x": (-half, half),
        "y": (-half / _ASPECT, half / _ASPECT),
        "step": (0.0, float(simulation.settings.steps)),
        "distance": _decades(distances),
        "error": _decades(errors),
        "age": (-0.6, max(min(simulation.settings.window, simulation.settings.steps), 4) - 0.4),
    }


def _decades(values: Array) -> tuple[float, float]:
    """Return what a logarithmic axis spans: whole decades, and down to an even one."""
    largest = max(float(values.max()), _SMALLEST)
    least = max(float(values.min()), 1e-6 * largest)
    low, high = math.floor(math.log10(least) / 2) * 2, math.ceil(math.log10(largest))
    return 10.0**low, 10.0**high


def _columns(names: str, rows: Array) -> dict[str, Array]:
    return {name: rows[:, number] for number, name in enumerate(names.split())}


def _curve(values: Array, *, first: int) -> dict[str, Array]:
    return {
        "x": np.arange(first, first + len(values), dtype=float),
        "y": np.maximum(values, _SMALLEST),
    }


def _steps(simulation: Simulation, chosen: slice, denoised: Array) -> Frame:
    """Return, as arrows, the steps that gradients ask for at the last points of a window."""
    coco, step = simulation.coco, simulation.settings.step / simulation.problem.L
    content = {}
    for name, gradients, count in (
        ("noisy gradient", coco.observed[chosen], ARROWS),
        ("denoised gradient", denoised, ARROWS),
        ("true gradient", coco.exact[chosen], 1),
    ):
        at = coco.points[chosen][-count:]
        to = at - step * gradients[-count:]
        content[name] = {
            **_columns("x0 y0", at),
            **_columns("x1 y1", to),
            "alpha": np.linspace(1.0, 0.3, ARROWS)[: len(at)][::-1],
        }
    return content


def _balls(simulation: Simulation, chosen: slice, denoised: Array) -> dict[str, Array]:
    """Return the points of a window, each with the disc it allows the end of the newest step.

    With c = (L + mu) / 2 and r = (L - mu) / 2, the pair of a point x and the newest point y
    wants the denoised gradient at y within r ||y - x|| of theta + c (y - x).
    """
    settings, problem = simulation.settings, simulation.problem
    upper = settings.L * problem.L
    lower = settings.mu * upper
    points = simulation.coco.points[chosen]
    apart = points[-1] - points
    step = settings.step / problem.L
    centres = points[-1] - step * (denoised + (upper + lower) / 2 * apart)
    radii = step * (upper - lower) / 2 * np.linalg.norm(apart, axis=1)
    return {
        **_columns("x y", points[:-1]),
        **_columns("ball_x ball_y", centres[:-1]),
        "ball_radius": radii[:-1],
    }


class Pictures:
    """The plots, and the sources and axes that they are fed by, by name."""

    def __init__(self) -> None:
        # Nothing is synced: what the browser draws is of no interest to the server.
        self.sources: dict[str, ColumnDataSource] = {}
        for name, columns in (("contours", "xs ys"), ("ball", "x y radius")):
            self._source(name, columns)
        self.ranges = {
            name: Range1d(0.1, 1.0, name=f"{name}-axis", syncable=False)
            for name in ("x", "y", "step", *_CURVES, "age")
        }
        self.plots = {"paths": self._paths()}
        for name, label in _CURVES.items():
            self.plots[name] = self._curves(name, label)
        self.plots["weights"] = self._weights()
        self.plots["paths"].js_on_change("tags", CustomJS(code=_SHOW_SCENE))

    def fill(self, scene: Scene) -> None:
        """Show a scene at once, which works as long as no browser has the document."""
        for name, columns in scene["sources"].items():
            self.sources[name].data = columns
        for name, (start, end) in scene["axes"].items():
            self.ranges[name].update(start=start, end=end)

    def send(self, scene: Scene) -> None:
        """Show a scene in the browser: in one message, so that each plot is drawn once."""
        self.plots["paths"].tags = [json.dumps(scene, default=np.ndarray.tolist)]

    def _source(self, name: str, columns: str) -> ColumnDataSource:
        made = ColumnDataSource(
            {column: [] for column in columns.split()}, name=name, syncable=False
        )
        self.sources[name] = made
        return made

    def _paths(self) -> figure:
        """The plane: contours, both paths, and the steps that the gradients ask for."""
        plot = _figure(
            name="paths", aspect_ratio=_ASPECT, x_range=self.ranges["x"], y_range=self.ranges["y"]
        )
        plot.grid.grid_line_color = None
        plot.multi_line("xs", "ys", source=self.sources["contours"], line_color="#c9c9c9")
        plot.scatter([0], [0], marker="x", size=11, line_width=2, color=EXACT)
        plot.scatter(*([each] for each in START), marker="circle", size=9, color="white",
                     line_color=EXACT)  # fmt: skip
        for name, (_, colour, dash, marker) in RUNS.items():
            source = self._source(f"{name}-path", "x y")
            plot.line("x", "y", source=source, color=colour, line_dash=dash, line_width=1.6,
                      alpha=0.5)  # fmt: skip
            plot.scatter("x", "y", source=source, marker=marker, size=4, color=colour,
                         alpha=0.5)  # fmt: skip
        for name, (colour, pattern) in _ARROWS.items():
            source = self._source(name, "x0 y0 x1 y1 alpha")
            head = VeeHead(size=11, fill_color=colour, line_color=colour)
            plot.add_layout(
                Arrow(end=head, source=source, x_start="x0", y_start="y0", x_end="x1", y_end="y1",
                      line_color=colour, line_dash=pattern, line_width=3, line_alpha="alpha")
            )  # fmt: skip
        self._pointing(plot)
        return plot

    def _pointing(self, plot: figure) -> None:
        """Show the disc of the point of the window that the mouse is on, or that is touched."""
        plot.circle("x", "y", radius="radius", source=self.sources["ball"], name="ball-disc",
                    fill_color=COCO, fill_alpha=0.12, line_color=_DISC[1],
                    line_dash=_DISC[2])  # fmt: skip
        source = self._source("points", "x y ball_x ball_y ball_radius")
        points = plot.scatter("x", "y", source=source, size=14, fill_alpha=0.0, line_alpha=0.0,
                              hover_line_alpha=1.0, hover_line_color=COCO, hover_fill_alpha=0.0,
                              selection_line_alpha=1.0, selection_line_color=COCO,
                              nonselection_fill_alpha=0.0, nonselection_line_alpha=0.0)  # fmt: skip
        show = CustomJS(args={"points": source, "ball": self.sources["ball"]}, code=_SHOW_BALL)
        plot.add_tools(
            HoverTool(renderers=[points], tooltips=None, callback=show),
            TapTool(renderers=[points], mode="replace"),
        )
        source.selected.js_on_change("indices", show)

    def _curves(self, name: str, label: str) -> figure:
        """One number over the steps, alone and with COCO, on a logarithmic axis."""
        plot = _figure(
            name=name, height=200, y_axis_type="log", x_range=self.ranges["step"],
            y_range=self.ranges[name], y_axis_label=label, x_axis_label="steps",
        )  # fmt: skip
        for run, (_, colour, dash, _) in RUNS.items():
            source = self._source(f"{run}-{name}", "x y")
            plot.line("x", "y", source=source, color=colour, line_dash=dash, line_width=2)
        plot.add_tools(HoverTool(tooltips=[("step", "@x"), (label, "@y{0.00e+0}")]))
        return plot

    def _weights(self) -> figure:
        """How the newest denoised residual is averaged from those in the window."""
        plot = _figure(
            name="weights", height=200, x_axis_label="steps ago", y_axis_label="weight",
            x_range=self.ranges["age"], y_range=Range1d(0, 1.02),
        )  # fmt: skip
        source = self._source("bars", "age weight")
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
