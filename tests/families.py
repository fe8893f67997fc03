"""Families of windows, by name: what a solver of this problem meets, and what has made it fail.

    FAMILIES[name](rng, K, d) -> Case

Every family draws a new window of K points in d dimensions at each call.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import coco_denoiser as coco
from coco_denoiser.problem import Problem, from_observations
from coco_denoiser.typing import Float64

Generator: TypeAlias = np.random.Generator


MODELS = {"cocoercive": coco.Cocoercive, "gaussian": coco.Gaussian}


def modelled(*, model: str = "cocoercive", **options: Any) -> dict[str, Any]:
    """Return the options of an interface, those of a model, which is named, in the model."""
    names = options.keys() & {"L", "mu", "tol", "method", "max_iter"}
    return {"model": MODELS[model](**{name: options.pop(name) for name in names}), **options}


class Case(NamedTuple):
    """Points and noisy gradients, (K, d) each, and what to denoise them with."""

    points: Float64
    gradients: Float64
    L: float = 1.0
    mu: float = 0.0
    noise_variance: Float64 | None = None
    covariance: Float64 | None = None

    @property
    def variances(self) -> Float64:
        """The noise variance of each gradient, (K,)."""
        return np.ones(len(self.points)) if self.noise_variance is None else self.noise_variance

    @property
    def size(self) -> float:
        """The scale that rounding is relative to: the spread of g and of L x."""
        x, g = (float(np.ptp(v, axis=0).max()) for v in (self.points, self.gradients))
        return g + self.L * x + 1e-300

    def drift(self, theta: Float64) -> float:
        """How far the weighted centroid has moved, which Theorem 4.1 says it does not."""
        moved = np.average(theta - self.gradients, axis=0, weights=1.0 / self.variances)
        return float(np.abs(moved).max() / self.size)

    def solve(self, **options: Any) -> coco.Solution:
        """Denoise it, with further options or other ones."""
        return coco.solve(**modelled(**self._asdict() | options))

    def reduced(self) -> Problem:
        """Return the reduced problem."""
        given: Any = {"L": self.L, "mu": self.mu, "covariance": self.covariance}
        return from_observations(self.points, self.gradients, variances=self.variances, **given)[0]


Family: TypeAlias = Callable[[Generator, int, int], Case]
Points: TypeAlias = Callable[[Generator, int, int], Float64]


def curvatures(d: int) -> Float64:
    """Eigenvalues of the quadratic whose gradients are observed: from 1 down to 1/3."""
    return np.linspace(1.0, 1.0 / 3.0, d)


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


def full(rng: Generator, eigenvalues: Float64) -> Float64:
    """A covariance with these eigenvalues in random directions."""
    Q = np.linalg.qr(rng.normal(size=(eigenvalues.size,) * 2))[0]
    covariance = (Q * eigenvalues) @ Q.T
    return np.asarray(0.5 * (covariance + covariance.T))


def _drawn(
    draw: Callable[..., tuple[Float64, Float64]],
    *given: float,
    x: Any = np.array,
    g: Any = np.array,
    L: float = 1.0,
) -> Family:
    """The family of what draws points and gradients, or of functions of them."""

    def family(rng: Generator, K: int, d: int) -> Case:
        points, gradients = draw(rng, K, d, *given)
        return Case(x(points), g(gradients), L)

    return family


def _at(points: Points, low: float | None = None, high: float = 1.0) -> Family:
    """The family of points whose noise is of size 10, or between 10^low and 10^high."""

    def family(rng: Generator, K: int, d: int) -> Case:
        x = points(rng, K, d)
        return Case(x, noisy(x, rng, 10.0 if low is None else float(decades(rng, low, high))))

    return family


def _curved(mu: float) -> Family:
    return lambda rng, K, d: Case(*(path if rng.integers(2) else box)(rng, K, d), mu=mu)


def _tight(rotated: bool) -> Family:
    """Curvature exactly at a bound in every direction, and noise of any size, or none."""

    def family(rng: Generator, K: int, d: int) -> Case:
        L, mu = 1.0, float(rng.choice([0.0, -1.0, 1.0 / 3.0]))
        H = np.diag(rng.choice([mu, L], d))
        if rotated:
            Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
            H = Q @ H @ Q.T
        points = rng.normal(size=(K, d))
        noise = decades(rng, -14, 0) if rng.integers(4) else 0.0
        return Case(points, points @ H + noise * rng.normal(size=(K, d)), L, mu)

    return family


def _geometric(rng: Generator, K: int, d: int) -> Case:
    """Distances spread over many decades; the noise is alike at all of them, or as large."""
    span = rng.uniform(2, 10)
    sizes = decades(rng, -span, 0, K) if rng.integers(2) else 10.0 ** np.linspace(-span, 0, K)
    points = rng.normal(size=(K, d)) * sizes[:, None]
    noise = rng.normal(size=(K, d)) * (sizes[:, None] if rng.integers(2) else 1.0)
    return Case(points, points * curvatures(d) + float(decades(rng, -4, 1)) * noise)


def _far_point(least: float, most: float) -> Family:
    def family(rng: Generator, K: int, d: int) -> Case:
        points = rng.normal(size=(K, d))
        points[rng.integers(K)] *= decades(rng, least, most)
        return Case(points, noisy(points, rng, 3.0))

    return family


def _far_gradients(rng: Generator, K: int, d: int) -> Case:
    points, gradients = box(rng, K, d)
    far = rng.integers(0, K, max(1, K // 4))
    gradients[far] *= decades(rng, 2, 9, far.size)[:, None]
    return Case(points, gradients)


def _near_duplicates(
    rng: Generator, K: int, d: int, apart: float | None = None
) -> tuple[Float64, Float64]:
    points, gradients = box(rng, K, d)
    half = K // 2
    scale = decades(rng, -12, -2, half)[:, None] if apart is None else apart
    points[half : 2 * half] = points[:half] + scale * rng.normal(size=(half, d))
    return points, gradients


def _clusters(rng: Generator, K: int, d: int) -> Float64:
    centres = 10.0 * rng.normal(size=(max(2, K // 4), d))
    points = centres[rng.integers(0, len(centres), K)]
    return np.asarray(points + decades(rng, -9, -1) * rng.normal(size=(K, d)))


def _ladder(rng: Generator, K: int, d: int) -> Float64:
    """Two points on every rung, the rungs in a row: the rungs are much shorter than the rails."""
    points = np.zeros((K, d))
    points[:, 0] = np.arange(K) // 2
    points[1::2, -1] += decades(rng, -9, -1)
    return points


def _nested(rng: Generator, K: int, d: int) -> Float64:
    """Pairs of pairs of pairs, each level ten to a thousand times closer than the one above."""
    points = np.zeros((K, d))
    ratio = decades(rng, 1, 3)
    for level in range(6):
        groups = np.arange(K) >> (5 - level)
        points += rng.normal(size=(groups.max() + 1, d))[groups] * ratio ** -float(level)
    return points


def _collinear(jitter: float) -> Points:
    def points(rng: Generator, K: int, d: int) -> Float64:
        direction = rng.normal(size=d)
        direction /= np.linalg.norm(direction)
        along = rng.uniform(-10, 10, K)[:, None] * direction
        return np.asarray(along + jitter * rng.normal(size=(K, d)))

    return points


def _simplex(_: Generator, K: int, d: int) -> Float64:
    """Points on the axes: with many axes, all distances are equal."""
    points = np.zeros((K, d))
    points[np.arange(K), np.arange(K) % d] = 1.0 + np.arange(K) // d
    return points


def _two_clusters(rng: Generator, K: int, d: int) -> Float64:
    return np.asarray(1e-3 * rng.normal(size=(K, d)) + 100.0 * (np.arange(K) >= K // 2)[:, None])


def _shrinking(factor: float) -> Points:
    return lambda rng, K, d: np.cumsum(
        rng.normal(size=(K, d)) * factor ** np.arange(K)[:, None], axis=0
    )


def _heavy_tails(rng: Generator, K: int, d: int) -> Case:
    points, _ = path(rng, K, d)
    return Case(points, points * curvatures(d) + 10.0 * rng.standard_t(1.0, size=(K, d)))


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
    return Case(np.array(points[-K:]), np.array(gradients[-K:]), L)


def _wrong_without_noise(rng: Generator, K: int, d: int) -> Case:
    points = rng.normal(size=(K, d))
    return Case(points, noisy(points, rng, 0.0), float(decades(rng, -6, 0)))


def _weighted(family: Family, spread: float) -> Family:
    """A window of another family whose noise variances spread over several decades, each way."""
    return lambda rng, K, d: family(rng, K, d)._replace(
        noise_variance=decades(rng, -spread, spread, K)
    )


def _coloured(family: Family) -> Family:
    """A window of another family with a covariance, diagonal or full, over up to four decades."""

    def coloured(rng: Generator, K: int, d: int) -> Case:
        case = family(rng, K, d)
        covariance = decades(rng, 0, float(rng.uniform(0, 4)), d)
        if rng.integers(2):
            covariance = full(rng, covariance)
        return case._replace(covariance=covariance)

    return coloured


HARD: dict[str, Family] = {  # that every solver is held to
    **{f"box of {half}": _drawn(box, half) for half in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)},
    **{f"path with step {step}": _drawn(path, step) for step in (0.7, 0.05, 1e-4)},
    **{f"L off by {factor}": _drawn(path, L=factor) for factor in (0.1, 1e-4, 10.0)},
    **{
        f"near-duplicates at {apart}": _drawn(_near_duplicates, apart)
        for apart in (1e-3, 1e-6, 1e-9, 1e-12)
    },
    "duplicates in groups": _at(
        lambda rng, K, d: box(rng, K, d)[0][rng.integers(0, max(K // 2, 1), K)]
    ),
    **{f"collinear up to {jitter}": _at(_collinear(jitter)) for jitter in (0.0, 1e-8, 1e-4)},
    "grid": _at(lambda rng, K, d: rng.integers(-2, 3, (K, d)).astype(float)),
    "two clusters": _at(_two_clusters),
    **{f"steps shrinking by {factor}": _at(_shrinking(factor)) for factor in (0.5, 0.8)},
    **{
        f"scaled by {scale}": _drawn(
            path, x=partial(np.multiply, scale), g=partial(np.multiply, scale)
        )
        for scale in (1e8, 1e-8)
    },
    "no noise": lambda rng, K, d: Case(x := box(rng, K, d)[0], noisy(x, rng, 0.0)),
    "equal gradients": _drawn(box, g=lambda g: np.tile(g[0], (len(g), 1))),
    "one outlier": _drawn(box, g=lambda g: np.vstack((1e6 * g[:1], g[1:]))),
}
_MORE: dict[str, Family] = {
    "tight": _tight(False),
    "rotated tight": _tight(True),
    "geometric": _geometric,
    "far point": _far_point(2, 9),
    "very far point": _far_point(9, 13),
    "far gradients": _far_gradients,
    "near-duplicates": _drawn(_near_duplicates),
    "clusters": _at(_clusters, -2),
    "ladder": _at(_ladder, -2),
    "nested": _at(_nested),
    "simplex": _at(_simplex, -3),
    "shifted": _drawn(path, x=lambda x: x + 1e7),
    "faint noise": _at(lambda rng, K, d: box(rng, K, d)[0], -12, -3),
    "heavy tails": _heavy_tails,
    "logistic": _slow_descent,
    "L too small, no noise": _wrong_without_noise,
    "smooth, mu = -L": _curved(-1.0),
    "strongly convex": _curved(1.0 / 3.0),
    "narrow, mu = 0.999 L": _curved(0.999),
}
_WEIGHTED = (
    *("path with step 0.7", "box of 10.0", "near-duplicates", "far gradients", "geometric"),
    *("rotated tight", "clusters", "L off by 0.1"),
)
_COLOURED = (
    *("path with step 0.7", "box of 10.0", "moved by 1e+08", "moved by 1e+12", "scaled by 1e-08"),
    *("geometric", "near-duplicates", "far point", "path with step 0.7, variances 1e±1"),
    *("clusters", "near-duplicates at 1e-06"),
)
_VARIED = {
    **HARD,
    **_MORE,
    **{f"moved by {by:.0e}": _drawn(box, x=partial(np.add, by)) for by in (1e8, 1e12)},
    "path with step 0.7, variances 1e±1": _weighted(HARD["path with step 0.7"], 1),
}
FAMILIES: dict[str, Family] = {
    **{name: family for name, family in _VARIED.items() if not name.startswith("moved")},
    **{f"{name}, variances 1e±6": _weighted(_VARIED[name], 6) for name in _WEIGHTED},
    **{f"{name}, covariance": _coloured(_VARIED[name]) for name in _COLOURED},
}
