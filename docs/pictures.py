"""Draw the README's pictures: `python docs/pictures.py RESULTS`, after `coco-denoiser reproduce`.

The curves come from RESULTS/synthetic-sgd; the schematic is the paper's Figure 1, redrawn.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.experiment import Result
from coco_denoiser.experiments.panels import styles
from coco_denoiser.experiments.results import load

HERE = Path(__file__).parent


def curves(result: Result) -> Figure:
    """Draw SGD against SGD+COCO_K, each curve named at its end."""
    figure = Figure(figsize=(7.2, 3.9), layout="constrained")
    axes = figure.add_subplot()
    names = result.curves.series("distance")
    looks = styles(names, frozenset())
    for name in names:
        curve, style = result.curves["distance", name], looks[name]
        dashes = (0, style.dash) if style.dash else "-"
        low, high = curve.mean - curve.sem, curve.mean + curve.sem
        axes.fill_between(curve.x, low, high, color=style.colour, alpha=0.2, linewidth=0)
        axes.plot(curve.x, curve.mean, color=style.colour, linestyle=dashes, linewidth=1.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, result.config.steps)
    axes.set_xlabel("oracle calls k")
    axes.set_ylabel("distance to the minimiser, ‖xₖ − x*‖")
    axes.set_title("Same noise, same step size: SGD with and without COCO", loc="left", fontsize=11)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    ends = {name: float(result.curves["distance", name].mean[-1]) for name in names}
    _name_ends(axes, ends, {name: looks[name].colour for name in names})
    return figure


def _name_ends(axes: Axes, ends: dict[str, float], colours: dict[str, str]) -> None:
    """Name each curve at its right end, pushed apart where the ends crowd (axes coordinates)."""
    low, high = np.log(axes.get_ylim())
    names = sorted(ends, key=lambda name: ends[name])
    heights = np.array([(np.log(ends[name]) - low) / (high - low) for name in names])
    spread = heights.copy()
    for i in range(1, len(spread)):
        spread[i] = max(spread[i], spread[i - 1] + 0.065)
    spread += heights.mean() - spread.mean()
    for name, anchor, height in zip(names, heights, spread, strict=True):
        axes.annotate(
            name,
            xy=(1.0, anchor),
            xytext=(1.05, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colours[name],
            va="center",
            fontsize=9,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colours[name], "linewidth": 0.7},
        )


def schematic() -> Figure:
    """Draw (a) how a stochastic optimizer works, and (b) where COCO goes."""
    figure = Figure(figsize=(7.2, 1.75), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    _loop(left, "(a)  as usual", ["oracle", "optimizer"], ["$g_k$"])
    _loop(right, "(b)  with COCO", ["oracle", "COCO", "optimizer"], ["$g_k$", "$\\theta_k$"])
    return figure


def _loop(axes: Axes, title: str, boxes: list[str], between: list[str]) -> None:
    """Draw boxes from left to right, and the way back below them."""
    axes.set(xlim=(-0.6, 2 * len(boxes) - 1.4), ylim=(-1.3, 0.75), aspect="equal")
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=10)
    arrow = {"arrowstyle": "-|>", "color": "#333333", "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}
    for i, name in enumerate(boxes):
        ours = name == "COCO"
        axes.add_patch(
            FancyBboxPatch(
                (2 * i - 0.5, -0.3),
                1.0,
                0.6,
                boxstyle="round,pad=0.05,rounding_size=0.1",
                facecolor="#21708c" if ours else "white",
                edgecolor="#21708c" if ours else "#333333",
            )
        )
        colour = "white" if ours else "#111111"
        axes.text(2 * i, 0, name, ha="center", va="center", color=colour, fontsize=9)
    for i, label in enumerate(between):
        axes.annotate("", xy=(2 * i + 1.45, 0), xytext=(2 * i + 0.55, 0), arrowprops=arrow)
        axes.text(2 * i + 1, 0.12, label, ha="center", va="bottom", fontsize=10)
    last = 2 * len(boxes) - 2
    axes.plot([last, last, 0], [-0.35, -0.85, -0.85], color="#333333", linewidth=1.1)
    axes.annotate("", xy=(0, -0.35), xytext=(0, -0.86), arrowprops=arrow)
    axes.text(last / 2, -0.92, "$x_{k+1}$", ha="center", va="top", fontsize=10)


def main(results: Path) -> None:
    """Draw both, from what was saved."""
    entry = load(EXPERIMENTS["synthetic-sgd"], results)
    if entry is None:
        sys.exit(f"{results} holds no synthetic-sgd: run coco-denoiser reproduce synthetic-sgd")
    curves(entry.result).savefig(HERE / "sgd.png", dpi=110)
    schematic().savefig(HERE / "schematic.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
