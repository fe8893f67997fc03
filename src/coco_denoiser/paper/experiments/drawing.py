"""Panels as a printed figure, by Matplotlib, without its global state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.palette import COCO, companion_styles, companions, styles
from coco_denoiser.paper.experiments.panels import Kind, Panel

_MARKERS = "os^Dvp"


def draw(panels: Sequence[Panel], curves: Curves) -> Figure:
    """Draw panels in rows, with one legend where they show the same series."""
    rows = in_rows(panels)
    columns = max(map(len, rows))
    figure = Figure(figsize=(max(4.8, 3.9 * columns), 0.5 + 2.9 * len(rows)), layout="constrained")
    grid = figure.add_gridspec(len(rows), columns)
    legends: list[tuple[Axes, Sequence[str]]] = []
    for r, row in enumerate(rows):
        for c, panel in enumerate(row):
            last = c == len(row) - 1
            place = grid[r, c:] if last else grid[r, c]
            if panel.kind is Kind.SPACE:
                _space(figure.add_subplot(place, projection="3d"), panel, curves)
                continue
            axes = figure.add_subplot(place)
            series = panel.series or curves.series(panel.name)
            _panel(axes, panel, curves, series)
            # What the panel to the left, or below, says already: labels, and those of ticks, which
            # are most of a figure of many panels.
            left, below = row[max(c - 1, 0) : c], [*rows, []][r + 1][c : c + 1]
            axes.set_ylabel("" if any(other.y == panel.y for other in left) else panel.y)
            axes.set_xlabel("" if any(other.x == panel.x for other in below) else panel.x)
            axes.tick_params(labelleft=not any(_alike(panel, other) for other in left))
            axes.tick_params(labelbottom=not any(_alike(panel, other) for other in below))
            legends.append((axes, series))
    _legends(figure, legends)
    # Laid out once, not again for every format.
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
    figure.set_layout_engine("none")
    return figure


def _alike(a: Panel, b: Panel) -> bool:
    """Return whether two panels have the same axes."""
    return a.y_range is not None and all(
        getattr(a, name) == getattr(b, name) for name in ("x", "y", "y_range", "log", "kind")
    )


def _legends(figure: Figure, panels: list[tuple[Axes, Sequence[str]]]) -> None:
    """Make one legend below, if one panel shows all series, and otherwise one for each kind."""
    fullest, names = max(panels, key=lambda panel: len(panel[1]))
    if len(panels) > 1 and all(set(series) <= set(names) for _, series in panels):
        handles, labels = fullest.get_legend_handles_labels()
        # About eight letters to an inch, and a handle is as wide as seven of them.
        rows = 1 + sum(len(label) + 7 for label in labels) // int(8 * figure.get_figwidth())
        columns = -(-len(labels) // rows)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        return
    for i, (axes, series) in enumerate(panels):
        labels = axes.get_legend_handles_labels()[1]
        many = len(labels) > 5  # which leave no room inside, but below the last panel
        if series in (others for _, others in (panels[i + 1 :] if many else panels[:i])):
            continue
        look: dict[str, Any] = {"frameon": False, "fontsize": 8}
        if many:  # three names of 15 letters are wider than a panel
            columns = 2 if max(map(len, labels)) > 14 else 4 if len(labels) > 12 else 3
            look |= {"ncols": columns, "loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
        axes.legend(**look)


def in_rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Split panels where a row starts."""
    rows: list[list[Panel]] = []
    for panel in panels:
        if panel.new_row or not rows:
            rows.append([])
        rows[-1].append(panel)
    return rows


def _panel(axes: Axes, panel: Panel, curves: Curves, series: Sequence[str]) -> None:
    twins = companions(series, panel.references)
    for i, (name, style) in enumerate(styles(series, panel.references).items()):
        x, mean, sem = curves[panel.name, name]
        y, sem = np.abs(mean) if panel.magnitude else mean, np.nan_to_num(sem)
        reference = name in panel.references
        if panel.kind is Kind.MARKERS and not reference:
            marker: dict[str, Any] = {"marker": _MARKERS[i % len(_MARKERS)], "capsize": 2}
            marker |= {"markersize": 7, "markerfacecolor": "none"} if i % 2 else {"markersize": 5}
            axes.errorbar(x, y, sem, color=style.colour, linestyle="none", label=name, **marker)
            continue
        if np.any(sem > 0):
            axes.fill_between(x, y - sem, y + sem, color=style.colour, alpha=0.2, linewidth=0)
        dashes: Any = (0, style.dash) if style.dash else "-"
        label, width = f"_{name}" if name in twins else name, 1.0 if reference else 1.6
        axes.plot(x, y, color=style.colour, linestyle=dashes, linewidth=width, label=label)
    for what, look in companion_styles(series, panel.references).items():
        axes.plot([], [], color=look.colour, linestyle=(0, look.dash), linewidth=1.0, label=what)
    _axes(axes, panel)


def _axes(axes: Axes, panel: Panel) -> None:
    """Set scales and ticks: plain numbers on a log axis of few decades, where powers say little."""
    for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if letter not in panel.log:
            continue
        axes.set(**{f"{letter}scale": "log"})
        low, high = axis.get_data_interval()
        if high < 200 * low:
            many = high > 8 * low
            axis.set_major_locator(
                LogLocator(subs=(1, 2, 5)) if many else MaxNLocator(6, steps=(1, 2, 5, 10))
            )
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
    if "x" not in panel.log and panel.kind is Kind.MARKERS:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif "x" not in panel.log:
        axes.locator_params(axis="x", nbins=7)  # more would touch, if they are negative
    axes.set_title(panel.heading, loc="left", fontsize=10)
    if panel.y_range is not None:
        axes.set_ylim(*panel.y_range)
    axes.margins(x=0.02 if panel.kind is Kind.LINES else 0.05)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _space(axes: Any, panel: Panel, curves: Curves) -> None:
    """Draw labelled points in space, larger in front, with a line down to the floor."""
    x, y, z = (curve.mean for curve in curves.panel(panel.name))
    floor = min(0.0, float(z.min())) * 1.1
    for i in range(x.size):
        axes.plot([x[i]] * 2, [y[i]] * 2, [floor, z[i]], color="#bbbbbb", linewidth=0.8)
        axes.text(x[i], y[i], z[i], f"  $x_{i + 1}$", fontsize=9)
    sizes = 15 + 70 * (x - x.min()) / max(float(np.ptp(x)), 1e-300)
    axes.scatter(x, y, z, s=sizes, color=COCO, depthshade=False)
    axes.set_title(panel.heading, loc="left", fontsize=10)
    axes.set(xlabel=panel.x, ylabel=panel.y, zlabel="z")
