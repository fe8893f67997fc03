"""What a model is, and curvature bounds that may be functions, asked once for every step."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from coco_denoiser.solution import Solution
from coco_denoiser.typing import Float64
from coco_denoiser.window import Estimate, Window

Bound = float | Callable[[], float]


class Limits(NamedTuple):
    """Curvature bounds at one step.

    Attributes:
        L: the upper bound; infinite if there is none.
        mu: the lower bound.
        centre: c, for which residuals g - c x are averaged.
        radius: r; NaN for a model that bounds no pair.
    """

    L: float
    mu: float
    centre: float
    radius: float


class Model:
    """What turns a window into weights: functions of tables and numbers, and their options.

    A model of one's own derives from it and has `estimate`; the rest is for those who need it.

    Attributes:
        name: what users call it.
        window: how many observations are kept unless they say otherwise.
        folds: whether an observation may stand for several.
        tol: what an answer must reach.
        max_iter: limit on the steps of a solver; None leaves it to the method.
        compiled: whether the core answers in a stream of arrays, without asking `estimate`.
        fixed: what `limits` returns, if that never changes.
    """

    name: ClassVar[str] = "custom"
    window: ClassVar[int] = 16
    folds: ClassVar[bool] = False
    tol: float = math.nan
    max_iter: int | None = None
    compiled: bool = False
    fixed: Limits | None = None

    def fix(self, *bounds: object) -> None:
        """Check the bounds; they stay what they are unless one of them is a function."""
        self.fixed = None if any(map(callable, bounds)) else self.ask()

    @property
    def settings(self) -> dict[str, object]:
        """Its name and its options: a saved state must have been made with the same."""
        return {"model": self.name}

    def ask(self) -> Limits:
        """Return the curvature bounds as they are now: none, and residuals are the gradients."""
        return Limits(math.inf, -math.inf, 0.0, math.nan)

    def limits(self, sign: float) -> Limits:
        """Ask for what may change from step to step; called once for every observation.

        Args:
            sign: -1 if the objective is maximised, and its negative has the curvature assumed.
        """
        found = self.fixed or self.ask()
        return found if sign > 0.0 else found._replace(centre=0.0 - found.centre)

    def estimate(self, window: Window, limits: Limits, before: Estimate | None = None) -> Estimate:
        """Return the weights of the newest observation of a window of two or more.

        Args:
            window: the tables, with the observation.
            limits: the curvature bounds.
            before: the estimate of the last step, to start from.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answer to a window.")

    def solution(
        self, window: Window, limits: Limits, found: Estimate | None, g: Float64, h: Float64
    ) -> Solution:
        """Return what is known of all gradients, from the oldest to the newest.

        Args:
            window: the tables, after a step.
            limits: the curvature bounds of that step.
            found: its estimate; None if the window had one observation.
            g: (count, d), the gradients, in this order.
            h: (count, d), their residuals at the centre of the limits.
        """
        raise NotImplementedError(f"{type(self).__name__} only knows the newest gradient.")

    def batch(
        self, x: Float64, g: Float64, variances: Float64, covariance: Float64 | None
    ) -> Solution:
        """Return what is known of the gradients of a batch, all arguments being checked.

        Args:
            x: (K, d), the points.
            g: (K, d), the noisy gradients.
            variances: (K,), of their noise.
            covariance: (d,) or (d, d), what these are multiplied by; None for 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no answer to a batch.")


def now(*bounds: Any) -> Any:  # the caller checks them
    """Return bounds as they are at this step; a tensor with one entry is a number."""
    found = []
    for bound in bounds:
        value: Any = bound() if callable(bound) else bound
        foreign = getattr(value, "ndim", None) == 0 and not isinstance(value, np.ndarray)
        found.append(value.item() if foreign else value)
    return found
