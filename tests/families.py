"""Families of windows, by name: what a solver of this problem meets, and what has made it fail.

    FAMILIES[name](rng, K, d) -> Case

Every family draws a new window of K points in d dimensions at each call.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from coco_denoiser.typing import Float64

Generator: TypeAlias = np.random.Generator


class Case(NamedTuple):
    """Points and noisy gradients, (K, d) each, and what to denoise them with."""

    name: str
    points: Float64
    gradients: Float64
    L: float
    mu: float = 0.0
    noise_variance: Float64 | None = None
    covariance: Float64 | None = None


Family: TypeAlias = Callable[[Generator, int, int], Case]


def curvatures(d: int) -> Float64:
    """Eigenvalues of the quadratic whose gradients are observed: from 1 down to 1/3."""
    return np.linspace(1.0, 1.0 / 3.0, d) if d > 1 else np.ones(1)


def noisy(points: Float64, rng: Generator, sigma: float = 10.0) -> Float64:
    """Gradients of the quadratic at the points, with Gaussian noise."""
    return points * curvatures(points.shape[1]) + sigma * rng.normal(size=points.shape)


def box(rng: Generator, K: int, d: int, half: float = 10.0) -> tuple[Float64, Float64]:
    """Points uniform in a box."""
    points = rng.uniform(-half, half, (K, d))
    return points, noisy(points, rng)


def path(rng: Generator, K: int, d: int, step: float = 0.7) -> tuple[Float64, Float64]:
    """K points that SGD visits one after another, from its start or from later on."""
    skip = int(rng.integers(0, 30))
    points, gradients = sgd(rng, skip + K, d, step, start=100.0)
    return points[skip:], gradients[skip:]


def sgd(
    rng: Generator, steps: int, d: int, step: float = 0.7, *, start: float, sigma: float = 10.0
) -> tuple[Float64, Float64]:
    """The points of SGD from its start on, and the gradients there."""
    x, points, gradients = np.full(d, start), [], []
    for _ in range(steps):
        points.append(x)
        gradients.append(noisy(x[None], rng, sigma)[0])
        x = x - step * gradients[-1]
    return np.array(points), np.array(gradients)


def decades(rng: Generator, low: float, high: float, size: int | None = None) -> Float64:
    """Numbers between 10^low and 10^high, uniform in their logarithm."""
    return np.asarray(10.0 ** rng.uniform(low, high, size))


def _observed(name: str, points: Float64, rng: Generator, sigma: float = 10.0) -> Case:
    return Case(name, points, noisy(points, rng, sigma), 1.0)


def _box(rng: Generator, K: int, d: int, *, half: float) -> Case:
    return Case(f"box of {half}", *box(rng, K, d, half), 1.0)


def _path(rng: Generator, K: int, d: int, *, step: float) -> Case:
    return Case(f"path with step {step}", *path(rng, K, d, step), 1.0)


def _wrong(rng: Generator, K: int, d: int, *, factor: float) -> Case:
    return Case(f"L off by {factor}", *path(rng, K, d), factor)


def _wrong_without_noise(rng: Generator, K: int, d: int) -> Case:
    points = rng.normal(size=(K, d))
    return Case(
        "L too small, no noise", points, noisy(points, rng, 0.0), float(decades(rng, -6, 0))
    )


def _curved(rng: Generator, K: int, d: int, *, name: str, mu: float) -> Case:
    return Case(name, *(path(rng, K, d) if rng.integers(2) else box(rng, K, d)), 1.0, mu)


def _tight(rng: Generator, K: int, d: int, *, rotated: bool) -> Case:
    """Curvature exactly at a bound in every direction, and noise of any size, or none."""
    L, mu = 1.0, float(rng.choice([0.0, -1.0, 1.0 / 3.0]))
    H = np.diag(rng.choice([mu, L], d))
    if rotated:
        Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        H = Q @ H @ Q.T
    points = rng.normal(size=(K, d))
    noise = decades(rng, -14, 0) if rng.integers(4) else 0.0
    gradients = points @ H + noise * rng.normal(size=(K, d))
    return Case("rotated tight" if rotated else "tight", points, gradients, L, mu)


def _geometric(rng: Generator, K: int, d: int) -> Case:
    """Distances spread over many decades; the noise is alike at all of them, or as large."""
    span = rng.uniform(2, 10)
    sizes = decades(rng, -span, 0, K) if rng.integers(2) else 10.0 ** np.linspace(-span, 0, K)
    points = rng.normal(size=(K, d)) * sizes[:, None]
    noise = rng.normal(size=(K, d)) * (sizes[:, None] if rng.integers(2) else 1.0)
    gradients = points * curvatures(d) + float(decades(rng, -4, 1)) * noise
    return Case("geometric", points, gradients, 1.0)


def _shrinking(rng: Generator, K: int, d: int, *, factor: float) -> Case:
    steps = rng.normal(size=(K, d)) * factor ** np.arange(K)[:, None]
    return _observed(f"steps shrinking by {factor}", np.cumsum(steps, axis=0), rng)


def _far_point(rng: Generator, K: int, d: int, *, name: str, least: float, most: float) -> Case:
    points = rng.normal(size=(K, d))
    points[rng.integers(K)] *= decades(rng, least, most)
    return _observed(name, points, rng, 3.0)


def _far_gradients(rng: Generator, K: int, d: int) -> Case:
    points, gradients = box(rng, K, d)
    far = rng.integers(0, K, max(1, K // 4))
    gradients[far] *= decades(rng, 2, 9, far.size)[:, None]
    return Case("far gradients", points, gradients, 1.0)


def _near_duplicates(rng: Generator, K: int, d: int, *, apart: float | None) -> Case:
    points, gradients = box(rng, K, d)
    half = K // 2
    scale = decades(rng, -12, -2, half)[:, None] if apart is None else apart
    points[half : 2 * half] = points[:half] + scale * rng.normal(size=(half, d))
    name = "near-duplicates" if apart is None else f"near-duplicates at {apart}"
    return Case(name, points, gradients, 1.0)


def _duplicates(rng: Generator, K: int, d: int) -> Case:
    points, _ = box(rng, K, d)
    return _observed("duplicates in groups", points[rng.integers(0, max(K // 2, 1), K)], rng)


def _two_clusters(rng: Generator, K: int, d: int) -> Case:
    points = 1e-3 * rng.normal(size=(K, d))
    points[K // 2 :] += 100.0
    return _observed("two clusters", points, rng)


def _clusters(rng: Generator, K: int, d: int) -> Case:
    centres = 10.0 * rng.normal(size=(max(2, K // 4), d))
    points = centres[rng.integers(0, len(centres), K)]
    points = points + decades(rng, -9, -1) * rng.normal(size=(K, d))
    return _observed("clusters", points, rng, float(decades(rng, -2, 1)))


def _ladder(rng: Generator, K: int, d: int) -> Case:
    """Two points on every rung, the rungs in a row: the rungs are much shorter than the rails."""
    points = np.zeros((K, d))
    points[:, 0] = np.arange(K) // 2
    points[1::2, -1] += decades(rng, -9, -1)
    return _observed("ladder", points, rng, float(decades(rng, -2, 1)))


def _nested(rng: Generator, K: int, d: int) -> Case:
    """Pairs of pairs of pairs, each level ten to a thousand times closer than the one above."""
    points = np.zeros((K, d))
    ratio = decades(rng, 1, 3)
    for level in range(6):
        groups = np.arange(K) >> (5 - level)
        points += rng.normal(size=(groups.max() + 1, d))[groups] * ratio ** -float(level)
    return _observed("nested", points, rng)


def _collinear(rng: Generator, K: int, d: int, *, jitter: float) -> Case:
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    points = rng.uniform(-10, 10, K)[:, None] * direction + jitter * rng.normal(size=(K, d))
    return _observed(f"collinear up to {jitter}", points, rng)


def _grid(rng: Generator, K: int, d: int) -> Case:
    return _observed("grid", rng.integers(-2, 3, (K, d)).astype(float), rng)


def _simplex(rng: Generator, K: int, d: int) -> Case:
    """Points on the axes: with many axes, all distances are equal."""
    points = np.zeros((K, d))
    points[np.arange(K), np.arange(K) % d] = 1.0 + np.arange(K) // d
    return _observed("simplex", points, rng, float(decades(rng, -3, 1)))


def _scaled(rng: Generator, K: int, d: int, *, scale: float) -> Case:
    points, gradients = path(rng, K, d)
    return Case(f"scaled by {scale}", points * scale, gradients * scale, 1.0)


def _shifted(rng: Generator, K: int, d: int) -> Case:
    """All points far from the origin, compared with their distances."""
    points, gradients = path(rng, K, d)
    return Case("shifted", points + 1e7, gradients, 1.0)


def _no_noise(rng: Generator, K: int, d: int) -> Case:
    return _observed("no noise", box(rng, K, d)[0], rng, 0.0)


def _faint(rng: Generator, K: int, d: int) -> Case:
    return _observed("faint noise", box(rng, K, d)[0], rng, float(decades(rng, -12, -3)))


def _equal_gradients(rng: Generator, K: int, d: int) -> Case:
    points, gradients = box(rng, K, d)
    return Case("equal gradients", points, np.tile(gradients[0], (K, 1)), 1.0)


def _outlier(rng: Generator, K: int, d: int) -> Case:
    points, gradients = box(rng, K, d)
    gradients[0] *= 1e6
    return Case("one outlier", points, gradients, 1.0)


def _heavy_tails(rng: Generator, K: int, d: int) -> Case:
    points, _ = path(rng, K, d)
    gradients = points * curvatures(d) + 10.0 * rng.standard_t(1.0, size=(K, d))
    return Case("heavy tails", points, gradients, 1.0)


def _slow_descent(rng: Generator, K: int, d: int) -> Case:
    """Steps that stall: points creep along while the noise of a single example stays."""
    rows = rng.normal(size=(50, d)) * decades(rng, 0, 2, d)
    labels = rng.choice([-1.0, 1.0], 50)
    L = float(np.linalg.norm(rows, 2) ** 2 / (4 * 50))
    x, points, gradients = np.ones(d), [], []
    for _ in range(K + int(rng.integers(0, 200))):
        pick = int(rng.integers(50))
        slope = -labels[pick] / (1.0 + np.exp(np.clip(labels[pick] * (rows[pick] @ x), -50, 500)))
        points.append(x)
        gradients.append(slope * rows[pick])
        x = x - gradients[-1] / L
    return Case("logistic", np.array(points[-K:]), np.array(gradients[-K:]), L)


def _weighted(rng: Generator, K: int, d: int, *, family: Family, spread: float) -> Case:
    """A window of another family whose noise variances spread over so many decades, each way."""
    case = family(rng, K, d)
    variance = decades(rng, -spread, spread, K)
    return case._replace(name=f"{case.name}, variances 1e±{spread:.0f}", noise_variance=variance)


def _coloured(rng: Generator, K: int, d: int, *, family: Family) -> Case:
    """A window of another family with a covariance, diagonal or full, over up to four decades."""
    case = family(rng, K, d)
    covariance = decades(rng, 0, float(rng.uniform(0, 4)), d)
    if rng.integers(2):
        Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        covariance = (Q * covariance) @ Q.T
        covariance = 0.5 * (covariance + covariance.T)
    return case._replace(name=f"{case.name}, covariance", covariance=covariance)


def _moved(rng: Generator, K: int, d: int, *, shift: float) -> Case:
    """Points at distances of 1 to 10, all of them far away from the origin."""
    points, gradients = box(rng, K, d)
    return Case(f"moved by {shift:.0e}", points + shift, gradients, 1.0)


_HARD: tuple[Family, ...] = (
    *(partial(_box, half=half) for half in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)),
    *(partial(_path, step=step) for step in (0.7, 0.05, 1e-4)),
    *(partial(_wrong, factor=factor) for factor in (0.1, 1e-4, 10.0)),
    *(partial(_near_duplicates, apart=apart) for apart in (1e-3, 1e-6, 1e-9, 1e-12)),
    _duplicates,
    *(partial(_collinear, jitter=jitter) for jitter in (0.0, 1e-8, 1e-4)),
    _grid,
    _two_clusters,
    *(partial(_shrinking, factor=factor) for factor in (0.5, 0.8)),
    *(partial(_scaled, scale=scale) for scale in (1e8, 1e-8)),
    _no_noise,
    _equal_gradients,
    _outlier,
)
_MORE: tuple[Family, ...] = (
    partial(_tight, rotated=False),
    partial(_tight, rotated=True),
    _geometric,
    partial(_far_point, name="far point", least=2, most=9),
    partial(_far_point, name="very far point", least=9, most=13),
    _far_gradients,
    partial(_near_duplicates, apart=None),
    _clusters,
    _ladder,
    _nested,
    _simplex,
    _shifted,
    _faint,
    _heavy_tails,
    _slow_descent,
    _wrong_without_noise,
    partial(_curved, name="smooth, mu = -L", mu=-1.0),
    partial(_curved, name="strongly convex", mu=1.0 / 3.0),
    partial(_curved, name="narrow, mu = 0.999 L", mu=0.999),
)
_WEIGHTED: tuple[Family, ...] = (
    partial(_path, step=0.7),
    partial(_box, half=10.0),
    partial(_near_duplicates, apart=None),
    _far_gradients,
    _geometric,
    partial(_tight, rotated=True),
    _clusters,
    partial(_wrong, factor=0.1),
)
_COLOURED: tuple[Family, ...] = (
    partial(_path, step=0.7),
    partial(_box, half=10.0),
    partial(_moved, shift=1e8),
    partial(_moved, shift=1e12),
    partial(_scaled, scale=1e-8),
    _geometric,
    partial(_near_duplicates, apart=None),
    partial(_far_point, name="far point", least=2, most=9),
    partial(_weighted, family=partial(_path, step=0.7), spread=1),
    _clusters,
    partial(_near_duplicates, apart=1e-6),
)


def _named(families: tuple[Family, ...]) -> dict[str, Family]:
    return {family(np.random.default_rng(0), 4, 3).name: family for family in families}


FAMILIES: dict[str, Family] = _named(
    (
        *_HARD,
        *_MORE,
        partial(_weighted, family=partial(_path, step=0.7), spread=1),
        *(partial(_weighted, family=family, spread=6) for family in _WEIGHTED),
        *(partial(_coloured, family=family) for family in _COLOURED),
    )
)


def hard(rng: Generator, K: int, d: int) -> Iterator[Case]:
    """One window of each family that every solver is held to."""
    for family in _HARD:
        yield family(rng, K, d)
