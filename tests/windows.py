"""Random windows for hypothesis, of any shape, scale and arrangement of points."""

from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from coco_denoiser.problem import Problem, from_observations
from coco_denoiser.typing import Float64

# Points, gradients, L and mu.
Window: TypeAlias = tuple[Float64, Float64, float, float]


def reduced(points: Float64, gradients: Float64, **options: Any) -> Problem:
    """The reduced problem of a window, with L = 1, mu = 0 and equal variances unless given."""
    given: dict[str, Any] = {"L": 1.0, "mu": 0.0, "variances": np.ones(len(points))} | options
    return from_observations(points, gradients, **given)[0]


def plain(residuals: Float64, bounds: Float64, precisions: Float64 | None = None) -> Problem:
    """A problem from its parts, without a covariance."""
    n = np.ones(len(bounds)) if precisions is None else precisions
    return Problem(residuals, bounds, n, np.ones(residuals.shape[1]))


@st.composite
def windows(draw: st.DrawFn, max_points: int = 8) -> Window:
    """Points, gradients, L and mu: any shape, scale, arrangement of points and tightness."""
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
    return points, gradients, L, mu


def size(points: Float64, gradients: Float64, L: float) -> float:
    """The scale that rounding is relative to: the spread of g and of L x."""
    return float(np.ptp(gradients, axis=0).max() + L * np.ptp(points, axis=0).max()) + 1e-300
