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
    r"""Bounds on the eigenvalues $\lambda$ of the Hessian: $\mu \le \lambda \le L$.

    Examples:
        >>> from coco_denoiser import Cocoercive, Denoiser
        >>> from coco_denoiser.curvature import linear_model
        >>> L, mu = linear_model("squared", [[1.0, 0.0], [0.0, 2.0]])
        >>> Denoiser(model=Cocoercive(L, mu)).L
        2.0
    """

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

    Examples:
        >>> from coco_denoiser import curvature
        >>> curvature.linear_model("squared", [[2.0, 0.0], [0.0, 4.0]], regularization=0.5)
        Curvature(L=8.5, mu=2.5)
    """
    lower, upper = LOSSES[check.one_of("loss", loss, LOSSES)]
    if math.isinf(upper):
        raise ValueError(
            f"loss must have bounded curvature, got {loss!r}, where it grows as exp(a_i' x). Use "
            "coco_denoiser.curvature.spectrum for a bound near one point, or no L at all."
        )
    A = check.table("features", features)
    w = check.per_row("weights", weights, len(A), zero=True)
    ridge = check.not_negative("regularization", regularization)
    n, d = A.shape
    if n < d and not intercept:  # the smaller product has the same largest eigenvalue
        A = A * np.sqrt(w)[:, None]
        return Curvature(upper * (float(np.linalg.eigvalsh(A @ A.T)[-1]) / n) + ridge, ridge)
    penalty = np.full(d, ridge)
    if intercept:
        A, penalty = np.column_stack((A, np.ones(n))), np.append(penalty, 0.0)
    gram, tikhonov = (A.T * w) @ A / n, np.diag(penalty)
    largest = np.linalg.eigvalsh(upper * gram + tikhonov)[-1]
    smallest = np.linalg.eigvalsh(lower * gram + tikhonov)[0]
    return Curvature(float(largest), max(float(smallest), 0.0))


def spectrum(
    product: Callable[[Any], Any], start: Any, *, steps: int = 32, failure: float = 1e-3
) -> Curvature:
    r"""Return bounds on the eigenvalues of a symmetric $H$ from products $H v$.

    Lanczos' method from a random vector. Vectors only need `+`, `-`, `*`, `/` and `@`, so those
    of NumPy, PyTorch and JAX all work.

    After $k$ steps the estimates $\theta_i$ lie between the extreme eigenvalues. How far inside
    is known from the norms $\beta_j$ of the residuals. If the start has the share $s$ of its
    length in the direction of an eigenvalue $\lambda$, then

    $$\prod_i |\lambda - \theta_i| \le \prod_j \beta_j \,/\, s,$$

    and for a random start $s$ is less than $\varepsilon \sqrt{\pi / (2 d)}$ with probability
    $\varepsilon$ at most. The bounds returned are the extreme
    solutions, so both hold with probability 1 - failure, up to rounding. At 32 steps, a million
    variables and a failure of 1e-3, each is wider than the spectrum by about 5% of it if
    eigenvalues are spread evenly, and by much less if the extreme ones stand apart.

    They are bounds for this one matrix. At another point, a loss has another Hessian.

    Args:
        product: returns $H v$ for a vector $v$.
        start: a vector (d,) of independent standard normal numbers.
        steps: products taken, at most. With more of them than there are different eigenvalues,
            the answer is exact, up to rounding.
        failure: the probability that one of the bounds does not hold.

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser import curvature
        >>> H = np.diag([1.0, 2.0, 5.0])
        >>> L, mu = curvature.spectrum(lambda v: H @ v, np.random.default_rng(0).normal(size=3))
        >>> round(L, 9), round(mu, 9)
        (5.0, 1.0)

    References:
        Hochstenbach, [Probabilistic upper bounds for the matrix two-norm](
        https://doi.org/10.1007/s10915-013-9716-x), 2013.
    """
    limit = check.count("steps", steps, optional=False) or 1
    delta = check.positive("failure", failure)
    size = len(start)
    diagonal, norms = _tridiagonal(product, start, limit)
    off = norms[:-1]
    ritz = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    least_share = 0.5 * delta * math.sqrt(0.5 * math.pi / size)  # half of the failures at each end
    above = _margin(ritz[-1] - ritz, norms, least_share)
    below = _margin(ritz - ritz[0], norms, least_share)
    high, low = float(ritz[-1]), float(ritz[0])
    reach = max(high, 0.0) - min(low, 0.0)
    if max(above, below) > 0.25 * reach:
        raise ValueError(
            f"steps must be larger for {size} variables and failure={delta:g}, got {limit}: that "
            f"gives the extreme eigenvalues only to {max(above, below) / reach:.0%} of their size."
        )
    return Curvature(high + above, low - below)


def _margin(gaps: Float64, norms: list[float], share: float) -> float:
    """Return m such that the product of all m + gap is that of the norms / share, or a bit more."""
    if norms[-1] == 0.0:  # a space that H leaves invariant, without rounding
        return 0.0
    target = float(np.log(norms).sum()) - math.log(share)
    low, high = 0.0, math.exp(target / len(norms))
    for _ in range(64):
        middle = 0.5 * (low + high)
        enough = np.log(middle + gaps).sum() >= target
        low, high = (low, middle) if enough else (middle, high)
    return high


def _tridiagonal(
    product: Callable[[Any], Any], start: Any, steps: int
) -> tuple[list[float], list[float]]:
    """Return the diagonal of Lanczos' matrix and the norms of the residuals, the next diagonal.

    The last norm is not part of the matrix. Rounding duplicates eigenvalues that were found but
    makes no false extremes, so earlier vectors need not be kept. Nor need it stop early: a small
    residual does not tell that all is found, and what rounding leaves is another random start.
    """
    diagonal: list[float] = []
    norms: list[float] = []
    v, before = start / math.sqrt(float(start @ start)), None
    unit = 0.0
    while len(diagonal) < steps and 0.0 not in norms:
        w = product(v)
        unit = unit or _unit(w)
        w = unit * w
        along = float(v @ w)
        if not math.isfinite(along):
            raise FloatingPointError(f"product must return finite numbers, got {along} as v' H v.")
        w = w - along * v if before is None else w - along * v - norms[-1] * before
        diagonal.append(along)
        norms.append(math.sqrt(float(w @ w)))
        before, v = v, w / (norms[-1] or 1.0)
    return [a / unit for a in diagonal], [b / unit for b in norms]


@np.errstate(over="ignore")
def _unit(w: Any) -> float:
    """Return a power of two by which to multiply a vector, so that squares stay in range."""
    for power in range(0, 1020, 30):
        for unit in (2.0**power, 2.0**-power):
            if 1e-20 < float((unit * w) @ (unit * w)) < 1e20:
                return unit
    return 1.0
