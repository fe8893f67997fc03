"""Means over examples, with gradients from random batches: `gaussian` and `constraints` share them.

Every function takes points (runs, d).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, huber, log_softmax, softmax

from coco_denoiser.paper.problems import datasets
from coco_denoiser.typing import Array

Field = Callable[[Array], Array]


class Smooth(NamedTuple):
    """f: its dimension, the largest curvature, value (runs,), gradient and a noisy gradient."""

    dimension: int
    L: float
    value: Field
    gradient: Field
    oracle: Callable[[Array, np.random.Generator], Array]


class _Loss(NamedTuple):
    """A loss of the margin m = a^T x and a target b, its slope, and a bound on its curvature."""

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    curvature: Field = np.ones_like


def _exp(m: Array) -> Array:
    return np.asarray(np.exp(np.minimum(m, 30.0)))


_LOSSES = {
    "square": _Loss(lambda m, b: 0.5 * (m - b) ** 2, lambda m, b: m - b),
    "huber": _Loss(lambda m, b: huber(1.0, m - b), lambda m, b: np.clip(m - b, -1.0, 1.0)),
    "hinge": _Loss(
        lambda m, b: huber(1.0, np.maximum(0.0, 1.0 - b * m)),
        lambda m, b: -b * np.clip(1.0 - b * m, 0.0, 1.0),
    ),
    "logistic": _Loss(
        lambda m, b: np.logaddexp(0.0, -b * m),
        lambda m, b: -b * expit(-b * m),
        lambda m: np.full_like(m, 0.25),
    ),
    # Its curvature has no bound; that at the start is what a user could know.
    "poisson": _Loss(lambda m, b: _exp(m) - b * m, lambda m, b: _exp(m) - b, _exp),
}


def linear(
    loss: str, A: Array, b: Array, *, batch: int, weight: float = 0.0, start: float = 0.0
) -> Smooth:
    """Return mean_i loss(a_i^T x, b_i) + weight/2 ||x||^2, L for a start in every coordinate."""
    kind, (n, d) = _LOSSES[loss], A.shape

    def value(x: Array) -> Array:
        # Summed over examples for few points at a time: a run's whole table would be large.
        return np.array([kind.value(A @ p, b).mean() + 0.5 * weight * p @ p for p in x])

    def gradient(x: Array) -> Array:
        return np.asarray(kind.slope(x @ A.T, b) @ A / n + weight * x)

    def oracle(x: Array, rng: np.random.Generator) -> Array:
        drawn = rng.integers(n, size=(len(x), batch))
        rows = A[drawn]
        slopes = kind.slope(np.einsum("rbd,rd->rb", rows, x), b[drawn])
        return np.asarray(np.einsum("rb,rbd->rd", slopes, rows) / batch + weight * x)

    curvatures = kind.curvature(A @ np.full(d, start))
    L = float(np.linalg.eigvalsh((A.T * curvatures) @ A / n)[-1]) + weight
    return Smooth(d, L, value, gradient, oracle)


def digits(rows: int | None = None, *, batch: int, weight: float = 0.0) -> Smooth:
    """Return multinomial regression on the digits: 64 pixels, 10 classes."""
    pixels, classes = datasets.digits()
    A, labels = pixels[:rows] / 16.0, np.eye(10)[classes[:rows]]
    n = len(A)

    def value(x: Array) -> Array:
        tables = zip(x, x.reshape(-1, 64, 10), strict=True)
        fits = [0.5 * weight * p @ p - (labels * log_softmax(A @ t, axis=1)).sum() / n
                for p, t in tables]  # fmt: skip
        return np.array(fits)

    def gradient(x: Array) -> Array:
        found = [A.T @ (softmax(A @ t, axis=1) - labels) / n for t in x.reshape(-1, 64, 10)]
        return np.asarray(np.stack(found).reshape(x.shape) + weight * x)

    def oracle(x: Array, rng: np.random.Generator) -> Array:
        drawn = rng.integers(n, size=(len(x), batch))
        short = softmax(A[drawn] @ x.reshape(-1, 64, 10), axis=2) - labels[drawn]
        return np.asarray((A[drawn].swapaxes(1, 2) @ short / batch).reshape(x.shape) + weight * x)

    L = 0.5 * float(np.linalg.eigvalsh(A.T @ A / n)[-1]) + weight
    return Smooth(640, L, value, gradient, oracle)


def correlated(rng: np.random.Generator, n: int, d: int, by: float) -> Array:
    """Return features (n, d) whose neighbours are correlated."""
    apart = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.asarray(rng.standard_normal((n, d)) @ np.linalg.cholesky(by**apart).T)
