"""The path of `minimize`: stochastic gradient descent that finds its own step, and its answer.

- The step is that of DoG, "distance over gradients" (Ivgi, Hinder and Carmon, 2023): the largest
  distance from x0 so far, over the root of the sum of all squared gradients so far. It begins
  with 10% of the length of x0, grows while the path travels, and shrinks once it stays
  where it is.
- While successive stretches of the path point the same way, momentum grows, up to 1/2.
- Along the curvatures of a linear field of gradients, fitted to all calls, the step is implicit.
  A projection or a proximal map follows a plain step.
- The answer is the minimum of that field, if tests tell that it holds. Otherwise it is the average
  of the last part of the path. The longest part would average out the most noise, so the part is
  chosen by its mean gradient, which tells whether the path was still travelling, and by its noise.
  If a long part contains a move of the minimum, its two halves lie further apart than noise
  explains, given the curvature that the last points show. That part, and all longer ones, are
  then left out.
- A projection turns noise into bias, which averages keep; so the average is followed by one more
  step, along the average gradient. In the place of a mean gradient g at x stands the gradient
  mapping (x - prox(x - s g, s)) / s, which is zero at a solution.
"""

import copy
import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from coco_denoiser import regression
from coco_denoiser.typing import Array, Float64

Project: TypeAlias = Callable[[Array], Array]
Prox: TypeAlias = Callable[[Array, float | Array], Array]

# Chosen on the problems of `python -m benchmarks minimize` that are named so there.
_FIRST = 0.1  # the first distance, as a share of the length of x0
_REFIT = 1.12  # growth of the number of calls between two fits for the step
_PROTECT = 0.25  # steps along a curvature h are at most 1 / (h max(1, _PROTECT sqrt(calls)))
_FASTER, _SLOWER = 0.1, 0.5  # log change of the speed for a cosine of 1 and of -1
_FASTEST = 2.0
_POINTS, _FEW = 1024, 64  # points that are kept, before they are joined; and beyond
_LARGEST = 512  # coordinates, where nothing is fitted
_SHORTEST = 0.2  # of the path, in the average
_TRAVEL = 30.0  # weight of the mean gradient: it points where curvature is small, unlike noise
_APART = 3.5  # standard errors by which the two halves of the average's part may differ
_FAR = 1e7  # lengths of x0, beyond which a path diverges unless its gradients shrink
_WINDOW = 32  # points that are recent


def length(v: Float64) -> float:
    """Return ||v||, whatever its scale."""
    largest = float(np.abs(v).max())
    return largest * float(np.linalg.norm(v / largest)) if largest > 0.0 else 0.0


def _unit(size: float) -> float:
    """Return a power of two near a size, to multiply with without rounding."""
    return 2.0 ** math.frexp(size)[1]


class Answer(NamedTuple):
    """A point, the gradient there with its standard errors, and whether it may be a minimum."""

    x: Float64
    gradient: Float64
    std: Float64
    stationary: bool


class Path:
    """Where a descent is, and all that it remembers, in units of x0 and of the first gradient.

    What goes in and comes out, `prox` included, has no units and the shape of x0.
    """

    def __init__(self, x0: Float64) -> None:
        self.shape = x0.shape
        x = x0.reshape(-1)
        self.unit, self.scale = _unit(length(x)), 1.0  # of points and of gradients
        self.x = self.start = x / self.unit
        self.reach = _FIRST * (length(self.start) or 1.0)  # the largest distance from the start
        self.velocity, self.gain = np.zeros(x.size), 0.0  # and the sum of its gradients' weights
        self.turn = self.start  # where this stretch began
        self.way: Float64 | None = None  # of the last one
        self.speed, self.turns, self.due = 1.0, 8, 8  # steps at the next turn and at the next fit
        self.prox: Prox | None = None
        self.constrained = False  # whether it has a prox, which is not saved
        self.curvatures: tuple[Float64, Float64] | None = None  # and their axes
        self.squares, self.steps = 0.0, 0  # the sum of squared gradients
        self.size = 1  # calls of a point
        self.points: list[tuple[int, Float64, Float64]] = []
        self.history: list[float] = []  # lengths of gradients, by call

    def copy(self) -> "Path":
        """Return a path that goes on from here."""
        other = copy.copy(self)
        other.prox, other.points, other.history = self.prox, [*self.points], [*self.history]
        return other

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"prox": None}  # most functions cannot be pickled

    @property
    def point(self) -> Float64:
        """Return where the next gradient is asked for."""
        return self._out(self.unit * self.x)

    def _out(self, v: Float64) -> Float64:
        return v.reshape(self.shape)

    def step(self, gradient: Float64) -> None:
        """Take one step along a noisy gradient at x."""
        g = gradient.reshape(-1)
        self.history.append(length(g))
        if not self.squares:
            self.scale = _unit(self.history[-1] or 1.0)
        g = g / self.scale
        self._keep(g)
        self.steps += 1
        self.squares += float(g @ g)
        if not self.squares > 0.0:
            return
        if self.steps >= self.due:
            self._refit()
        stiff, kept = math.sqrt(self.squares) / self.reach, 1.0 - 1.0 / self.speed
        self.velocity, self.gain = kept * self.velocity + g, kept * self.gain + 1.0
        if self.curvatures is None:
            self.x = self._mapped(self.x - self.velocity / stiff, self.gain / stiff)
        else:
            h, axes = self.curvatures
            implicit = stiff + max(1.0, _PROTECT * math.sqrt(self.steps)) * h
            self.x = self.x - axes @ ((axes.T @ self.velocity) / implicit)
        self.reach = max(self.reach, float(np.linalg.norm(self.x - self.start)))
        if self.steps >= self.turns:
            self._turn()

    def _turn(self) -> None:
        """End a stretch of the path."""
        self.turns += max(8, self.steps // 24)
        way, self.turn = self.x - self.turn, self.x
        if self.way is not None:
            size = float(np.linalg.norm(way) * np.linalg.norm(self.way))
            cosine = float(way @ self.way) / size if size > 0.0 else 0.0
            change = math.exp((_FASTER if cosine > 0.0 else _SLOWER) * cosine)
            self.speed = min(max(self.speed * change, 1.0), _FASTEST)
        self.way = way

    def _mapped(self, x: Float64, step: float) -> Float64:
        """Project x, or take the proximal step."""
        if self.prox is None:
            return x
        after = self.prox(self._out(self.unit * x), step * self.unit / self.scale)
        return np.asarray(after, dtype=np.float64).reshape(x.shape) / self.unit

    def _keep(self, g: Float64) -> None:
        """Add a point, or to the last one; join all in pairs when they are too many."""
        count, x = 0, self.x
        if self.points and self.points[-1][0] < self.size:
            count, x, mean = self.points.pop()
            x, g = x + (self.x - x) / (count + 1), mean + (g - mean) / (count + 1)
        self.points.append((count + 1, x, g))
        most = _POINTS if self.x.size <= _LARGEST else _FEW
        if len(self.points) == most and count + 1 == self.size:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [(2 * n, (x + y) / 2.0, (g + f) / 2.0) for (n, x, g), (_, y, f) in pairs]
            self.size *= 2

    def _arrays(self) -> tuple[Float64, Float64, Float64]:
        counts, X, G = zip(*self.points, strict=True)
        return np.array(X), np.array(G), np.array(counts, dtype=np.float64)

    def _refit(self) -> None:
        """Fit the curvatures, late calls preferred."""
        self.due = int(_REFIT * self.steps) + 1
        if self.prox is None and self.x.size <= _LARGEST:
            X, G, counts = self._arrays()
            found = regression.fit(X, G, counts * np.cumsum(counts))
            self.curvatures = None if found is None else (found.h, found.axes)

    @property
    def runs_away(self) -> bool:
        """Whether the path leads far away along gradients that do not shrink."""
        first, last = self.history[:8], self.history[-8:]
        return self.reach > _FAR and bool(np.nanmean(last) >= 0.5 * np.nanmean(first))

    def answer(self) -> Answer:
        """Return the minimum of the fitted field, or the average where it does not hold.

        The standard errors are NaN for the average.
        """
        std = np.full_like(self.x, np.nan)
        if not self.squares > 0.0:
            x, g = self._mapped(self.x, self.reach), 0.0 * self.x if self.points else std
        else:
            first, x, g = self.average()
            ascent, x = self.mapping(x, g)
            if self.x.size <= _LARGEST:
                prox = None if self.prox is None else self._mapped
                average = (first, x, ascent)
                x, g, std = regression.answer(*self._arrays(), average, prox) or (x, g, std)
        # The largest of d normal numbers is rarely beyond sqrt(2 log d) + 2.
        limit = (math.sqrt(2.0 * math.log(g.size)) + 2.0) * std
        known = bool(np.isfinite(std).all())
        stationary = known and bool((np.abs(self.mapping(x, g)[0]) <= limit).all())
        x, g, std = map(self._out, (self.unit * x, self.scale * g, self.scale * std))
        return Answer(x, g, std, stationary)

    def average(self) -> tuple[int, Float64, Float64]:
        """Return the first point, the mean and its gradient of the last part that data advise."""
        X, G, counts = self._arrays()
        n = len(X)

        def tails(values: Float64) -> Float64:
            return np.asarray(np.cumsum(values[::-1], axis=0)[::-1])

        count = tails(counts)
        x, g = (tails(counts[:, None] * V) / count[:, None] for V in (X, G))
        noise = np.zeros(n)  # of a call, by the differences of successive gradients
        noise[:-1] = tails(
            (np.diff(G, axis=0) ** 2).sum(axis=1) / (1.0 / counts[1:] + 1.0 / counts[:-1])
        ) / np.arange(n - 1, 0, -1)
        slope, best = self._slope(), (math.inf, n - 1)
        for first in np.linspace((1.0 - _SHORTEST) * (n - 1), 0.0, 25).astype(int):
            half = (first + n) // 2
            before = count[first] - count[half]
            if best[0] < math.inf and before > 0.0:
                # The means of the two halves differ by count[first] / before times this.
                gap = slope * float(np.linalg.norm(x[first] - x[half]))
                chance = math.sqrt(noise[first] * before / (count[first] * count[half]))
                if gap > _APART * chance:
                    break
            ascent = self.mapping(x[first], g[first])[0]
            score = float(_TRAVEL * (ascent @ ascent) + noise[first] / count[first])
            best = min(best, (score, int(first)))
        return best[1], x[best[1]], g[best[1]]

    def mapping(self, x: Float64, g: Float64) -> tuple[Float64, Float64]:
        """Return the gradient mapping for g at x, and the point to which it leads."""
        if self.prox is None:
            return g, x
        slope = self._slope()
        step = 1.0 / slope if slope > 0.0 else self.reach / (math.sqrt(self.squares) or 1.0)
        after = self._mapped(x - step * g, step)
        return (x - after) / step, after

    def _slope(self) -> float:
        """Regress the last gradients on their points: how much noise, and no move, explains."""
        _, x, g = zip(*self.points[-_WINDOW:], strict=True)
        X, G = np.array(x) - np.mean(x, axis=0), np.array(g) - np.mean(g, axis=0)
        spread = float(np.vdot(X, X))
        return float(np.vdot(X, G)) / spread if spread > 0.0 else 0.0
