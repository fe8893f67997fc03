"""Problems for `minimize` that were written after its settings were fixed."""

from collections.abc import Callable, Iterator

import numpy as np

from coco_denoiser.paper.experiments.gaussian_problems import Scenario, _linear
from coco_denoiser.paper.experiments.sampled import correlated
from coco_denoiser.typing import Array

Noise = Callable[[Array, int, np.random.Generator], Array]


def fresh() -> Iterator[Scenario]:
    """Problems whose minimum stays where it is."""
    yield from _regressions(np.random.default_rng(301))
    yield from _classes(np.random.default_rng(302))
    yield _quadratic("Laplace noise", np.geomspace(1.0, 0.01, 30), _laplace, 20.0, 250)
    yield _quadratic("80 coordinates, 200 calls", np.linspace(1.0, 0.2, 80), _white, 5.0, 200)
    yield _quadratic("bursts of noise", np.geomspace(1.0, 0.1, 10), _bursts, 10.0, 400)
    yield _quadratic("begins near", np.geomspace(1.0, 0.1, 15), _white, 0.5, 500)
    yield _curved(
        "pseudo-Huber, far", 6, 40.0, 400, lambda u: (np.hypot(1, u) - 1, u / np.hypot(1, u))
    )
    yield _curved("cosh", 5, 2.5, 300, lambda u: (np.cosh(u) - 1.0, np.sinh(np.clip(u, -30, 30))))


def looked_at_moving() -> Iterator[Scenario]:
    """Two more, after which a test of the fit was added."""
    rng = np.random.default_rng(304)
    h, way = np.geomspace(1.0, 0.2, 12), rng.standard_normal(12)
    walk = 0.5 * rng.standard_normal((301, 12)).cumsum(axis=0)
    yield _quadratic("jumps at 40%", h, _white, 15.0, 300, lambda k: 12.0 * (k >= 120) * way)
    yield _quadratic("random walk", h, _white, 15.0, 300, lambda k: walk[k])


def fresh_moving() -> Iterator[Scenario]:
    """Problems whose minimum moves, written after that."""
    rng = np.random.default_rng(305)
    h, way, other = np.geomspace(1.0, 0.1, 7), rng.standard_normal(7), rng.standard_normal(7)
    yield _quadratic(
        "jumps twice", h, _white, 10.0, 400, lambda k: 8.0 * ((k >= 90) * way + (k >= 210) * other)
    )
    yield _quadratic("jumps at 60%", h, _bursts, 10.0, 350, lambda k: 20.0 * (k >= 210) * way)
    yield _quadratic("drifts, then rests", h, _white, 10.0, 300, lambda k: 0.2 * min(k, 180) * way)
    yield _quadratic("circles", h, _white, 10.0, 300, lambda k: 6.0 * np.cos(k / 40.0) * other)


def _regressions(rng: np.random.Generator) -> Iterator[Scenario]:
    A = correlated(rng, 600, 25, 0.95)
    b = A @ rng.standard_normal(25) + rng.standard_normal(600)
    yield _linear("square", A, b, batch=1, calls=500)._replace(name="least squares, single")
    A = 0.4 * correlated(rng, 500, 12, 0.7)
    counts = rng.poisson(np.exp(A @ (0.6 * rng.standard_normal(12)))).astype(float)
    yield _linear("poisson", A, counts, batch=8, start=0.3)._replace(name="counts, 8")
    A = correlated(rng, 500, 8, 0.6)
    wild = np.where(rng.random(500) < 0.2, 15.0 * rng.standard_normal(500), 0.0)
    b = A @ rng.standard_normal(8) + rng.standard_normal(500) + wild
    yield _linear("huber", A, b, batch=4)._replace(name="a fifth of outliers, 4")


def _classes(rng: np.random.Generator) -> Iterator[Scenario]:
    A = correlated(rng, 800, 6, 0.4)
    rare = np.where(A @ rng.standard_normal(6) + rng.logistic(size=800) > 4.0, 1.0, -1.0)
    yield _linear("logistic", A, rare, batch=2, calls=500)._replace(name="rare class, 2")
    labels = np.where(rng.random(400) < 0.5, 1.0, -1.0)
    A = rng.standard_normal((400, 15)) + 1.2 * labels[:, None] * rng.standard_normal(15)
    yield _linear("logistic", A, labels, batch=1)._replace(name="nearly separable, single")
    yield _linear("hinge", 0.7 * A, labels, batch=4, weight=1e-2)._replace(name="margins, 4")


def _white(x: Array, _: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal(x.shape)


def _laplace(x: Array, _: int, rng: np.random.Generator) -> Array:
    return rng.laplace(size=x.shape)


def _bursts(x: Array, call: int, rng: np.random.Generator) -> Array:
    return (10.0 if call % 50 < 10 else 1.0) * rng.standard_normal(x.shape)


def _quadratic(
    name: str,
    h: Array,
    noise: Noise,
    start: float,
    calls: int,
    minimum: Callable[[int], Array | float] = lambda _: 0.0,
) -> Scenario:
    """Curvatures h along random axes."""
    d = len(h)
    axes = np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]
    H = axes * h @ axes.T
    return Scenario(
        name,
        float(h.max()),
        np.full(d, start),
        calls,
        start,
        lambda x, k, rng: (x - minimum(k)) @ H + noise(x, k, rng),
        lambda x, k: 0.5 * (((x - minimum(k)) @ H) * (x - minimum(k))).sum(axis=-1),
    )


def _curved(
    name: str, d: int, start: float, calls: int, of: Callable[[Array], tuple[Array, Array]]
) -> Scenario:
    """A sum over coordinates, each with a value and a slope; noise of 0.5."""
    weights = np.geomspace(1.0, 0.2, d)
    return Scenario(
        name,
        1.0,
        np.full(d, start),
        calls,
        start,
        lambda x, k, rng: weights * of(x)[1] + 0.5 * _white(x, k, rng),
        lambda x, _: of(x)[0] @ weights,
    )
