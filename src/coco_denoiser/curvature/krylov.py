"""Bounds on the eigenvalues of a Hessian of which only products with vectors are known.

Lanczos' method from a random vector. Vectors only need `+`, `-`, `*`, `/` and `@`, so those of
NumPy, PyTorch and JAX all work.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.curvature.bounds import Curvature


def spectrum(
    product: Callable[[Any], Any], start: Any, *, steps: int = 32, failure: float = 1e-3
) -> Curvature:
    r"""Return bounds on the eigenvalues of a symmetric $H$ from products $H v$.

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
