"""A plain function as an oracle: gradient(x), or gradient(x, rng) if it draws its own noise."""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from coco_denoiser.typing import Array

GradientFunction: TypeAlias = Callable[..., Any]  # what it returns is checked
"""Returns a noisy gradient at a point x: called as gradient(x) or as gradient(x, rng)."""


class FunctionOracle:
    """The oracle of a plain function, and nothing else: no value, curvature or minimiser.

    Args:
        gradient: called as gradient(x, rng) if it takes a second positional argument that is
            required or has the name rng or generator; otherwise as gradient(x).
        dimension: the length of a point, its last axis.
    """

    def __init__(self, gradient: GradientFunction, dimension: int) -> None:
        self.dimension = dimension
        self._gradient = gradient
        self.draws = takes_generator(gradient)

    def oracle(self, x: Array, rng: np.random.Generator | None) -> Array:
        """Return one noisy gradient at x, of the shape of x."""
        # A copy: the function may keep or overwrite what it is given.
        found = self._gradient(x.copy(), rng) if self.draws else self._gradient(x.copy())
        if isinstance(found, tuple):
            raise TypeError(
                f"gradient must return the gradient alone, got a tuple of {len(found)}, such as "
                "(value, gradient)."
            )
        g = np.asarray(found)
        if g.dtype.kind not in "iuf" or g.shape != x.shape:
            got = f"shape {g.shape}" if g.dtype.kind in "iuf" else repr(found)
            raise ValueError(
                f"gradient must return real numbers of the shape of x, {x.shape}, got {got}."
            )
        return g.astype(x.dtype)


def takes_generator(gradient: GradientFunction) -> bool:
    """Return whether a function takes a generator after the point."""
    try:
        parameters = inspect.signature(gradient).parameters.values()
    except ValueError:  # some compiled functions have no signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    second = positional[1:2]
    return any(p.default is p.empty or p.name in ("rng", "generator") for p in second)
