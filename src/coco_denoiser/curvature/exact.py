"""The curvature of a linear model, from its data alone.

The labels b_i do not matter: the second derivative of the loss lies between two numbers
whatever the label, so the Hessian lies between these numbers times (1/n) sum_i w_i a_i a_i'.
"""

import math

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.curvature.bounds import Curvature
from coco_denoiser.typing import ArrayLike, Float64

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
    second derivative for all examples at once.

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
