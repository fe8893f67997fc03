r"""Constraints and penalties: the maps of `run(..., project=, prox=)`, and methods that need them.

A constrained or penalised problem, argmin f(x) + psi(x), is minimised by gradient steps on f and
steps of psi in between,

    prox(x, step) = argmin_z  psi(z) + |z - x|^2 / (2 step),

which is the projection if psi is 0 on a set and infinite elsewhere. Such a map is not linear: what
noise does to the point before it is bias behind it, which no average of points removes. Reduce the
noise before the map.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from coco_denoiser.paper.optimizers.base import DenoiserLike, Optimizer
from coco_denoiser.typing import Array


def soft_threshold(x: Array, amount: float | Array) -> Array:
    """Return the proximal step of amount * |x|_1: every coordinate nearer to 0 by that much.

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser.paper.optimizers import soft_threshold
        >>> soft_threshold(np.array([3.0, -0.5, -2.0]), 1.0)
        array([ 2., -0., -1.])
    """
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - amount, 0.0))


def project_simplex(x: Array, total: float = 1.0) -> Array:
    """Return the nearest points (..., d) without negative coordinates whose sum is `total`.

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser.paper.optimizers import project_simplex
        >>> project_simplex(np.array([1.0, 0.5, -1.0]))
        array([0.75, 0.25, 0.  ])
    """
    descending = -np.sort(-x, axis=-1)
    surplus = np.cumsum(descending, axis=-1) - total
    count = np.arange(1, x.shape[-1] + 1)
    kept = np.sum(descending > surplus / count, axis=-1, keepdims=True)
    shift = np.take_along_axis(surplus, kept - 1, axis=-1) / kept
    return np.asarray(np.maximum(x - shift, 0.0))


def project_l1_ball(x: Array, radius: float = 1.0) -> Array:
    """Return the nearest points (..., d) whose absolute values sum to at most `radius`.

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser.paper.optimizers import project_l1_ball
        >>> project_l1_ball(np.array([2.0, -1.5]))
        array([ 0.75, -0.25])
    """
    inside = np.abs(x).sum(axis=-1, keepdims=True) <= radius
    return np.where(inside, x, np.sign(x) * project_simplex(np.abs(x), radius))


@dataclass(eq=False)
class GradientMean:
    r"""Replace each gradient by a mean of those so far, corrected for where they were observed.

    $$m \leftarrow m + w_k\,(g - c\,x - m), \qquad \theta = m + c\,x$$

    Takes the place of a denoiser, and is a fair baseline for one. The slope $c = 0$ ignores the
    points. Under SGD with a step $\gamma$ and $c = 1/\gamma$, the point before the map is the mean
    of the points $x - \gamma g$ so far: averaged surrogates (Mairal, 2013).

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser.paper.optimizers import GradientMean
        >>> mean = GradientMean(lambda k: 1 / k)
        >>> [mean(np.zeros(1), np.array([g]))[0] for g in (1.0, 3.0, 5.0)]
        [np.float64(1.0), np.float64(2.0), np.float64(3.0)]

    Args:
        weight: $w_k$ for k = 1, 2, ...; by default 2 / (k + 1), but at least 0.01.
        slope: $c$, the curvature to correct for.
    """

    weight: Callable[[int], float] = lambda k: max(2 / (k + 1), 0.01)
    slope: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all gradients."""
        self._count = 0
        self._mean: Array | float = 0.0

    def __call__(self, x: Array, g: Array) -> Array:
        """Take a point and its gradient; return the mean, corrected for the point."""
        self._count += 1
        expected = self.slope * x
        self._mean = self._mean + self.weight(self._count) * (g - expected - self._mean)
        return np.asarray(self._mean + expected)


class DualAveraging(Optimizer):
    r"""Step from the start along the mean of all gradients (Nesterov, 2009; Xiao, 2010).

    $$x_{k+1} = x_1 - \gamma \sqrt{k} \cdot \frac1k \sum_{j \le k} g_j,$$

    and `run` applies the proximal map with the step $\gamma \sqrt k$.
    """

    def forget(self) -> None:
        """Drop the start and the mean."""
        self._start: Array | None = None
        self._mean = GradientMean(lambda k: 1 / k)

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Take in the gradient g at x and return the next point."""
        if self._start is None:
            self._start = np.array(x)
        return self._start - step_size * self._mean(x, g)

    def _size(self) -> float:
        return math.sqrt(self.steps) * super()._size()


class FrankWolfe(Optimizer):
    r"""Move towards the corner of a set that is lowest along the gradient (Frank and Wolfe, 1956).

    $$x_{k+1} = x_k + \gamma_k (c(g) - x_k), \qquad c(g) = \operatorname{argmin}_{z \in C}
    \langle g, z \rangle, \qquad \gamma_k = \frac{2}{k + 1}$$

    Every iterate is in the set, and nothing needs to be tuned.

    Examples:
        The corners of the simplex are the unit vectors:

        >>> import numpy as np
        >>> from coco_denoiser.paper.optimizers import FrankWolfe, run
        >>> optimizer = FrankWolfe(lambda g: np.eye(len(g))[g.argmin()])
        >>> path = run(optimizer, lambda x: x - [0.3, 0.7], [1.0, 0.0], steps=100)
        >>> path[-1].round(1)
        array([0.3, 0.7])

    Args:
        corner: returns $c(g)$.
        denoiser: called as denoiser(x, g).
    """

    def __init__(
        self, corner: Callable[[Array], Array], *, denoiser: DenoiserLike | None = None
    ) -> None:
        super().__init__(lambda k: 2 / (k + 1), denoiser=denoiser)
        self._corner = corner

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return a point on the way from x to the corner that g points to."""
        return x + step_size * (self._corner(g) - x)
