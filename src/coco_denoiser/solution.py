"""What a solver answers: the denoised gradients, how they were averaged, and how good they are."""

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from coco_denoiser.typing import Float64


class Status(Enum):
    """How the solver ended.

    Attributes:
        message: that, as a sentence.
        success: whether the tolerance was reached.
    """

    SOLVED = "solved to tol", True
    ESTIMATED = "estimated by the Gaussian model", True
    UNCHANGED = "the observations already obey the curvature bounds and are unchanged", True
    ITERATION_LIMIT = "stopped before reaching tol: iteration limit", False
    STALLED = "stopped before reaching tol: work limit or machine precision", False
    REFUSED = "refused: a number is not finite or too large, and the gradient is unchanged", False

    def __init__(self, message: str, success: bool) -> None:  # noqa: FBT001 - from a tuple
        self.message, self.success = message, success

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class Answer(NamedTuple):
    """The answer to a reduced problem, in its units; a Solution is in those of the observations.

    Attributes:
        phi: (K, q), the residuals.
        weights: (K, K) matrix W of phi = W h.
        multipliers: (K, K), one number for each pair.
        gap: relative duality gap, by the certificate.
        violation: worst relative violation of a bound, by the certificate.
        iterations: number of iterations.
        method: the name of the method that answered.
        status: how it ended.
    """

    phi: Float64
    weights: Float64
    multipliers: Float64
    gap: float
    violation: float
    iterations: int
    method: str
    status: Status

    def solution(self, gradients: Float64, multipliers: Float64) -> "Solution":
        """Return the same in the units of the observations."""
        unknown = np.empty(len(gradients))
        unknown.fill(np.nan)  # quicker than np.full
        return Solution(
            gradients=gradients,
            weights=self.weights,
            multipliers=multipliers,
            gap=self.gap,
            violation=self.violation,
            iterations=self.iterations,
            method=self.method,
            status=self.status,
            std=unknown,
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Solution:
    r"""The denoised gradients, and what is known about them. What a model does not know is NaN.

    Examples:
        Two noisy gradients at one point are averaged:

        >>> from coco_denoiser import solve
        >>> solution = solve([[0.0], [0.0]], [[1.0], [3.0]], L=1.0)
        >>> solution.gradients
        array([[2.],
               [2.]])
        >>> solution.weights
        array([[0.5, 0.5],
               [0.5, 0.5]])
        >>> print(solution.status)
        solved to tol

    Attributes:
        gradients: (K, d), the denoised gradients.
        weights: (K, K) matrix W of the average $\theta - c x = W (g - c x)$: rows sum to 1, no
            entry is negative. With a covariance every direction has weights of its own, and
            these are NaN; those of the Gaussian model may be negative.
        multipliers: (K, K), one number for each pair, symmetric;
            $W = (N + \text{Laplacian})^{-1} N$ with N = diag(1 / noise_variance). With a
            covariance, the multipliers refer to it and to the variances together.
            Infinite for points that coincide; NaN for the Gaussian model.
        gap: duality gap, relative to the objective; for the Gaussian model, the relative
            residual of its linear systems.
        violation: worst excess of a pair's distance over its bound, relative to the bound.
        iterations: number of iterations.
        method: the name of the method that answered.
        status: how it ended.
        std: (K,), for the Gaussian model: standard error of every coordinate of each gradient.
        noise_std: standard deviation of the noise of an observation of variance 1.
        curvature: size of the slope, s sqrt(d), comparable with L.
    """

    gradients: Float64
    weights: Float64
    multipliers: Float64
    gap: float
    violation: float
    iterations: int
    method: str
    status: Status
    std: Float64
    noise_std: float = math.nan
    curvature: float = math.nan

    def __repr__(self) -> str:
        """Show shapes and the verdict; the arrays are fields."""
        shape = " x ".join(map(str, self.gradients.shape))
        checked = "" if math.isnan(self.violation) else f", violation={self.violation:.1e}"
        return (
            f"Solution({shape} gradients, status=Status.{self.status.name}, "
            f"gap={self.gap:.1e}{checked}, method={self.method!r}, iterations={self.iterations})"
        )


class ConvergenceError(RuntimeError):
    """No method reached the tolerance; `solution` is the best that was found, certified."""

    def __init__(self, solution: Solution, tol: float) -> None:
        self.solution = solution
        worst = solution.violation
        violated = "" if math.isnan(worst) else f"violation {worst:.1e}, "
        super().__init__(
            f"{solution.method} {solution.status}: relative gap {solution.gap:.1e}, "
            f"{violated}tol={tol:.1e}. Raise tol or max_iter, or pass "
            "throw=False to get this answer with its status."
        )


class ConvergenceWarning(RuntimeWarning):
    """A step of a stream did not reach the tolerance."""
