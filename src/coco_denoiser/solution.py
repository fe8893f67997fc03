"""What a solver answers: the denoised gradients, how they were averaged, and how good they are."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from coco_denoiser.typing import Float64


class Status(Enum):
    """How the solver ended, as a sentence."""

    SOLVED = "solved to the tolerance asked for"
    ESTIMATED = "estimated by the Gaussian model"
    UNCHANGED = "the observations already agree with the curvature bounds and are unchanged"
    ITERATION_LIMIT = "stopped at the iteration limit, before the tolerance was reached"
    STALLED = "gave up at the limit of its work or of rounding, before the tolerance was reached"

    @classmethod
    def of(
        cls, gap: float, violation: float, tol: float, *, unchanged: bool, exhausted: bool
    ) -> "Status":
        """Return the status that a certificate earns.

        Args:
            gap: relative duality gap.
            violation: worst relative violation.
            tol: what both must reach.
            unchanged: whether the answer is the observations, to the last bit.
            exhausted: whether the iterations were used up.
        """
        if gap <= tol and violation <= tol:
            return cls.UNCHANGED if unchanged else cls.SOLVED
        return cls.ITERATION_LIMIT if exhausted else cls.STALLED

    @property
    def success(self) -> bool:
        """Whether the tolerance was reached."""
        return self is Status.SOLVED or self is Status.UNCHANGED or self is Status.ESTIMATED

    def __str__(self) -> str:
        """Return the sentence."""
        return self.value


class Answer(NamedTuple):
    """What is known of a window once it is solved, in its own units and coordinates.

    Attributes:
        average: (K, K), W of phi = W h; None if no single matrix serves all coordinates.
        phi: (K, q), the residuals of the answer.
        multipliers: (K, K), one number for each pair; infinite for points that coincide.
        gap: duality gap, relative to the objective.
        violation: worst excess of a pair's distance over its bound, relative to the bound.
        iterations: number of iterations.
        method: the name of the method that answered.
        status: how it ended.
        unchanged: whether phi is h, to the last bit.
    """

    average: Float64 | None
    phi: Float64
    multipliers: Float64
    gap: float
    violation: float
    iterations: int
    method: str
    status: Status
    unchanged: bool

    @property
    def weights(self) -> Float64:
        """W (K, K), of a window that has one: any but those with a covariance."""
        if self.average is None:
            raise ValueError("this window has no single matrix of weights for all coordinates.")
        return self.average


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Solution:
    r"""The denoised gradients, and what is known about them.

    Attributes:
        gradients: (K, d), the denoised gradients.
        weights: (K, K) matrix W of the average $\theta - c x = W (g - c x)$: rows sum to 1, no
            entry is negative. None if the answer is not such an average; `no_weights` says why.
        no_weights: why there are no weights; None where there are.
        multipliers: (K, K), one number for each pair, symmetric;
            $W = (N + \text{Laplacian})^{-1} N$ with N = diag(1 / noise_variance). With a
            covariance, the multipliers refer to it and to the variances together.
            Infinite for points that coincide.
        gap: duality gap, relative to the objective.
        violation: worst excess of a pair's distance over its bound, relative to the bound.
        iterations: number of iterations.
        method: the name of the method that answered.
        status: how it ended.
        std: (K,), for the Gaussian model: standard error of every coordinate of each gradient.
            Its weights may be negative, its multipliers and violation are None, and its gap is
            the relative residual of the linear systems.
        noise_std: standard deviation of the noise of an observation of variance 1.
        curvature: size of the slope, s sqrt(d), comparable with L.
    """

    gradients: Float64
    # None for some models only, whose callers know it: with an optional type, all would check.
    weights: Any
    multipliers: Any
    gap: float
    violation: Any
    iterations: int
    method: str
    status: Status
    no_weights: str | None = None
    std: Float64 | None = None
    noise_std: float | None = None
    curvature: float | None = None

    def __repr__(self) -> str:
        """Show shapes and the verdict; the arrays are fields."""
        shape = " x ".join(map(str, self.gradients.shape))
        checked = "" if self.violation is None else f", violation={self.violation:.1e}"
        return (
            f"Solution({shape} gradients, status=Status.{self.status.name}, "
            f"gap={self.gap:.1e}{checked}, method={self.method!r}, iterations={self.iterations})"
        )


class ConvergenceError(RuntimeError):
    """No method reached the tolerance; `solution` is the best that was found, certified."""

    def __init__(self, solution: Solution, tol: float) -> None:
        self.solution = solution
        worst = solution.violation
        violated = "" if worst is None else f"violation {worst:.1e}, "
        super().__init__(
            f"{solution.method} {solution.status}: relative gap {solution.gap:.1e}, "
            f"{violated}tol={tol:.1e}. Raise tol or max_iter, or pass "
            "throw=False to get this answer with its status."
        )


class ConvergenceWarning(RuntimeWarning):
    """A step of a stream did not reach the tolerance."""
