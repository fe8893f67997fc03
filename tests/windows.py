"""Random windows for hypothesis, and what a stream must answer, from batches alone."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Array, Float64
from tests.families import Case, modelled


def distances(x: Array) -> Float64:
    """The distance of every two rows, (K, K)."""
    return np.asarray(np.linalg.norm(x[:, None] - x, axis=2), np.float64)


def plain(residuals: Float64, bounds: Float64, precisions: Float64 | None = None) -> Problem:
    """A problem from its parts, without a covariance."""
    n = np.ones(len(bounds)) if precisions is None else precisions
    return Problem(residuals, bounds, n, np.ones(residuals.shape[1]))


def by(method: str, problem: Problem, **options: Any) -> tuple[Float64, int]:
    """The multipliers that a method finds, and how many steps it takes."""
    found = solvers.solve(problem, method=method, **options)
    return found.multipliers, found.iterations


def average(multipliers: Float64, problem: Problem) -> tuple[Float64, Float64]:
    """W and phi of finite multipliers, drawn together until every pair fits."""
    found = kernels.average(problem, multipliers, 1e-12)
    return found.weights, found.phi


@st.composite
def windows(draw: st.DrawFn, max_points: int = 8) -> Case:
    """A window of any shape, scale, arrangement of points, tightness and noise."""
    K, d = draw(st.integers(2, max_points)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = 10.0 ** draw(st.integers(-4, 4))
    points = spread * rng.normal(size=(K, d))
    arrangement = draw(st.sampled_from(["free", "repeated", "collinear", "grid"]))
    if arrangement == "repeated":
        points = points[rng.integers(0, max(K // 2, 1), K)]
    elif arrangement == "collinear":
        points = points[:, :1] * rng.normal(size=(1, d))
    elif arrangement == "grid":
        points = spread * np.rint(points / spread)
    L = 10.0 ** draw(st.integers(-3, 3))
    mu = draw(st.sampled_from([-L, 0.0, L / 3]))
    noise = L * spread * draw(st.sampled_from([0.0, 0.1, 1.0, 10.0]))
    gradients = L * points * np.linspace(1.0, 1.0 / 3.0, d) + noise * rng.normal(size=(K, d))
    variances = rng.uniform(0.1, 10.0, K) if draw(st.booleans()) else None
    return Case(points, gradients, L, mu, variances)


def batches(
    points: Float64, gradients: Float64, v: Float64, window: int | None, **options: Any
) -> list[tuple[Float64, coco.Solution]]:
    """The gradients in the window at every step of a stream, and the solution of their batch.

    Options are those of `solve`, lists for one value a step, and `forget`.
    """
    folds, found = options.pop("forget", "drop") == "fold", []
    held: list[tuple[Any, ...]] = []

    def solved(some: list[tuple[Any, ...]], k: int) -> tuple[Float64, coco.Solution, Any]:
        """The gradients, the solution, and its last one as what stands for all of them."""
        x, g, n = (np.array(column) for column in zip(*some, strict=True))
        now = {key: each[k] if isinstance(each, list) else each for key, each in options.items()}
        solution = coco.solve(x, g, noise_variance=n, **modelled(**now))
        return g, solution, (x[-1], solution.gradients[-1], float(solution.weights[-1] ** 2 @ n))

    for k, new in enumerate(zip(points, gradients, v, strict=True)):
        if len(held) == window:
            if folds:
                held[1] = solved(held[:2], k)[2]
            held.pop(0)
        held.append(new)
        g, solution, past = solved(held, k)
        found.append((g, solution))
        if folds and len(held) == window == 2:  # the answer is the past from now on
            held = [past]
    return found
