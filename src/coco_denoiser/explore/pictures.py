"""The four pictures of the page: each has sources that are filled anew at every frame."""

from typing import Any

import numpy as np
from bokeh.models import Arrow, ColumnDataSource, HoverTool, Range1d, VeeHead
from bokeh.plotting import figure

from coco_denoiser.explore.simulation import HESSIAN, START, Path, Simulation
from coco_denoiser.palette import COCO, EXACT, PLAIN
from coco_denoiser.typing import Array

ARROWS = 3  # at so many last points: more hide the path
_HALF_WIDTH, _ASPECT = 12.5, 4 / 3
_SMALLEST = 1e-12  # of what is drawn on a logarithmic axis


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


class Paths:
    """The plane: contours, both paths, and the steps that noisy and denoised gradients ask for."""

    def __init__(self) -> None:
        self.plot = plot = _figure(
            name="paths",
            aspect_ratio=_ASPECT,
            x_range=Range1d(-_HALF_WIDTH, _HALF_WIDTH),
            y_range=Range1d(-_HALF_WIDTH / _ASPECT, _HALF_WIDTH / _ASPECT),
        )
        plot.grid.grid_line_color = None
        xs, ys = _contours()
        plot.multi_line(xs, ys, line_color="#c9c9c9", line_width=1)
        plot.scatter([0], [0], marker="x", size=11, line_width=2, color=EXACT)
        plot.scatter(
            [START[0]], [START[1]], marker="circle", size=9, color="white", line_color=EXACT
        )
        self._paths = {}
        for name, colour, dash, marker in (
            ("plain", PLAIN, "dashed", "square"),
            ("coco", COCO, "solid", "circle"),
        ):
            self._paths[name] = source = ColumnDataSource({"x": [], "y": []}, name=f"{name}-path")
            label = "with COCO" if name == "coco" else "alone"
            plot.line("x", "y", source=source, color=colour, line_dash=dash, line_width=1.6,
                      alpha=0.5, legend_label=label)  # fmt: skip
            plot.scatter("x", "y", source=source, marker=marker, size=4, color=colour,
                         alpha=0.5, legend_label=label)  # fmt: skip
        self._arrows = {}
        for name, colour, pattern in (
            ("noisy gradient", PLAIN, "5 3"),
            ("denoised gradient", COCO, "solid"),
            ("true gradient", EXACT, "1 3"),
        ):
            self._arrows[name] = source = ColumnDataSource(
                {"x0": [], "y0": [], "x1": [], "y1": [], "alpha": []}
            )
            head = VeeHead(size=11, fill_color=colour, line_color=colour)
            plot.add_layout(
                Arrow(end=head, source=source, x_start="x0", y_start="y0", x_end="x1", y_end="y1",
                      line_color=colour, line_dash=pattern, line_width=3, line_alpha="alpha")
            )  # fmt: skip
            plot.line([np.nan], [np.nan], color=colour, line_dash=pattern, line_width=3,
                      legend_label=f"→ {name}")  # fmt: skip
        (legend,) = plot.legend
        legend.update(
            location="left", ncols=2, border_line_color=None, label_text_font_size="12px",
            spacing=0, padding=0, margin=4, glyph_height=14, label_height=16,
        )  # fmt: skip
        plot.add_layout(legend, "below")

    def draw(self, simulation: Simulation, k: int, chosen: slice, denoised: Array) -> None:
        """Show k steps, and arrows at the last of the points of the window `chosen`."""
        far = max(path.distances.max() for path in (simulation.plain, simulation.coco))
        half = max(_HALF_WIDTH, 1.3 * far)
        self.plot.x_range.update(start=-half, end=half)
        self.plot.y_range.update(start=-half / _ASPECT, end=half / _ASPECT)
        for name, path in (("plain", simulation.plain), ("coco", simulation.coco)):
            x, y = path.points[: k + 1].T
            self._paths[name].data = {"x": x, "y": y}
        step = simulation.settings.step / simulation.problem.L
        coco = simulation.coco
        for name, gradients, count in (
            ("noisy gradient", coco.observed[chosen], ARROWS),
            ("denoised gradient", denoised, ARROWS),
            ("true gradient", coco.exact[chosen], 1),
        ):
            at = coco.points[chosen][-count:]
            to = at - step * gradients[-count:]
            self._arrows[name].data = {
                "x0": at[:, 0],
                "y0": at[:, 1],
                "x1": to[:, 0],
                "y1": to[:, 1],
                "alpha": np.linspace(1.0, 0.3, ARROWS)[: len(at)][::-1],
            }


def _contours() -> tuple[list[Array], list[Array]]:
    """Return ellipses of the objective, wide enough for a run that diverges."""
    values, vectors = np.linalg.eigh(HESSIAN)
    angle = np.linspace(0.0, 2 * np.pi, 73)
    circle = np.array([np.cos(angle), np.sin(angle)]) / np.sqrt(values)[:, None]
    rings = [radius * (vectors @ circle) for radius in 1.0 * 1.45 ** np.arange(16)]
    return [ring[0] for ring in rings], [ring[1] for ring in rings]


class Curve:
    """One number over the steps, alone and with COCO, on a logarithmic axis."""

    def __init__(self, name: str, label: str) -> None:
        self.plot = plot = _figure(
            name=name, height=200, y_axis_type="log", x_range=Range1d(0, 1), y_axis_label=label,
            x_axis_label="steps",
        )  # fmt: skip
        self._sources = {}
        for key, colour, dash in (("alone", PLAIN, "dashed"), ("with COCO", COCO, "solid")):
            self._sources[key] = source = ColumnDataSource({"x": [], "y": []})
            plot.line("x", "y", source=source, color=colour, line_dash=dash, line_width=2)
        plot.add_tools(HoverTool(tooltips=[("step", "@x"), (label, "@y{0.00e+0}")]))

    def draw(self, simulation: Simulation, plain: Array, coco: Array, first: int) -> None:
        """Show both curves, whose first entries belong to step `first`."""
        self.plot.x_range.end = simulation.settings.steps
        for source, values in zip(self._sources.values(), (plain, coco), strict=True):
            source.data = {
                "x": np.arange(first, first + len(values)),
                "y": np.maximum(values, _SMALLEST),
            }


class Curves:
    """Distance to the minimum, and error of the gradient that was used."""

    def __init__(self) -> None:
        self.distance = Curve("distance", "distance to minimum")
        self.error = Curve("error", "error of the gradient")

    def draw(self, simulation: Simulation, k: int) -> None:
        """Show what was reached in k steps."""
        both: tuple[Path, Path] = simulation.plain, simulation.coco
        self.distance.draw(simulation, both[0].distances[: k + 1], both[1].distances[: k + 1], 0)
        self.error.draw(simulation, both[0].errors[:k], both[1].errors[:k], 1)


class Weights:
    """How the newest denoised residual is averaged from those in the window."""

    def __init__(self) -> None:
        self.plot = plot = _figure(
            name="weights", height=200, x_axis_label="steps ago", y_axis_label="weight",
            x_range=Range1d(-0.6, 1), y_range=Range1d(0, 1.02),
        )  # fmt: skip
        self._source = ColumnDataSource({"age": [], "weight": []})
        plot.vbar("age", top="weight", width=0.8, source=self._source, color=COCO)
        plot.add_tools(HoverTool(tooltips=[("steps ago", "@age"), ("weight", "@weight{0.000}")]))

    def draw(self, weights: Array) -> None:
        """Show one row of W, the newest observation first."""
        self.plot.x_range.end = max(len(weights), 4) - 0.4
        self.plot.y_range.end = 1.05 * weights.max()
        self._source.data = {"age": np.arange(len(weights)), "weight": weights[::-1]}
