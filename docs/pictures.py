"""Draw the pictures of the README and the site: `python docs/pictures.py [RESULTS]`.

The figures of the experiments come from the curves that `coco-denoiser reproduce` saved in
RESULTS, each if it is there, and are left as they are otherwise. The schematic is the paper's
Figure 1, redrawn; the examples draw their own; the others are computed here.
"""

import io
import runpy
import sys
from pathlib import Path

import numpy as np
import theory_pictures
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch
from PIL import Image
from scipy.special import erf

import coco_denoiser as coco
from coco_denoiser.paper.experiments import drawing
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.palette import COCO, EXACT, GAUSSIAN, PLAIN
from coco_denoiser.paper.experiments.results import load
from coco_denoiser.paper.explore.simulation import Settings, simulate
from coco_denoiser.paper.optimizers import SGD, GradientMean, run
from coco_denoiser.paper.problems import Quadratic
from coco_denoiser.typing import Float64

HERE = Path(__file__).parent
EXAMPLES = (
    "streaming_lasso",
    "portfolio",
    "frank_wolfe",
    "torch_logistic",
    "optax_logistic",
)


def schematic() -> Figure:
    """Draw how a stochastic optimizer works, and where COCO goes."""
    figure = Figure(figsize=(4.2, 3.4), layout="constrained")  # fits a phone
    above, below = figure.subplots(2, 1)
    _loop(above, "as usual", ["oracle", "optimizer"], ["$g_k$"])
    _loop(below, "with COCO", ["oracle", "COCO", "optimizer"], ["$g_k$", "$\\theta_k$"])
    return figure


def _loop(axes: Axes, title: str, boxes: list[str], between: list[str]) -> None:
    """Draw boxes from left to right, and the way back below them."""
    axes.set(xlim=(-0.6, 4.6), ylim=(-1.3, 0.75), aspect="equal")
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
                facecolor=COCO if ours else "white",
                edgecolor=COCO if ours else EXACT,
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


def gain() -> Figure:
    """Draw SGD on the paper's quadratic with and without COCO_16: a run, and the distance."""
    figure = Figure(figsize=(6.1, 2.8), layout="constrained")  # fits a phone
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    problem, steps = Quadratic.spaced(10, noise_std=10.0), 60
    for name, colour, dash, optimizer in (
        ("SGD", PLAIN, (0, (5, 2)), SGD(1.0)),
        ("SGD, denoised", COCO, "-", SGD(1.0, denoiser=coco.Denoiser(1.0, window=16))),
    ):
        paths = [
            run(optimizer, problem, np.full(10, 100.0), steps=steps, rng=rng)
            for rng in np.random.default_rng(0).spawn(50)
        ]
        left.plot(*paths[0][6:, [0, 1]].T, color=colour, linestyle=dash, linewidth=1.0, marker="o",
                  markersize=2.5)  # fmt: skip
        distance = np.linalg.norm(paths, axis=2)
        right.plot(distance.mean(axis=0), color=colour, linestyle=dash, label=name)
        right.plot(distance[0], color=colour, linewidth=0.8, alpha=0.5)
    left.plot(0, 0, marker="+", color=EXACT, markersize=16, markeredgewidth=2.5, zorder=9)
    left.set_aspect("equal")
    left.set_axis_off()
    left.set_title("Around the minimum (+)", loc="left", fontsize=11)
    right.set_xlabel("gradients computed", fontsize=11)
    right.set(ylim=(0, 80), xlim=(0, steps))
    right.set_title("Distance to the minimum", loc="left", fontsize=11)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=11)
    return figure


def ball() -> Figure:
    """Draw two gradients: their difference and the ball it belongs in, and how both move."""
    points = np.array([[0.0, 0.0], [2.0, 0.6]])
    noisy = np.array([[0.5, 0.9], [0.9, -0.9]])
    theta = coco.denoise(points, noisy, L=1.0)
    figure = Figure(figsize=(6.1, 3.0), layout="constrained")  # fits a phone
    left, right = figure.subplots(1, 2)
    apart = points[1] - points[0]
    radius = 0.5 * float(np.linalg.norm(apart))
    left.add_patch(Circle(tuple(0.5 * apart), radius, facecolor="#e3eef6", edgecolor=COCO))
    left.annotate("differences that\na gradient can have", 0.5 * apart + [0, 0.4], ha="center",
                  va="bottom", fontsize=8, color=COCO)  # fmt: skip
    for end, name, colour, down in (
        (noisy[1] - noisy[0], "$g_2-g_1$", PLAIN, 0),
        (theta[1] - theta[0], r"$\theta_2-\theta_1$", COCO, -10),
        (apart, "$L\\,(x_2-x_1)$", EXACT, 0),
    ):
        _arrow(left, np.zeros(2), end, colour, dashed=colour == PLAIN)
        left.annotate(name, end, xytext=(6, down), textcoords="offset points", va="center",
                      color=colour, fontsize=10)  # fmt: skip
    left.set(xlim=(-0.5, 2.9), ylim=(-2.1, 1.5), aspect="equal")
    left.set_title("The difference belongs in a ball", loc="left", fontsize=11)
    for i, name in enumerate("12"):
        _arrow(right, np.zeros(2), noisy[i], PLAIN, dashed=True)
        _arrow(right, np.zeros(2), theta[i], COCO, dashed=False)
        for end, letter, colour in ((noisy, "g", PLAIN), (theta, r"\theta", COCO)):
            right.annotate(f"${letter}_{name}$", end[i], xytext=(6, 0),
                           textcoords="offset points", va="center", color=colour)  # fmt: skip
    right.plot(*zip(*theta, strict=True), color=COCO, linewidth=0.8, linestyle=":")
    right.plot(*zip(*noisy, strict=True), color=PLAIN, linewidth=0.8, linestyle=":")
    mean = noisy.mean(axis=0)
    right.plot(*mean, marker="o", color=EXACT, markersize=4)
    right.annotate("mean: kept", mean, xytext=(8, 0), textcoords="offset points", va="center",
                   fontsize=8)  # fmt: skip
    right.set(xlim=(-0.3, 1.6), ylim=(-1.1, 1.1), aspect="equal")
    right.set_title("Both move by the same amount", loc="left", fontsize=11)
    for axes in (left, right):
        axes.set_axis_off()
    return figure


def window() -> Figure:
    """Draw eight gradients in the plane: true, as observed, and denoised."""
    rng = np.random.default_rng(3)
    points = rng.uniform(-1, 1, size=(8, 2))
    exact = points * [0.4, 1.0]
    noisy = exact + 0.45 * rng.normal(size=exact.shape)
    theta = coco.denoise(points, noisy, L=1.0)
    figure = Figure(figsize=(6.1, 3.3), layout="constrained")  # fits a phone
    for axes, gradients, colour, name in zip(
        figure.subplots(1, 2, sharex=True, sharey=True),
        (noisy, theta),
        (PLAIN, COCO),
        ("as observed", "denoised"),
        strict=True,
    ):
        for point, true, shown in zip(points, exact, gradients, strict=True):
            _arrow(axes, point, point + 0.7 * true, EXACT, dashed=False, width=0.8)
            _arrow(axes, point, point + 0.7 * shown, colour, dashed=colour == PLAIN)
        axes.plot(*points.T, "o", color=EXACT, markersize=3.5)
        error = np.sum((gradients - exact) ** 2)
        axes.set_title(f"{name}: squared error {error:.2f}", loc="left", fontsize=11)
        axes.set(xlim=(-1.8, 1.8), ylim=(-1.8, 1.8), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_color("#cccccc")
    return figure


def weights() -> Figure:
    """Draw the weights of each step's newest gradient along a run of SGD with COCO_16."""
    simulation = simulate(Settings(steps=60, window=16))
    table = np.full((60, 60), np.nan)
    for k, found in enumerate(simulation.paths["coco"].solutions, start=1):
        table[k - 1, max(0, k - 16) : k] = found.weights[-1]
    figure = Figure(figsize=(5.2, 4.0), layout="constrained")
    axes = figure.add_subplot()
    # The root spreads small weights, which are most of them, over the colours.
    image = axes.imshow(np.sqrt(table), cmap="Blues", vmin=0, vmax=1, extent=(0.5, 60.5, 60.5, 0.5))
    bar = figure.colorbar(image, ax=axes, shrink=0.8, label="weight")
    bar.set_ticks(np.sqrt([0, 0.05, 0.2, 0.5, 1]), labels=["0", "0.05", "0.2", "0.5", "1"])
    axes.set_xlabel("observation")
    axes.set_ylabel("step")
    axes.set_title("What each step's gradient averages (K = 16)", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def gaussian() -> Figure:
    """Draw how both models weigh one window, and how often the error bars hold the truth."""
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    problem, rng = Quadratic.spaced(10, noise_std=10.0), np.random.default_rng(0)
    x, seen = np.full(10, 100.0), []
    for _ in range(48):
        g = problem.oracle(x, rng)
        seen.append((x, g))
        x = x - 0.5 * g
    points, gradients = (np.array(part[-32:]) for part in zip(*seen, strict=True))
    for model, colour, dash, label in (
        (coco.Gaussian(), GAUSSIAN, "-", "Gaussian"),
        (coco.Cocoercive(1.0), COCO, "--", "COCO, L known"),
    ):
        row = coco.solve(points, gradients, model=model).weights[-1]
        left.plot(np.arange(31, -1, -1), row, dash, color=colour, label=label)
    left.axhline(0.0, color=EXACT, linewidth=0.8)
    left.invert_xaxis()
    left.set(xlabel="age of an observation, in steps", ylabel="weight in the newest gradient")
    left.set_title("One window, two models", loc="left", fontsize=10)
    left.legend(frameon=False)
    levels, errors = np.linspace(0.0, 3.0, 31), []
    for _ in range(400):
        z = np.cumsum(rng.standard_normal((16, 6)), axis=0) / np.sqrt(6)
        truth = z @ (0.3 * rng.standard_normal((6, 6)))
        found = coco.solve(z, truth + rng.standard_normal((16, 6)), model=coco.Gaussian())
        errors.append(np.abs(found.gradients[-1] - truth[-1]) / found.std[-1])
    shares = [np.mean(np.array(errors) <= level) for level in levels]
    right.plot(levels, shares, color=GAUSSIAN, label="as measured")
    right.plot(levels, erf(levels / np.sqrt(2.0)), "--", color=EXACT, label="normal law")
    right.set(xlabel="error, in standard errors", ylabel="share of the errors below")
    right.set_title("The error bars hold what they should", loc="left", fontsize=10)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def projection() -> Figure:
    """Draw SGD on (x - 1/2)^2 / 2 with x >= 1 in 200 coordinates, whose solution is 1."""
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    calls, fold = np.arange(1, 1001), coco.Denoiser(1.0, window=2, forget="fold")
    for name, colour, dash, optimizer in (
        ("SGD", PLAIN, (0, (5, 2)), SGD(0.5)),
        ("mean of gradients", EXACT, (0, (1, 1.5)), SGD(0.5, denoiser=GradientMean())),
        ("SGD, denoised", COCO, "-", SGD(0.5, denoiser=fold)),
    ):
        rng = np.random.default_rng(0)
        path = run(
            optimizer,
            lambda x, rng=rng: x - 0.5 + rng.standard_normal(x.shape),
            np.full(200, 1.0),
            steps=1000,
            rng=rng,
            project=lambda x: np.maximum(x, 1.0),
        )[1:]
        average = (np.cumsum(path, axis=0) / calls[:, None]).mean(axis=1) - 1.0
        right.plot(calls, average, color=colour, linestyle=dash, label=name)
        if name != "mean of gradients":
            weights = np.full(path.size, 1 / path.size)
            bins = np.linspace(1.0, 2.5, 46)
            left.hist(path.ravel(), bins, weights=weights, color=colour, alpha=0.6, label=name)
            left.axvline(path.mean(), color=colour, linewidth=1.6, linestyle=(0, (5, 2)))
    left.set(xlabel="iterate (dashed: its mean)", ylabel="share of the iterates", yscale="log")
    left.set_title("Projection moves noise to one side", loc="left", fontsize=10)
    right.set(xlabel="iterates averaged", xscale="log", yscale="log")
    right.set_title("Error of the averaged iterates", loc="left", fontsize=10)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def minimum() -> Figure:
    """Draw the suboptimality of `minimize` and of the average over the calls, and the limit."""
    h, budgets, runs = np.array([1.0, 0.1, 0.03]), np.geomspace(60, 2000, 6).astype(int), 24
    found = np.empty((2, len(budgets), runs))
    for i, calls in enumerate(budgets):
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            result = coco.minimize(lambda x, r=rng: h * x + r.normal(size=3), [30.0] * 3, calls)
            path = result._path  # noqa: SLF001 - not in the interface
            for j, x in enumerate((path.unit * path.average()[1], result.x)):
                found[j, i, seed] = 0.5 * h @ x**2
    figure = Figure(figsize=(4.6, 2.8), layout="constrained")
    axes = figure.subplots()
    for values, name, colour in zip(found, ("average", "minimize"), (PLAIN, COCO), strict=True):
        axes.loglog(budgets, values.mean(axis=1), "o-", color=colour, label=name)
    axes.loglog(budgets, (1 / h).sum() / (2 * budgets), "--", color=EXACT, label="limit")
    axes.set(xlabel="calls", ylabel="mean suboptimality")
    axes.legend(frameon=False)
    return figure


def _arrow(
    axes: Axes, start: Float64, end: Float64, colour: str, *, dashed: bool, width: float = 1.6
) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops={**style, "linestyle": "--" if dashed else "-"})


def gallery(results: Path) -> None:
    """Draw the figure of every experiment whose curves were saved, in few colours and small."""
    (HERE / "figures").mkdir(exist_ok=True)
    for name, experiment in EXPERIMENTS.items():
        entry = load(experiment, results)
        if entry is None:
            continue
        figure = drawing.draw(entry.experiment.panels(entry.curves), entry.curves)
        # The column of the site is 7 inches wide at 100 dots; a single panel need not fill it.
        save_small(figure, name, dpi=80 if figure.get_figwidth() > 6 else 110)


def examples() -> None:
    """Run the examples that draw, for the gallery."""
    for name in EXAMPLES:
        draw = runpy.run_path(str(HERE.parent / "examples" / f"{name}.py"))["main"]
        path = HERE / "figures" / f"example-{name}.png"
        draw(["--output", str(path)])
        _save(path, path.stem, dpi=150)


def save_small(figure: Figure, name: str, *, dpi: int) -> None:
    """Save a figure in few colours."""
    picture = io.BytesIO()
    figure.savefig(picture, dpi=dpi)
    _save(picture, name, dpi=dpi)


def _save(picture: io.BytesIO | Path, name: str, *, dpi: int) -> None:
    with Image.open(picture) as image:
        few = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(HERE / "figures" / f"{name}.png", optimize=True, dpi=(dpi, dpi))


def main(results: Path | None) -> None:
    """Draw all, the curves only from what was saved."""
    if results is not None:
        gallery(results)
    for name, draw in (
        ("gain", gain),
        ("schematic", schematic),
        ("idea-ball", ball),
        ("idea-window", window),
        ("idea-weights", weights),
        ("gaussian", gaussian),
        ("projection", projection),
        ("minimize", minimum),
    ):
        draw().savefig(HERE / f"{name}.png", dpi=110)
    for name, draw in theory_pictures.PICTURES.items():
        save_small(draw(), name, dpi=110)
    examples()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
