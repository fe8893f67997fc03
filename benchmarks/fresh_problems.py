"""Problems for `minimize` that were written after its settings were fixed.

The last ones were written, and run once, after the settings that hold now; the third ones after
others, which did harm to the second ones and were given up.
"""

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.datasets import load_wine

from coco_denoiser.paper.experiments.constraint_problems import (
    Composite,
    _box,
    _groups,
    _l1,
    _l1_ball,
    _logistic,
    _portfolio,
    _problem,
    _simplex,
    _sparse,
)
from coco_denoiser.paper.experiments.constraint_problems import _quadratic as _thirty
from coco_denoiser.paper.experiments.gaussian_problems import Scenario, _linear
from coco_denoiser.paper.experiments.sampled import correlated, linear
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


def third() -> Iterator[Scenario]:
    """Problems whose minimum stays where it is."""
    yield from _third_examples(np.random.default_rng(501))
    two = np.repeat([1.0, 0.05], [3, 17])
    yield _quadratic("two curvatures", two, _uniform, 8.0, 300)
    yield _quadratic("noise in three directions", np.geomspace(1.0, 0.1, 12), _flat, 10.0, 300)
    yield _quadratic("noise fades", np.geomspace(1.0, 0.1, 8), _fading, 10.0, 350)
    yield _quadratic("noise is relative", np.linspace(1.0, 0.1, 16), _relative, 6.0, 300)
    yield _quadratic("5 coordinates, 60 calls", np.linspace(1.0, 0.1, 5), _white, 4.0, 60)
    yield _quadratic("60 coordinates, 1200 calls", np.geomspace(1.0, 0.03, 60), _white, 4.0, 1200)
    yield _curved(
        "softplus", 6, 3.0, 300,
        lambda u: (
            np.logaddexp(0, u) - 0.5 * u - np.log(2.0) + 0.02 * u**2,
            np.tanh(0.5 * u) / 2 + 0.04 * u,
        ),
    )  # fmt: skip


def third_moving() -> Iterator[Scenario]:
    """Problems whose minimum moves."""
    rng = np.random.default_rng(502)
    h, way, other = np.geomspace(1.0, 0.15, 9), rng.standard_normal(9), rng.standard_normal(9)
    yield _quadratic("jumps at 30%", h, _white, 12.0, 350, lambda k: 10.0 * (k >= 105) * way)
    yield _quadratic(
        "drifts, then turns", h, _white, 12.0, 350,
        lambda k: 0.1 * min(k, 150) * way + 0.1 * max(k - 150, 0) * other,
    )  # fmt: skip
    yield _quadratic("small steps", h, _white, 12.0, 350, lambda k: 1.5 * (k // 70) * way)


third_constrained: dict[str, Callable[[], Composite]] = {
    "lasso, 2": lambda: _problem(_sparse(21, 40, 2, nonzero=6, by=0.4), _l1(0.3), calls=500),
    "portfolio of 25": lambda: _problem(
        _portfolio(22, 25),
        _simplex(25),
        calls=300,
        start=np.full(25, 1 / 25),
    ),
    "narrow box": lambda: _problem(_thirty(), _box(-0.3, 0.6), calls=300),
    "l1 ball, breast cancer": lambda: _problem(
        _logistic("breast-cancer", 8), _l1_ball(5.0), calls=400
    ),
}


def last() -> Iterator[Scenario]:
    """Problems whose minimum stays where it is, for the settings that hold now."""
    rng = np.random.default_rng(601)
    A = correlated(rng, 300, 22, 0.8)
    b = A @ rng.standard_normal(22) + 2.0 * rng.standard_normal(300)
    yield _linear("square", A, b, batch=8, calls=250)._replace(name="least squares, 8")
    A = correlated(rng, 700, 14, 0.5)
    b = A @ rng.standard_normal(14) + rng.laplace(size=700)
    yield _linear("huber", A, b, batch=2, start=2.0, calls=350)._replace(name="Laplace targets, 2")
    A = rng.standard_normal((600, 9))
    labels = np.where(A @ rng.standard_normal(9) + rng.logistic(size=600) > 0.0, 1.0, -1.0)
    yield _linear("logistic", A, labels, batch=3, calls=450)._replace(name="mixed classes, 3")
    A = A + labels[:, None]
    yield _linear("hinge", A, labels, batch=1, calls=300, weight=1e-2)._replace(name="margins, 1")
    A, classes = load_wine(return_X_y=True)
    A, labels = (A - A.mean(axis=0)) / A.std(axis=0), np.where(classes == 2, 1.0, -1.0)
    yield _linear("logistic", A, labels, batch=2, calls=350)._replace(name="wine, 2")
    steep = np.concatenate(([1.0], np.linspace(0.2, 0.1, 13)))
    yield _quadratic("one steep direction", steep, _white, 15.0, 250)
    yield _quadratic("uniform noise, far", np.geomspace(1.0, 0.2, 6), _uniform, 100.0, 300)
    yield _quadratic("40 coordinates, 120 calls", np.geomspace(1.0, 0.1, 40), _white, 6.0, 120)
    yield _quadratic("1500 calls", np.geomspace(1.0, 0.02, 18), _laplace, 8.0, 1500)
    yield _quadratic("three coordinates", np.array([1.0, 0.5, 0.4]), _white, 30.0, 80)
    yield _quadratic("bursts, 25 coordinates", np.geomspace(1.0, 0.1, 25), _bursts, 10.0, 600)
    yield _curved(
        "quartic and quadratic", 7, 1.5, 350,
        lambda u: (0.1 * u**4 + 0.5 * u**2, 0.4 * np.clip(u, -50, 50) ** 3 + u),
    )  # fmt: skip


def last_moving() -> Iterator[Scenario]:
    """Problems whose minimum moves, for the settings that hold now."""
    rng = np.random.default_rng(602)
    h, way, other = np.geomspace(1.0, 0.2, 5), rng.standard_normal(5), rng.standard_normal(5)
    yield _quadratic("jumps at 50%", h, _white, 8.0, 260, lambda k: 5.0 * (k >= 130) * way)
    yield _quadratic("drifts faster", h, _white, 8.0, 260, lambda k: 3e-4 * k**2 * way)
    yield _quadratic(
        "settles", h, _white, 8.0, 400, lambda k: 8.0 * np.exp(-k / 90.0) * (way + other)
    )


last_constrained: dict[str, Callable[[], Composite]] = {
    "non-negative huber": lambda: _problem(
        linear("huber", *_targets(603), batch=2), _box(0.0, np.inf), calls=400
    ),
    "group lasso, 8": lambda: _problem(_sparse(604, 30, 8, nonzero=9), _groups(0.5, 3), calls=300),
    "portfolio of 60": lambda: _problem(
        _portfolio(605, 60), _simplex(60), calls=350, start=np.full(60, 1 / 60)
    ),
    "l1-logistic, breast cancer, 4": lambda: _problem(
        _logistic("breast-cancer", 4), _l1(0.01), calls=500
    ),
}


def _targets(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    A = correlated(rng, 400, 15, 0.4)
    return A, A @ rng.standard_normal(15) + rng.standard_t(3.0, size=400)


def _third_examples(rng: np.random.Generator) -> Iterator[Scenario]:
    A = correlated(rng, 400, 18, 0.6)
    b = A @ rng.standard_normal(18) + 0.5 * rng.standard_normal(400)
    yield _linear("square", A, b, batch=2, calls=400)._replace(name="least squares, 2")
    A = correlated(rng, 500, 10, 0.3)
    b = A @ rng.standard_normal(10) + rng.standard_t(2.0, size=500)
    yield _linear("huber", A, b, batch=1, calls=500)._replace(name="heavy-tailed targets, single")
    A = 0.4 * correlated(rng, 400, 6, 0.5)
    counts = rng.poisson(np.exp(0.5 + A @ rng.standard_normal(6))).astype(float)
    yield _linear("poisson", A, counts, batch=2, start=0.4, calls=400)._replace(name="counts, 2")
    A, classes = load_wine(return_X_y=True)
    A, labels = (A - A.mean(axis=0)) / A.std(axis=0), np.where(classes == 1, 1.0, -1.0)
    yield _linear("logistic", A, labels, batch=8, weight=1e-2)._replace(name="wine, 8")
    A = rng.standard_normal((500, 12))
    labels = np.where(A @ rng.standard_normal(12) + 2.0 * rng.standard_normal(500) > 0, 1.0, -1.0)
    yield _linear("hinge", A, labels, batch=2, calls=400, weight=1e-2)._replace(
        name="overlapping margins, 2"
    )


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


def _uniform(x: Array, _: int, rng: np.random.Generator) -> Array:
    return rng.uniform(-2.0, 2.0, size=x.shape)


def _flat(x: Array, _: int, rng: np.random.Generator) -> Array:
    basis = np.random.default_rng(503).standard_normal((3, x.shape[1]))
    return rng.standard_normal((len(x), 3)) @ basis + 0.1 * rng.standard_normal(x.shape)


def _fading(x: Array, call: int, rng: np.random.Generator) -> Array:
    return np.asarray(10.0 / np.sqrt(1.0 + call) * rng.standard_normal(x.shape))


def _relative(x: Array, _: int, rng: np.random.Generator) -> Array:
    size = 0.5 + 0.3 * np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(size * rng.standard_normal(x.shape))


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
