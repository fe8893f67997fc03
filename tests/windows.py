"""Windows to denoise: the hard ones by name, and random ones for hypothesis."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from coco_denoiser.typing import Float64


class Case(NamedTuple):
    """Points and noisy gradients, (K, d) each, and the curvature bound to denoise them with."""

    name: str
    points: Float64
    gradients: Float64
    L: float


def curvatures(d: int) -> Float64:
    """Eigenvalues of the quadratic whose gradients are observed: from 1 down to 1/3."""
    return np.linspace(1.0, 1.0 / 3.0, d) if d > 1 else np.ones(1)


def noisy(points: Float64, rng: np.random.Generator, sigma: float = 10.0) -> Float64:
    """Gradients of the quadratic at the points, with Gaussian noise."""
    return points * curvatures(points.shape[1]) + sigma * rng.normal(size=points.shape)


def box(rng: np.random.Generator, K: int, d: int, half: float = 10.0) -> tuple[Float64, Float64]:
    """Points uniform in a box."""
    points = rng.uniform(-half, half, (K, d))
    return points, noisy(points, rng)


def path(rng: np.random.Generator, K: int, d: int, step: float = 0.7) -> tuple[Float64, Float64]:
    """K points that SGD visits one after another, from its start or from later on."""
    x = np.full(d, 100.0)
    points, gradients = [], []
    skip = int(rng.integers(0, 30))
    for _ in range(skip + K):
        g = noisy(x[None], rng)[0]
        points.append(x)
        gradients.append(g)
        x = x - step * g
    return np.array(points[skip:]), np.array(gradients[skip:])


def hard(rng: np.random.Generator, K: int, d: int) -> Iterator[Case]:
    """Everything that has ever made a solver of this problem fail."""
    for half in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0):
        yield Case(f"box of {half}", *box(rng, K, d, half), 1.0)
    for step in (0.7, 0.05, 1e-4):
        yield Case(f"path with step {step}", *path(rng, K, d, step), 1.0)
    for factor in (0.1, 1e-4, 10.0):
        yield Case(f"L off by {factor}", *path(rng, K, d), factor)
    for apart in (1e-3, 1e-6, 1e-9, 1e-12):
        points, gradients = box(rng, K, d)
        half = K // 2
        points[half : 2 * half] = points[:half] + apart * rng.normal(size=(half, d))
        yield Case(f"near-duplicates at {apart}", points, gradients, 1.0)
    points, _ = box(rng, K, d)
    points = points[rng.integers(0, max(K // 2, 1), K)]
    yield Case("duplicates in groups", points, noisy(points, rng), 1.0)
    for jitter in (0.0, 1e-8, 1e-4):
        direction = rng.normal(size=d)
        direction /= np.linalg.norm(direction)
        points = rng.uniform(-10, 10, K)[:, None] * direction + jitter * rng.normal(size=(K, d))
        yield Case(f"collinear up to {jitter}", points, noisy(points, rng), 1.0)
    points = rng.integers(-2, 3, (K, d)).astype(float)
    yield Case("grid", points, noisy(points, rng), 1.0)
    points = 1e-3 * rng.normal(size=(K, d))
    points[K // 2 :] += 100.0
    yield Case("two clusters", points, noisy(points, rng), 1.0)
    for factor in (0.5, 0.8):
        steps = rng.normal(size=(K, d)) * factor ** np.arange(K)[:, None]
        points = np.cumsum(steps, axis=0)
        yield Case(f"steps shrinking by {factor}", points, noisy(points, rng), 1.0)
    for scale in (1e8, 1e-8):
        points, gradients = path(rng, K, d)
        yield Case(f"scaled by {scale}", points * scale, gradients * scale, 1.0)
    points, gradients = box(rng, K, d)
    yield Case("no noise", points, noisy(points, rng, 0.0), 1.0)
    yield Case("equal gradients", points, np.tile(gradients[0], (K, 1)), 1.0)
    outlier = gradients.copy()
    outlier[0] *= 1e6
    yield Case("one outlier", points, outlier, 1.0)


@st.composite
def windows(draw: st.DrawFn, max_points: int = 8) -> tuple[Float64, Float64, float, float]:
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
