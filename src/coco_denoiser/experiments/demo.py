"""The paper's synthetic problem: SGD against SGD whose gradients are denoised first.

    minimise  f(x) = 1/2 x' diag(1, …, 1/3) x      from      g(x) = f'(x) + sigma·noise

Every method starts at the same point, takes the step 1/L and meets the same noise, so what
differs between two curves is the denoiser alone.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coco_denoiser import Denoiser, optimizers
from coco_denoiser._version import __version__
from coco_denoiser.experiments import ExperimentError
from coco_denoiser.experiments.output import prepare_folder, write_whole
from coco_denoiser.optimizers import SGD
from coco_denoiser.problems import Quadratic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE = "demo.png"


@dataclass(frozen=True)
class Config:
    """What is run; the defaults are the paper's."""

    runs: int = 100
    seed: int = 0
    steps: int = 32
    dimension: int = 10
    sigma: float = 10.0
    start: float = 100.0
    windows: tuple[int, ...] = (2, 4, 8, 16)


@dataclass(frozen=True)
class Result:
    """Distances to the minimiser, `series name -> (runs, steps + 1)`, in the order of drawing."""

    config: Config
    distances: dict[str, NDArray[np.float64]]

    def mean(self, name: str) -> NDArray[np.float64]:
        """Mean over the runs, for each step."""
        return np.asarray(self.distances[name].mean(axis=0))

    def sem(self, name: str) -> NDArray[np.float64]:
        """Standard error of that mean; not a number for a single run, which cannot tell."""
        runs, steps = self.distances[name].shape
        if runs == 1:
            return np.full(steps, np.nan)
        return np.asarray(self.distances[name].std(axis=0, ddof=1) / np.sqrt(runs))

    def ratio(self, name: str) -> float:
        """Mean distance over the last half of the steps, as a share of plain SGD's."""
        half = self.config.steps // 2 + 1
        return float(self.mean(name)[half:].mean() / self.mean("SGD")[half:].mean())


def demonstrate(config: Config, folder: Path) -> tuple[Result, Path]:
    """Run, draw, and save the picture in `folder`; refuse before the work, not after it."""
    require_matplotlib()
    prepare_folder(folder)
    result = run(config)
    path = folder / PICTURE
    # The seed, the version and the parameters travel inside the picture.
    about = {"Software": f"coco-denoiser {__version__}", "Description": str(asdict(config))}
    figure = plot(result)
    write_whole(path, lambda file: figure.savefig(file, format="png", dpi=160, metadata=about))
    return result, path


def run(config: Config) -> Result:
    """Run SGD, then SGD+COCO_K for each window K, on the same noise."""
    problem = Quadratic.spaced(config.dimension, noise_std=config.sigma)
    start = np.full(config.dimension, config.start)

    def distances(denoiser: Denoiser | None = None) -> NDArray[np.float64]:
        sgd = SGD(1 / problem.L, denoiser=denoiser)
        out = np.empty((config.runs, config.steps + 1))
        for number in range(config.runs):
            rng = np.random.default_rng([config.seed, number])  # the same for every method
            path = optimizers.run(sgd, problem, start, steps=config.steps, rng=rng)
            out[number] = np.linalg.norm(path.iterates - problem.minimizer, axis=1)
        return out

    denoisers = {f"SGD+COCO_{K}": Denoiser(L=problem.L, window=K) for K in config.windows}
    denoised = {name: distances(denoiser) for name, denoiser in denoisers.items()}
    return Result(config, {"SGD": distances()} | denoised)


def table(result: Result) -> str:
    """Mean ± standard error at a few steps, and the share of SGD's distance in the last half."""
    config = result.config
    shown = sorted({0, *(config.steps // part for part in (8, 4, 2, 1))})
    head = ["", *(f"step {k}" for k in shown), "last half / SGD"]
    rows = [head]
    for name in result.distances:
        mean, sem = result.mean(name), result.sem(name)
        bars = [f" ± {error:.1f}" if np.isfinite(error) else "" for error in sem]
        cells = [f"{mean[k]:.1f}{bars[k]}" for k in shown]
        rows.append([name, *cells, f"{result.ratio(name):.2f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
    what = "one run" if config.runs == 1 else f"mean ± standard error over {config.runs} runs"
    title = f"Distance to the minimiser, ||x_k - x*||: {what}, seed {config.seed}"
    return "\n".join([title, "", *lines])


def require_matplotlib() -> None:
    """Say which extra is missing, rather than which module."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ExperimentError(
            "drawing needs matplotlib: pip install 'coco-denoiser[experiments]'"
        ) from error


# Dark to light and solid to dotted in one order, so that the curves stay apart in print.
_COLOURS = ("#111111", "#3b1c8c", "#21708c", "#1fa187", "#7aa61e", "#c98f00")
_DASHES = ("-", (0, (7, 2)), (0, (4, 1.5, 1, 1.5)), (0, (3, 1.5)), (0, (1, 1.2)), "-")


def plot(result: Result) -> "Figure":
    """Draw the mean distance over oracle calls on a log axis, with standard-error bands."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    steps = np.arange(result.config.steps + 1)
    ends = {}
    for position, name in enumerate(result.distances):
        mean, sem = result.mean(name), np.nan_to_num(result.sem(name))
        colour = _COLOURS[position % len(_COLOURS)]
        dashes = _DASHES[position % len(_DASHES)]
        axes.fill_between(steps, mean - sem, mean + sem, color=colour, alpha=0.18, linewidth=0)
        axes.plot(steps, mean, color=colour, linestyle=dashes, linewidth=1.8, label=name)
        ends[name] = (float(mean[-1]), colour)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, steps[-1])
    axes.set_xlabel("oracle calls, k")
    axes.set_ylabel("distance to the minimiser,  $\\|x_k - x^\\star\\|$")
    axes.set_title("Same noise, same step: SGD with and without COCO", loc="left", fontsize=11)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    _label_ends(axes, ends)
    return figure


def _label_ends(axes: "Axes", ends: dict[str, tuple[float, str]], gap: float = 0.055) -> None:
    """Name each curve at its right end, pushed apart where the ends crowd (axes coordinates)."""
    low, high = np.log(axes.get_ylim())
    names = sorted(ends, key=lambda name: ends[name][0])
    heights = np.array([(np.log(ends[name][0]) - low) / (high - low) for name in names])
    spread = heights.copy()
    for i in range(1, len(spread)):
        spread[i] = max(spread[i], spread[i - 1] + gap)
    spread += heights.mean() - spread.mean()
    for name, anchor, height in zip(names, heights, spread, strict=True):
        axes.annotate(
            name,
            xy=(1.0, anchor),
            xytext=(1.05, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=ends[name][1],
            va="center",
            fontsize=9,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": ends[name][1], "linewidth": 0.7},
        )
