"""What a solver answers: the denoised gradients, how they were averaged, and how good they are."""

from dataclasses import dataclass
from enum import Enum

from coco_denoiser.typing import Float64


class Status(Enum):
    """How the solver ended, as a sentence."""

    SOLVED = "solved to the tolerance asked for"
    UNCHANGED = "the observations already agree with the curvature bounds and are unchanged"
    ITERATION_LIMIT = "stopped at the iteration limit, before the tolerance was reached"
    STALLED = "stopped where rounding allows no further progress, before the tolerance was reached"

    @classmethod
    def of(
        cls, gap: float, violation: float, tol: float, *, unchanged: bool, exhausted: bool
    ) -> "Status":
        """Return the status that a certificate earns: there is no other way to one.

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
        return self in (Status.SOLVED, Status.UNCHANGED)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a window once it is solved; its size does not depend on d.

    Attributes:
        weights: (K, K) matrix W of the average phi = W h; rows sum to 1, no entry is negative.
        multipliers: (K, K), one number a pair, symmetric; W = (N + Laplacian)^-1 N with
            N = diag(1 / noise_variance). Infinite for points that coincide.
        gap: duality gap, relative to the objective.
        violation: worst excess of a pair's distance over its bound, relative to the bound.
        iterations: number of iterations.
        method: the name of the method that answered.
        status: how it ended.
    """

    weights: Float64
    multipliers: Float64
    gap: float
    violation: float
    iterations: int
    method: str
    status: Status


@dataclass(frozen=True, slots=True)
class Solution(Answer):
    r"""An answer together with the denoised gradients, (K, d).

    With constraints="interpolation" there are also `values`, (K,), of a function that has these
    gradients; they are None otherwise. The multipliers are then those of the ordered pairs, of
    $f_i \ge f_j + \dots$, and the weights are what the residuals have of each other, to which a
    share of the points is added. With a covariance there is a matrix of weights for each of its
    eigenvalues, from the least to the largest, (d, K, K).
    """

    gradients: Float64
    values: Float64 | None = None


class ConvergenceError(RuntimeError):
    """No method reached the tolerance; `solution` is the best that was found, certified."""

    def __init__(self, solution: Solution, tol: float) -> None:
        self.solution = solution
        super().__init__(
            f"{solution.method} {solution.status.value}: relative gap {solution.gap:.1e}, "
            f"violation {solution.violation:.1e}, tol={tol:.1e}. Raise tol or max_iter, or pass "
            "throw=False to get this answer with its status."
        )


class ConvergenceWarning(RuntimeWarning):
    """A step of a stream was answered with less than the tolerance asked for."""
