"""Curvature bounds that may be functions: what asks them, once for every step."""

from collections.abc import Callable
from typing import Any, NamedTuple

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

    Args:
        limits: makes the limits of a step from its bounds, which it checks.
        bounds: what it is given.

    Attributes:
        fixed: the limits, unless one of the bounds is a function.
    """

    def __init__(self, limits: Callable[..., Limits], *bounds: Bound | None) -> None:
        self._limits, self._bounds = limits, bounds
        self.fixed = None if any(map(callable, bounds)) else self._ask()

    def now(self, sign: float) -> Limits:
        """Return the limits of this step.

        Args:
            sign: -1 if the objective is maximised, and its negative has the curvature assumed.
        """
        found = self.fixed or self._ask()
        return found if sign > 0.0 else found._replace(centre=0.0 - found.centre)

    def _ask(self) -> Limits:
        return self._limits(*map(_now, self._bounds))


def _now(bound: Any) -> Any:  # the caller checks it
    """Return a bound as it is at this step; a tensor with one entry is a number."""
    value: Any = bound() if callable(bound) else bound
    return value.item() if getattr(value, "ndim", None) == 0 else value
