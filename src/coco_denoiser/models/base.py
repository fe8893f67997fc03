"""What a model of the gradients is given of a window, and what it answers.

A model sees K by K numbers only. With h_i = g_i - c0 x_i for a centre c0 that never changes,
dx = x_i - x_j and dh = h_i - h_j, a window knows ||dx||, ||dh|| and the cosine between the two.
Any other centre c is then a matter of arithmetic:

    ||dg - c dx||^2 = ||dh||^2 - 2 (c - c0) <dh, dx> + (c - c0)^2 ||dx||^2.

The answer is a row of weights w that sum to 1, and a centre c: the newest gradient becomes

    theta = sum_i w_i (g_i - c (x_i - x_newest)).
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from coco_denoiser.typing import Array, Float64, Int64


class Snapshot(NamedTuple):
    """A window as a model sees it, indexed by slots; nothing in it may be written to.

    Attributes:
        points: (K, K), distances ||dx|| between points.
        residuals: (K, K), distances ||dh|| between residuals h = g - centre x.
        cosines: (K, K), <dh, dx> / (||dh|| ||dx||); 0 where one of them is 0.
        variances: (K,), relative noise variances.
        order: (K,), the slots from the oldest observation to the newest.
        d: the number of coordinates.
        centre: c0 of the residuals.
        vectors: points and residuals themselves, (K, d) each, where d is below K and they are
            at hand: shorter and more accurate than what can be recovered from the tables.
    """

    points: Float64
    residuals: Float64
    cosines: Float64
    variances: Float64
    order: Int64
    d: int
    centre: float = 0.0
    vectors: tuple[Array, Array] | None = None

    @property
    def newest(self) -> int:
        """The slot of the newest observation."""
        return self.order.item(-1)

    def distances(self, centre: float) -> Float64:
        """Return the distances ||dg - centre dx||, (K, K); at centre 0, those of gradients."""
        shift = centre - self.centre
        if shift != 0.0 and self.vectors is not None:
            h = self.coordinates(centre)
            found: Float64 = np.linalg.norm(h[:, None] - h, axis=2)
            return found
        return recentred(self.points, self.residuals, self.cosines, shift)

    def coordinates(self, centre: float) -> Float64:
        """Return the residuals g - centre x, (K, d), up to a shift that all have in common."""
        if self.vectors is None:
            raise ValueError("there are too many coordinates: use distances().")
        x, h = (np.asarray(v, np.float64) for v in self.vectors)
        return h if centre == self.centre else h - (centre - self.centre) * (x - x[self.newest])


def recentred(points: Float64, residuals: Float64, cosines: Float64, shift: float) -> Float64:
    """Return ||dh - shift dx|| from ||dx||, ||dh|| and the cosine between the two.

    Cancellation is harmless while the shift is not much larger than the radius of the bounds.
    """
    if shift == 0.0:
        return residuals
    X = shift * points
    scale = float(max(np.abs(X).max(initial=0.0), residuals.max(initial=0.0)))
    if scale == 0.0:
        return residuals
    # As a sum of squares that are not negative, in units that cannot overflow.
    X, H = X / scale, residuals / scale
    squares = (H - X) ** 2 + 2.0 * H * X * (1.0 - cosines)
    return np.asarray(scale * np.sqrt(np.maximum(squares, 0.0)))


class Averaging(NamedTuple):
    """How the newest gradient is averaged, and what is known about that.

    Attributes:
        weights: (K,), one for each slot; they sum to 1 and may be negative.
        centre: c, for which residuals g - c x are averaged.
        active: how many pairs of observations were drawn together.
        gap: relative duality gap, where a problem was solved.
        violation: worst relative violation of its constraints.
        trouble: a sentence if the tolerance was not reached, else None.
        std: standard deviation of each coordinate of the answer, if the model knows it.
        noise_std: that of the noise of an observation of variance 1.
        curvature: the curvature that the model has found, or was given.
    """

    weights: Float64
    centre: float
    active: int = 0
    gap: float = 0.0
    violation: float = 0.0
    trouble: str | None = None
    std: float | None = None
    noise_std: float | None = None
    curvature: float | None = None


class Model(ABC):
    """What turns a window into weights. A model that remembers nothing needs `average` only."""

    centre = 0.0  # c of the next answer, as far as it is known before the observation

    def begin(self, sign: float) -> None:
        """Ask for what may change from step to step; called once for every observation.

        Args:
            sign: -1 if the objective is maximised, and its negative has the curvature assumed.
        """
        del sign

    @abstractmethod
    def average(self, window: Snapshot) -> Averaging:
        """Return the weights of the newest observation of a window of two or more."""
