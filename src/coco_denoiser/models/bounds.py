"""Curvature bounds that may be functions: what asks them, once for every step."""

from collections.abc import Callable
from typing import Any, NamedTuple

from coco_denoiser import _validation as check
from coco_denoiser.problem import centre_and_radius

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


class Bounds:
    """Bounds that are numbers, or functions that return them.

    Attributes:
        fixed: the bounds, unless one of them is a function.
    """

    def __init__(self, L: Bound, mu: Bound) -> None:
        self._bounds = L, mu
        self.fixed = None if callable(L) or callable(mu) else self._ask()

    def now(self, sign: float) -> Limits:
        """Return the bounds of this step.

        Args:
            sign: -1 if the objective is maximised, and its negative has the curvature assumed.
        """
        found = self.fixed or self._ask()
        return found if sign > 0.0 else found._replace(centre=-found.centre)

    def _ask(self) -> Limits:
        L, mu = check.curvature(*map(now, self._bounds))
        return Limits(L, mu, *centre_and_radius(L, mu))


def now(bound: Any) -> Any:  # the caller checks it
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value
