"""The problems of the experiment `gaussian`: those that chose the model's settings, and others.

A scenario is a problem whose noise and optimum may change from call to call. All of its functions
take points (runs, d) and the number of the call.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from coco_denoiser.experiments.logistic import dataset
from coco_denoiser.problems import Quadratic, datasets
from coco_denoiser.typing import Array

Points = Callable[[Array, int], Array]
Noise = Callable[[tuple[int, ...], int, np.random.Generator], Array]


class Scenario(NamedTuple):
    """A problem to be minimised from noisy gradients.

    Attributes:
        name: as in the tables.
        L: the curvature that steps are multiples of.
        start: (d,), where every run starts.
        calls: oracle calls of a run.
        reach: typical distance of a coordinate of the start from the minimiser.
        oracle: (x, call, rng) -> noisy gradients, (runs, d).
        gradient: (x, call) -> gradients, (runs, d).
        excess: (x, call) -> objective above its least value, (runs,).
    """

    name: str
    L: float
    start: Array
    calls: int
    reach: float
    oracle: Callable[[Array, int, np.random.Generator], Array]
    gradient: Points
    excess: Points


class _Loss(NamedTuple):
    """A loss of the margin m = a^T x and a target b, its slope, and a bound on its curvature."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    curvature: Callable[[Array], Array]


def _square(m: Array, b: Array) -> Array:
    return np.asarray(0.5 * (m - b) ** 2)


def _smooth_hinge(m: Array, b: Array) -> Array:
    short = np.maximum(0.0, 1.0 - b * m)
    return np.where(short < 1.0, 0.5 * short**2, short - 0.5)


def _huber(m: Array, b: Array) -> Array:
    r = np.abs(m - b)
    return np.where(r < 1.0, 0.5 * r**2, r - 0.5)


_LOSSES = {
    "square": _Loss(_square, lambda m, b: m - b, np.ones_like),
    "huber": _Loss(_huber, lambda m, b: np.clip(m - b, -1.0, 1.0), np.ones_like),
    "hinge": _Loss(_smooth_hinge, lambda m, b: -b * np.clip(1.0 - b * m, 0.0, 1.0), np.ones_like),
    "logistic": _Loss(
        lambda m, b: np.logaddexp(0.0, -b * m),
        lambda m, b: -b * expit(-b * m),
        lambda m: np.full_like(m, 0.25),
    ),
    # Its curvature has no bound; that at the start is what a user could know.
    "poisson": _Loss(
        lambda m, b: np.exp(np.minimum(m, 30.0)) - b * m,
        lambda m, b: np.exp(np.minimum(m, 30.0)) - b,
        lambda m: np.exp(np.minimum(m, 30.0)),
    ),
}


def _linear(
    name: str,
    loss: str,
    A: Array,
    b: Array,
    *,
    batch: int,
    start: float,
    calls: int,
    weight: float = 1e-3,
) -> Scenario:
    """Minimise mean_i loss(a_i^T x, b_i) + weight/2 ||x||^2 from batches of examples."""
    kind, (n, d) = _LOSSES[loss], A.shape

    def value(x: Array) -> Array:
        # Summed over examples for few points at a time: a run's whole table would be large.
        return np.array([kind.value(A @ p, b).mean() + 0.5 * weight * p @ p for p in x])

    def gradient(x: Array, call: int = 0) -> Array:
        del call
        return np.asarray(kind.slope(x @ A.T, b) @ A / n + weight * x)

    def oracle(x: Array, call: int, rng: np.random.Generator) -> Array:
        del call
        drawn = rng.integers(n, size=(len(x), batch))
        rows = A[drawn]
        slopes = kind.slope(np.einsum("rbd,rd->rb", rows, x), b[drawn])
        return np.asarray(np.einsum("rb,rbd->rd", slopes, rows) / batch + weight * x)

    found = minimize(
        lambda p: float(value(p[None])[0]),
        np.zeros(d),
        jac=lambda p: gradient(p[None])[0],
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30},
    )
    curvatures = kind.curvature(A @ np.full(d, start))
    L = float(np.linalg.eigvalsh((A.T * curvatures) @ A / n)[-1]) + weight
    least, begin = float(found.fun), np.full(d, start)
    reach = float(np.sqrt(np.mean((begin - found.x) ** 2)))
    return Scenario(name, L, begin, calls, reach, oracle, gradient, lambda x, _: value(x) - least)


def _quadratic(
    name: str,
    H: Array,
    noise: Noise,
    *,
    calls: int = 150,
    optimum: Callable[[int], float] = lambda _: 0.0,
) -> Scenario:
    """Minimise 1/2 (x - m)^T H (x - m) from 100 in every coordinate, m being optimum(call)."""
    problem = Quadratic(H)
    return Scenario(
        name,
        problem.L,
        np.full(problem.dimension, 100.0),
        calls,
        100.0,
        lambda x, call, rng: problem.gradient(x - optimum(call)) + noise(x.shape, call, rng),
        lambda x, call: np.asarray(problem.gradient(x - optimum(call))),
        lambda x, call: np.asarray(problem.value(x - optimum(call))),
    )


def _softmax() -> Scenario:
    """Multinomial regression on the digits: 10 classes, 64 pixels, batches of 16."""
    pixels, classes = datasets.digits()
    A = pixels / 16.0
    n, (p, c), weight, batch = len(A), (64, 10), 1e-2, 16
    labels = np.eye(c)[classes]

    def value(x: Array) -> Array:
        tables = x.reshape(-1, p, c)
        fits = [float(-(labels * log_softmax(A @ t, axis=1)).sum() / n) for t in tables]
        return np.asarray(np.array(fits) + 0.5 * weight * np.einsum("ri,ri->r", x, x))

    def gradient(x: Array, call: int = 0) -> Array:
        del call
        found = [A.T @ (softmax(A @ t, axis=1) - labels) / n for t in x.reshape(-1, p, c)]
        return np.asarray(np.stack(found).reshape(x.shape) + weight * x)

    def oracle(x: Array, call: int, rng: np.random.Generator) -> Array:
        del call
        drawn = rng.integers(n, size=(len(x), batch))
        rows = A[drawn]
        short = softmax(rows @ x.reshape(-1, p, c), axis=2) - labels[drawn]
        found: Array = np.einsum("rbp,rbc->rpc", rows, short) / batch
        return found.reshape(x.shape) + weight * x

    best = minimize(
        lambda v: float(value(v[None])[0]),
        np.zeros(p * c),
        jac=lambda v: gradient(v[None])[0],
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-8},
    )
    L = 0.5 * float(np.linalg.eigvalsh(A.T @ A / n)[-1]) + weight
    reach = float(np.sqrt(np.mean(best.x**2)))
    least = float(best.fun)
    return Scenario(
        name="softmax, digits",
        L=L,
        start=np.zeros(p * c),
        calls=300,
        reach=reach,
        oracle=oracle,
        gradient=gradient,
        excess=lambda x, _: value(x) - least,
    )


def _rotated() -> Array:
    turn = np.linalg.qr(np.random.default_rng(7).standard_normal((10, 10)))[0]
    H = turn @ np.diag(np.logspace(0, -3, 10)) @ turn.T
    return np.asarray(0.5 * (H + H.T))


def _correlated(rng: np.random.Generator, n: int, d: int) -> Array:
    """Return features whose neighbours are correlated by 0.9."""
    grid = np.arange(d)
    root = np.linalg.cholesky(0.9 ** np.abs(grid[:, None] - grid))
    return np.asarray(rng.standard_normal((n, d)) @ root.T)


def _logistic(data: str, batch: int) -> Scenario:
    start, calls = {"breast-cancer": (1.0, 300), "fourclass": (1.0, 400), "mushrooms": (0.5, 300)}[
        data
    ]
    found = dataset(data)
    A = found.features
    if data == "fourclass":
        A = A / np.linalg.norm(A, axis=1).max()
    name = f"{data}, {'single' if batch == 1 else batch}"
    return _linear(name, "logistic", A, found.labels, batch=batch, start=start, calls=calls)


def _regression(name: str, loss: str) -> Scenario:
    """Fit 20 correlated features to 500 targets, a tenth of them far off for Huber's loss."""
    rng = np.random.default_rng(2024)
    A = _correlated(rng, 500, 20)
    b = A @ rng.standard_normal(20) + rng.standard_normal(500)
    if loss == "huber":
        b = b + np.where(rng.random(500) < 0.1, 20.0 * rng.standard_normal(500), 0.0)
    return _linear(name, loss, A, b, batch=4, start=1.0, calls=300)


def _poisson() -> Scenario:
    rng = np.random.default_rng(2025)
    A = 0.3 * _correlated(rng, 500, 10)
    counts = rng.poisson(np.exp(A @ (0.5 * rng.standard_normal(10)) + 0.5)).astype(float)
    return _linear("Poisson regression", "poisson", A, counts, batch=4, start=1.0, calls=300)


def _support_vectors() -> Scenario:
    data = dataset("breast-cancer")
    A, b = data.features, data.labels
    return _linear("support vectors", "hinge", A, b, batch=4, start=1.0, calls=300, weight=1e-2)


def _white(shape: tuple[int, ...], _: int, rng: np.random.Generator) -> Array:
    return 10.0 * rng.standard_normal(shape)


def _heavy(shape: tuple[int, ...], _: int, rng: np.random.Generator) -> Array:
    return np.asarray(5.0 * rng.standard_t(2.2, size=shape))


def _uneven(shape: tuple[int, ...], _: int, rng: np.random.Generator) -> Array:
    return np.asarray(30.0 * np.logspace(0, -2, shape[-1]) * rng.standard_normal(shape))


def _changing(before: float, after: float) -> Noise:
    def noise(shape: tuple[int, ...], call: int, rng: np.random.Generator) -> Array:
        return (before if call < 100 else after) * rng.standard_normal(shape)

    return noise


_SPACED = np.diag(np.linspace(1.0, 1 / 3, 10))
CHOSEN: dict[str, Callable[[], Scenario]] = {
    "quadratic": lambda: _quadratic("quadratic", _SPACED, _white),
    "narrow valley": lambda: _quadratic("narrow valley", _rotated(), _white),
    **{
        f"{data}, {'single' if batch == 1 else batch}": partial(_logistic, data, batch)
        for data in ("breast-cancer", "fourclass", "mushrooms")
        for batch in (1, 16)
    },
}
# Run once, when every setting was fixed.
HELD_OUT: dict[str, Callable[[], Scenario]] = {
    "least squares": lambda: _regression("least squares", "square"),
    "Poisson regression": _poisson,
    "support vectors": _support_vectors,
    "Huber regression": lambda: _regression("Huber regression", "huber"),
    "softmax, digits": _softmax,
    "heavy tails": lambda: _quadratic("heavy tails", _rotated(), _heavy),
    "uneven noise": lambda: _quadratic("uneven noise", _rotated(), _uneven),
    "noise falls": lambda: _quadratic("noise falls", _SPACED, _changing(30.0, 3.0), calls=200),
    "noise rises": lambda: _quadratic("noise rises", _SPACED, _changing(3.0, 30.0), calls=200),
    "optimum drifts": lambda: _quadratic(
        "optimum drifts", _SPACED, _white, calls=200, optimum=lambda k: 0.5 * k
    ),
    "optimum jumps": lambda: _quadratic(
        "optimum jumps", _SPACED, _white, calls=200, optimum=lambda k: 0.0 if k < 150 else 50.0
    ),
}


@cache
def scenario(name: str) -> Scenario:
    """Return a scenario by its name."""
    return (CHOSEN | HELD_OUT)[name]()
