"""Random windows for hypothesis, of any shape, scale and arrangement of points."""

import numpy as np
from hypothesis import strategies as st

from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64
from tests.families import Case


def distances(x: Float64) -> Float64:
    """The distance of every two rows, (K, K)."""
    return np.asarray(np.linalg.norm(x[:, None] - x, axis=2))


def plain(residuals: Float64, bounds: Float64, precisions: Float64 | None = None) -> Problem:
    """A problem from its parts, without a covariance."""
    n = np.ones(len(bounds)) if precisions is None else precisions
    return Problem(residuals, bounds, n, np.ones(residuals.shape[1]))


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
