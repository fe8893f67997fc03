"""Where L and mu come from if you do not know them.

From the data of a linear model (`linear_model`), or from Hessian-vector products of any loss
(`spectrum`). A stream of gradients needs neither with the Gaussian model.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.typing import ArrayLike, Float64

__all__ = ["Curvature", "linear_model", "spectrum"]

# Infimum and supremum of the second derivative of each loss; of the largest eigenvalue of
# diag(p) - p p' for softmax, whose scores are one per class.
LOSSES: dict[str, tuple[float, float]] = {
    "squared": (1.0, 1.0),  # 1/2 (t - b)^2
    "logistic": (0.0, 0.25),  # log(1 + exp(-b t))
    "softmax": (0.0, 0.5),  # log sum_c exp(t_c) - t_b
    "huber": (0.0, 1.0),  # 1/2 (t - b)^2 near 0, of slope 1 at most
    "squared hinge": (0.0, 1.0),  # 1/2 max(0, 1 - b t)^2
    "log-cosh": (0.0, 1.0),
    "poisson": (0.0, math.inf),  # exp(t) - b t
}


class Curvature(NamedTuple):
    r"""Bounds on the eigenvalues $\lambda$ of the Hessian: $\mu \le \lambda \le L$."""

    L: float
    mu: float


def linear_model(
    loss: str,
    features: ArrayLike,
    *,
    regularization: float = 0.0,
    weights: ArrayLike | None = None,
    intercept: bool = False,
) -> Curvature:
    r"""Return L and mu of a generalised linear model.

    $$\operatorname{argmin}_x\ \frac1n \sum_i w_i\, \text{loss}(a_i^\top x, b_i)
    + \frac{\text{regularization}}{2} \|x\|^2$$

    Over all x, the smallest L and the largest mu that hold for "squared" and "logistic"; for
    the others L may be larger than necessary, since there may be no x that has the largest
    second derivative for all examples at once. The labels $b_i$ do not matter: the second
    derivative of the loss lies between two numbers whatever the label, so the Hessian lies
    between these numbers times $\frac1n \sum_i w_i a_i a_i^\top$.

    Args:
        loss: "squared", "logistic", "softmax", "huber" (slope 1 at most), "squared hinge" or
            "log-cosh". The curvature of "poisson" has no bound.
        features: the rows $a_i$, (n, d).
        regularization: weight of the Tikhonov term, which leaves out the intercept.
        weights: $w_i$, (n,), not negative; None for 1.
        intercept: whether the model has one, as if `features` had a column of ones.
    """
    lower, upper = LOSSES[check.one_of("loss", loss, LOSSES)]
    if math.isinf(upper):
        raise ValueError(
            f"loss must have bounded curvature, got {loss!r}, where it grows as exp(a_i' x). Use "
            "coco_denoiser.curvature.spectrum for a bound near one point, or no L at all."
        )
    A, w = check.weighted_table(features, weights)
    ridge = check.not_negative("regularization", regularization)
    n, d = A.shape
    if intercept:
        A = np.column_stack((A, np.ones(n)))
        return _with_intercept((A.T * w) @ A / n, lower, upper, ridge)
    if n >= d:
        gram = (A.T * w) @ A
    else:
        # The smaller product has the same eigenvalues, but for zeros.
        A = A * np.sqrt(w)[:, None]
        gram = A @ A.T
    eigenvalues = np.linalg.eigvalsh(gram)
    smallest = max(float(eigenvalues[0]), 0.0) if n >= d else 0.0
    return Curvature(upper * (float(eigenvalues[-1]) / n) + ridge, lower * (smallest / n) + ridge)


def _with_intercept(gram: Float64, lower: float, upper: float, ridge: float) -> Curvature:
    penalty = np.diag(np.append(np.full(len(gram) - 1, ridge), 0.0))
    largest = np.linalg.eigvalsh(upper * gram + penalty)[-1]
    smallest = np.linalg.eigvalsh(lower * gram + penalty)[0]
    return Curvature(float(largest), max(float(smallest), 0.0))


def spectrum(
    product: Callable[[Any], Any], start: Any, *, steps: int = 32, failure: float = 1e-3
) -> Curvature:
    r"""Return bounds on the eigenvalues of a symmetric $H$ from products $H v$.

    Lanczos' method from a random vector. Vectors only need `+`, `-`, `*`, `/` and `@`, so those
    of NumPy, PyTorch and JAX all work.

    After $k$ steps the estimate of the largest eigenvalue is too low. For a random start it is
    known by how much: by more than the fraction $e$ of the spread of the eigenvalues
    with probability at most $1.648 \sqrt{d} \exp(-\sqrt{e}\, (2k - 1))$ (Kuczynski and
    Wozniakowski, 1992; a shift changes nothing, so this holds for an indefinite $H$ too). The
    bounds returned are wider by that fraction, so both hold with probability 1 - failure.
    At 32 steps, a million variables and a failure of 1e-3, that is 6% of the spread.

    They are bounds for this one matrix. At another point, a loss has another Hessian.

    Args:
        product: returns $H v$ for a vector $v$.
        start: a vector (d,) of independent standard normal numbers.
        steps: products taken, at most. With d of them, or as many as there are
            different eigenvalues, the answer is exact, up to rounding.
        failure: the probability that one of the bounds does not hold.
    """
    limit = check.count("steps", steps, optional=False) or 1
    delta = check.positive("failure", failure)
    size = len(start)
    diagonal, off = _tridiagonal(product, start, min(limit, size))
    ritz = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    low, high = float(ritz[0]), float(ritz[-1])
    k = len(diagonal)
    if k == size or k < limit:
        return Curvature(high, low)
    share = (math.log(1.648 * math.sqrt(size) * 2.0 / delta) / (2 * k - 1)) ** 2
    if share >= 0.25:
        raise ValueError(
            f"steps must be larger for {size} variables and failure={delta:g}, got {k}: that "
            f"gives the extreme eigenvalues only to {share:.0%} of their spread."
        )
    # Both ends may be off by the share of the true spread, which is larger than what was seen.
    margin = share * (high - low) / (1.0 - 2.0 * share)
    return Curvature(high + margin, low - margin)


def _tridiagonal(
    product: Callable[[Any], Any], start: Any, steps: int
) -> tuple[list[float], list[float]]:
    """Return the diagonal and the next one of Lanczos' matrix, by its three-term recurrence.

    Rounding duplicates eigenvalues that were found but makes no false extremes, so earlier vectors
    need not be kept.
    """
    diagonal: list[float] = []
    off: list[float] = []
    v, before, norm = start / math.sqrt(float(start @ start)), None, 0.0
    for _ in range(steps):
        w = product(v)
        along = float(v @ w)
        if not math.isfinite(along):
            raise FloatingPointError(f"product must return finite numbers, got {along} as v' H v.")
        diagonal.append(along)
        w = w - along * v if before is None else w - along * v - norm * before
        norm = math.sqrt(float(w @ w))
        scale = max(map(abs, diagonal + off))
        # Everything is found that a random start can reach, which is every eigenvalue.
        if norm <= 1e-6 * scale or len(diagonal) == steps:
            break
        off.append(norm)
        before, v = v, w / norm
    return diagonal, off
