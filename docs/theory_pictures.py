"""The pictures of docs/theory.md, drawn by `python docs/pictures.py`."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtr

import coco_denoiser as coco
from coco_denoiser.paper.experiments.palette import COCO, EXACT, PLAIN
from coco_denoiser.typing import Float64

SHADES = {2: "#7fb2dd", 4: "#3d87c4", 8: COCO, 16: "#003a66"}  # COCO_K darkens as K grows


def _axes(xlabel: str, ylabel: str, title: str) -> tuple[Figure, Axes]:
    """Return a picture that can be read on a phone."""
    figure = Figure(figsize=(5.2, 3.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(visible=True, color="#e2e2e2", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _cone(x: Float64) -> Float64:
    """Return the gradient of half the squared distance to {x[0] <= -|x[1:]|}, for x[0] = 0."""
    radius = np.linalg.norm(x, axis=1)
    half = 0.5 * x
    half[:, 0] = 0.5 * radius
    return half


def root() -> Figure:
    """Draw the error, variance and bias of the gradient at the centre of the star."""
    figure, axes = _axes(
        "points K", "share of the oracle's error", "The gradient at the centre, d = 3"
    )
    rng = np.random.default_rng(0)
    sizes = np.array([2, 3, 5, 9, 17, 33, 65, 129, 257])
    limits = []
    for K in sizes:
        noise = rng.normal(size=(20000, K))
        noise[:, 1:] = -np.sort(-noise[:, 1:], axis=1)
        estimate = np.max(np.cumsum(noise, axis=1) / np.arange(1, K + 1), axis=1)
        limits.append(((2 + np.mean(estimate**2)) / 3, (2 + np.var(estimate)) / 3))
    for values, colour, dash, label in zip(
        np.transpose(limits), (PLAIN, COCO), ("-", "--"), ("its error", "its variance"), strict=True
    ):
        axes.plot(sizes, values, dash, color=colour, label=label)
    measured = [2, 3, 5, 9, 17, 33]
    shares = np.array([_star(K, rng) for K in measured])
    axes.plot(measured, shares[:, 0], "o", color=PLAIN, markersize=5)
    axes.plot(measured, shares[:, 1], "o", color=COCO, markersize=5)
    axes.plot(measured, shares[:, 2], "s:", color=EXACT, markersize=4, label="mean of all K errors")
    axes.axhline(1.0, color=EXACT, linewidth=0.8)
    axes.set(xscale="log", ylim=(0, 2.2))
    axes.set_xticks([2, 5, 10, 30, 100, 250], labels=["2", "5", "10", "30", "100", "250"])
    axes.legend(frameon=False)
    return figure


def _star(K: int, rng: np.random.Generator, runs: int = 1000) -> tuple[float, float, float]:
    """Return the error and variance at the centre, and the mean error, over the oracle's."""
    angles = 2 * np.pi * np.arange(K - 1) / (K - 1)
    points = np.zeros((K, 3))
    points[1:, 1:] = 100 * np.stack((np.cos(angles), np.sin(angles)), axis=1)
    exact = _cone(points)
    noise = rng.normal(size=(runs, K, 3))
    error = np.stack([coco.denoise(points, exact + each, L=1.0) for each in noise]) - exact
    return (
        float(np.mean(np.sum(error[:, 0] ** 2, axis=1)) / 3),
        float(np.var(error[:, 0], axis=0).sum() / 3),
        float(np.mean(error**2)),
    )


def covariance() -> Figure:
    """Draw the errors of two gradients on a line, observed and denoised, and their ellipses."""
    figure = Figure(figsize=(6.4, 3.5), layout="constrained")
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(1500, 2))
    points = np.array([[0.0], [1.5]])
    for axes, L, title in zip(
        figure.subplots(1, 2, sharey=True), (1.0, 0.3), ("right L", "L three times too small"),
        strict=True,
    ):  # fmt: skip
        theta = np.stack([coco.denoise(points, points + w[:, None], L=L)[:, 0] for w in noise])
        for errors, colour, label in (
            (noise, PLAIN, "observed"),
            (theta - points[:, 0], COCO, "denoised"),
        ):
            axes.plot(*errors[:400].T, ".", color=colour, markersize=2.5, alpha=0.5)
            values, vectors = np.linalg.eigh(np.cov(errors.T))
            turn = np.linspace(0, 2 * np.pi, 100)
            circle = np.stack((np.cos(turn), np.sin(turn)))
            ellipse = 2 * vectors @ (np.sqrt(values)[:, None] * circle)
            axes.plot(*(ellipse.T + errors.mean(axis=0)).T, color=colour, linewidth=2, label=label)
        axes.set(xlim=(-3.4, 3.4), ylim=(-3.4, 3.4), aspect="equal", xlabel="error of gradient 1")
        axes.set_title(title, loc="left", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("error of gradient 2")
    figure.axes[0].legend(frameon=False, loc="upper left", fontsize=9)
    return figure


def floor() -> Figure:
    """Draw the mean error of eight gradients between its floor and its ceiling."""
    figure, axes = _axes(
        "distance of the points from their mean, in units of σ/L",
        "share of the oracle's error",
        "Eight gradients, d = 3",
    )
    rng = np.random.default_rng(2)
    K, d = 8, 3
    shape = rng.normal(size=(K, d))
    shape -= shape.mean(axis=0)
    shape /= np.sqrt(np.mean(np.sum(shape**2, axis=1)))
    curvature = np.linspace(1, 1 / 3, d)
    sizes, errors = np.geomspace(0.05, 50, 16), []
    for size in sizes:
        exact = size * shape * curvature
        found = [
            np.mean((coco.denoise(size * shape, exact + w, L=1.0) - exact) ** 2)
            for w in rng.normal(size=(300, K, d))
        ]
        errors.append(np.mean(found))
    fine = np.geomspace(0.05, 50, 200)
    axes.plot(fine, np.minimum(1, 1 / K + fine**2 / d), "--", color=PLAIN, label="ceiling")
    axes.plot(sizes, errors, "o-", color=COCO, markersize=4, label="COCO, measured")
    axes.axhline(1 / K, color=EXACT, linestyle=":", label="floor: averaging, 1/K")
    axes.set(xscale="log", ylim=(0, 1.08))
    axes.legend(frameon=False)
    return figure


def right_l() -> Figure:
    """Draw the error of two gradients on a line against the L that COCO is told."""
    figure, axes = _axes(
        "L that COCO is told / true L", "share of the oracle's error", "Two points on a line"
    )
    u = np.geomspace(0.1, 10, 400)
    for distance, colour, dash in ((0.5, SHADES[2], "-"), (1.5, SHADES[8], "--"), (5, EXACT, ":")):
        excess = _clipped(u * distance, distance)
        share = 0.5 + 0.25 * excess
        axes.plot(u, share, dash, color=colour, label=f"{distance:g} σ/L apart", linewidth=1.8)
        axes.plot(1, 0.5 + 0.25 * _clipped(np.array([distance]), distance), "o", color=colour)
    axes.axvline(1.0, color=EXACT, linewidth=0.8)
    axes.set(xscale="log", ylim=(0.4, 1.3))
    axes.set_xticks([0.1, 0.3, 1, 3, 10], labels=["0.1", "0.3", "1", "3", "10"])
    axes.legend(frameon=False)
    return figure


def _clipped(upper: Float64, true: float) -> Float64:
    """Return E (clip(z, 0, upper) - true)^2 for z normal around true with variance 2."""
    s = np.sqrt(2.0)
    low, high = -true / s, (upper - true) / s

    def density(t: Float64 | float) -> Float64:
        return np.asarray(np.exp(-0.5 * np.square(t)) / np.sqrt(2 * np.pi))

    inside = 2 * (ndtr(high) - ndtr(low) - high * density(high) + low * density(low))
    return np.asarray(true**2 * ndtr(low) + (upper - true) ** 2 * ndtr(-high) + inside)


def guarantee() -> Figure:
    """Draw the distance of SGD and of SGD with COCO_4 to the minimum, and the guarantees."""
    figure, axes = _axes("step", "distance to the minimum", "SGD with COCO_4, d = 10, step 0.1/L")
    K, d, step, steps, runs = 4, 10, 0.1, 200, 40
    curvature, rng = np.linspace(1, 1 / 3, d), np.random.default_rng(3)
    mu = 1 / 3
    kappa = step * (K - 1) / 2
    k = np.arange(steps + 1)
    forgotten = (1 - step * mu) ** k * 100 * np.sqrt(d)
    axes.plot(k, forgotten + np.sqrt(K * d) / mu, ":", color=EXACT, label="guarantee, any window")
    sharper = np.sqrt(d / K) / (mu - kappa * (1 + mu))
    axes.axhline(sharper, color="#7c4dbd", linestyle="--", label="in the end, short steps")
    noise = rng.normal(size=(runs, steps, d))
    for denoised, colour, label in ((False, PLAIN, "SGD"), (True, COCO, "SGD with COCO_4")):
        distances = np.zeros(steps + 1)
        for run in noise:
            x = np.full(d, 100.0)
            denoiser = coco.Denoiser(L=1.0, window=K)
            for i in k:
                distances[i] += np.linalg.norm(x) / runs
                if i < steps:
                    g = curvature * x + run[i]
                    x = x - step * (denoiser(x, g) if denoised else g)
        dash = "-" if denoised else (0, (5, 2))
        axes.plot(k, distances, linestyle=dash, color=colour, label=label)
    axes.set(yscale="log")
    axes.legend(frameon=False)
    return figure


def gain() -> Figure:
    """Draw what COCO_K takes off the distance of SGD, by step, in the limit of dimensions."""
    figure, axes = _axes(
        "step × L", "distance, relative to SGD's", "Quadratic, curvatures from L/3 to L"
    )
    a = np.linspace(1, 1 / 3, 8)
    grid = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0])
    for K, colour in SHADES.items():
        found = []
        for step in grid:
            squares = _orthogonal(a, float(step), K, int(max(30, 8 / step)))
            found.append(np.sqrt(squares.sum() / np.sum(step / (2 * a - step * a**2))))
        axes.plot(grid, found, "-", color=colour, marker=".", label=f"COCO_{K}")
        law = np.average(a * (K**2 - 1) / (6 * K) - (a - 0.5) * (K - 1) / 4, weights=1 / a)
        short = np.array([0.0, min(0.4, 0.35 / law)])
        axes.plot(short, 1 - short * law, "--", color=colour, linewidth=1)
        axes.plot(1.0, _measured(a, K), "o", color=colour, markerfacecolor="white", markersize=7)
    axes.set(xlim=(0, 1.05), ylim=(0.4, 1.02))
    axes.legend(frameon=False, loc="lower left")
    return figure


def _orthogonal(a: Float64, step: float, K: int, steps: int) -> Float64:
    """Return the mean square of x in the end, if each step's noise is a new direction."""
    x = np.zeros((len(a), steps))
    denoiser = coco.Denoiser(L=1.0, window=K)
    for k in range(steps):
        g = a[:, None] * x
        g[:, k] += 1.0
        x = x - step * denoiser(x, g)
    return np.asarray(np.sum(x**2, axis=1))


def _measured(a: Float64, K: int) -> float:
    """Return the same ratio at the step 1/L in as many dimensions as curvatures."""
    rng = np.random.default_rng(K)
    total = 0.0
    for _ in range(200):
        x, denoiser = np.zeros(len(a)), coco.Denoiser(L=1.0, window=K)
        for k in range(48):
            x = x - denoiser(x, a * x + rng.normal(size=len(a)))
            total += np.sum(x**2) * (k >= 32)
    return float(np.sqrt(total / (200 * 16) / np.sum(1 / (2 * a - a**2))))


def steps() -> Figure:
    """Draw how far from the minimum SGD and COCO_K with L = 1/step end, by step."""
    figure, axes = _axes(
        "step × curvature", "distance after 200 steps, in σ / curvature",
        "L = 1/step: usable steps end at K + 1",
    )  # fmt: skip
    grid = np.unique(np.concatenate((np.linspace(0.1, 2, 12), np.linspace(2, 10, 41))))
    for K in (1, 2, 4, 8):
        found = []
        for step in grid:
            rng = np.random.default_rng(4)
            x, denoiser = np.ones(3), coco.Denoiser(L=1 / step, window=max(K, 2))
            squares = 0.0
            for k in range(200):
                g = x + rng.normal(size=3)
                x = x - step * (denoiser(x, g) if K > 1 else g)
                if not np.abs(x).max() < 1e6:
                    squares = np.inf
                    break
                squares += np.sum(x**2) * (k >= 150) / 50
            found.append(np.sqrt(squares))
        colour, label = (PLAIN, "SGD") if K == 1 else (SHADES[K], f"COCO_{K}")
        axes.plot(grid, found, "--" if K == 1 else "-", color=colour, label=label)
        axes.axvline(K + 1, color=colour, linewidth=0.8, linestyle=":")
    axes.set(yscale="log", ylim=(0.1, 1000), xlim=(0, 10))
    axes.legend(frameon=False, loc="lower right", ncols=2)
    return figure


def support() -> Figure:
    """Draw how often a proximal step from the solution has the right zeros, by window."""
    figure, axes = _axes(
        "noise σ / margin of strict complementarity", "right zeros after one step",
        "Lasso, 50 coordinates that should be zero",
    )  # fmt: skip
    grid, rng = np.linspace(0.1, 4, 16), np.random.default_rng(5)
    raw = (2 * ndtr(1 / grid) - 1) ** 50
    axes.plot(grid, raw, "--", color=PLAIN, label="SGD")
    for K in (4, 16):
        found = []
        for sigma in grid:
            points = 0.002 * rng.normal(size=(K, 50))
            noise = sigma * rng.normal(size=(100, K, 50))
            theta = [coco.denoise(points, points + w, L=1.0)[-1] for w in noise]
            found.append(np.mean(np.abs(points[-1] - np.array(theta)).max(axis=1) <= 1))
        axes.plot(grid, found, "o-", color=SHADES[K], markersize=4, label=f"COCO_{K}")
    axes.legend(frameon=False)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "theory-root": root,
    "theory-covariance": covariance,
    "theory-floor": floor,
    "theory-right-l": right_l,
    "theory-guarantee": guarantee,
    "theory-gain": gain,
    "theory-steps": steps,
    "theory-support": support,
}
