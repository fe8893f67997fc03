"""The problems of the experiment `gaussian`: those that chose the model's settings, and others.

A scenario is a problem whose noise and optimum may change from call to call. All of its functions
take points (runs, d) and the number of the call.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from coco_denoiser.paper.experiments.logistic import dataset
from coco_denoiser.paper.experiments.sampled import Smooth, correlated, digits, linear
from coco_denoiser.paper.problems import Quadratic
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
        excess: (x, call) -> objective above its least value, (runs,).
    """

    name: str
    L: float
    start: Array
    calls: int
    reach: float
    oracle: Callable[[Array, int, np.random.Generator], Array]
    excess: Points


def _scenario(f: Smooth, *, start: float, calls: int) -> Scenario:
    """Find the minimum, and start from the same number in every coordinate."""
    begin = np.full(f.dimension, start)
    found = minimize(
        lambda p: float(f.value(p[None])[0]),
        np.zeros(f.dimension),
        jac=lambda p: f.gradient(p[None])[0],
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30},
    )
    least, reach = float(found.fun), float(np.sqrt(np.mean((begin - found.x) ** 2)))
    oracle, excess = lambda x, _, rng: f.oracle(x, rng), lambda x, _: f.value(x) - least
    return Scenario("", f.L, begin, calls, reach, oracle, excess)


def _linear(
    loss: str,
    A: Array,
    b: Array,
    *,
    batch: int = 4,
    start: float = 1.0,
    calls: int = 300,
    weight: float = 1e-3,
) -> Scenario:
    f = linear(loss, A, b, batch=batch, weight=weight, start=start)
    return _scenario(f, start=start, calls=calls)


def _quadratic(
    H: Array, noise: Noise, *, calls: int = 150, optimum: Callable[[int], float] = lambda _: 0.0
) -> Scenario:
    """Minimise 1/2 (x - m)^T H (x - m) from 100 in every coordinate, m being optimum(call)."""
    problem = Quadratic(H)
    return Scenario(
        "",
        problem.L,
        np.full(problem.dimension, 100.0),
        calls,
        100.0,
        lambda x, call, rng: problem.gradient(x - optimum(call)) + noise(x.shape, call, rng),
        lambda x, call: np.asarray(problem.value(x - optimum(call))),
    )


def _rotated() -> Array:
    turn = np.linalg.qr(np.random.default_rng(7).standard_normal((10, 10)))[0]
    H = turn @ np.diag(np.logspace(0, -3, 10)) @ turn.T
    return np.asarray(0.5 * (H + H.T))


def _logistic(data: str, batch: int) -> Scenario:
    start, calls = 0.5 if data == "mushrooms" else 1.0, 400 if data == "fourclass" else 300
    _, A, labels = dataset(data)
    if data == "fourclass":
        A = A / np.linalg.norm(A, axis=1).max()
    return _linear("logistic", A, labels, batch=batch, start=start, calls=calls)


def _regression(loss: str) -> Scenario:
    """Fit 20 correlated features to 500 targets, a tenth of them far off for Huber's loss."""
    rng = np.random.default_rng(2024)
    A = correlated(rng, 500, 20, 0.9)
    b = A @ rng.standard_normal(20) + rng.standard_normal(500)
    if loss == "huber":
        b = b + np.where(rng.random(500) < 0.1, 20.0 * rng.standard_normal(500), 0.0)
    return _linear(loss, A, b)


def _poisson() -> Scenario:
    rng = np.random.default_rng(2025)
    A = 0.3 * correlated(rng, 500, 10, 0.9)
    counts = rng.poisson(np.exp(A @ (0.5 * rng.standard_normal(10)) + 0.5)).astype(float)
    return _linear("poisson", A, counts)


def _heavy(shape: tuple[int, ...], _: int, rng: np.random.Generator) -> Array:
    return np.asarray(5.0 * rng.standard_t(2.2, size=shape))


def _uneven(shape: tuple[int, ...], _: int, rng: np.random.Generator) -> Array:
    return np.asarray(30.0 * np.logspace(0, -2, shape[-1]) * rng.standard_normal(shape))


def _white(before: float, after: float) -> Noise:
    """Return Gaussian noise whose size changes after 100 calls."""
    return lambda shape, call, rng: (before if call < 100 else after) * rng.standard_normal(shape)


_SPACED, _STEADY = np.diag(np.linspace(1.0, 1 / 3, 10)), _white(10.0, 10.0)
CHOSEN: dict[str, Callable[[], Scenario]] = {
    "quadratic": partial(_quadratic, _SPACED, _STEADY),
    "narrow valley": lambda: _quadratic(_rotated(), _STEADY),
    **{
        f"{data}, {'single' if batch == 1 else batch}": partial(_logistic, data, batch)
        for data in ("breast-cancer", "fourclass", "mushrooms")
        for batch in (1, 16)
    },
}
# Run once, when every setting was fixed.
HELD_OUT: dict[str, Callable[[], Scenario]] = {
    "least squares": partial(_regression, "square"),
    "Poisson regression": _poisson,
    "support vectors": lambda: _linear("hinge", *dataset("breast-cancer")[1:], weight=1e-2),
    "Huber regression": partial(_regression, "huber"),
    "softmax, digits": lambda: _scenario(digits(batch=16, weight=1e-2), start=0.0, calls=300),
    "heavy tails": lambda: _quadratic(_rotated(), _heavy),
    "uneven noise": lambda: _quadratic(_rotated(), _uneven),
    "noise falls": partial(_quadratic, _SPACED, _white(30.0, 3.0), calls=200),
    "noise rises": partial(_quadratic, _SPACED, _white(3.0, 30.0), calls=200),
    "optimum drifts": partial(_quadratic, _SPACED, _STEADY, calls=200, optimum=lambda k: 0.5 * k),
    "optimum jumps": partial(
        _quadratic, _SPACED, _STEADY, calls=200, optimum=lambda k: 0.0 if k < 150 else 50.0
    ),
}


@cache
def scenario(name: str) -> Scenario:
    """Return a scenario by its name."""
    return (CHOSEN | HELD_OUT)[name]()._replace(name=name)
