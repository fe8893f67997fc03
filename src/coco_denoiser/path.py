"""The path of `minimize`: stochastic gradient descent that finds its own step, and its answer.

- The step is that of DoG, "distance over gradients" (Ivgi, Hinder and Carmon, 2023): the largest
  distance from x0 so far, over the root of the sum of all squared gradients so far. It begins
  with 10% of the length of x0, grows while the path travels, and shrinks once it stays
  where it is. L plays no part in it: a step of at most 1 / L is far too short where L is loose.
- While successive stretches of the path point the same way, momentum grows, up to 1/2.
- The answer is the average of the last part of the path. The longest part would average out the
  most noise, so the part is chosen by its mean gradient, which tells whether the path was still
  travelling, and by its noise. If a long part contains a move of the minimum, its two halves lie
  further apart than noise explains, given the curvature that the last points show. That part,
  and all longer ones, are then left out.
- A linear field of gradients is fitted to all calls. If tests tell that it holds, the answer is its
  minimum instead, which is known far better than the average where the path travelled for long
  or noise changed.
- A projection or a proximal map follows every step. It turns noise into bias, which averages keep;
  so the average is followed by one more step, along the average gradient. In the place of a mean
  gradient g at x stands the gradient mapping (x - prox(x - s g, s)) / s, which is zero
  at a solution.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from coco_denoiser import regression
from coco_denoiser.batch import solve
from coco_denoiser.regression import Field
from coco_denoiser.typing import Float64

# Chosen on the problems of `python -m benchmarks minimize` that are named so there.
_FIRST = 0.1  # the first distance, as a share of the length of x0
_BLOCK, _BLOCKS = 8, 32  # the first size of a block, and how many of them before they are joined
_POINTS = 1024  # points that the field is fitted to, before they are joined
_LARGEST = 512  # dimension, for which they are kept
_FASTER, _SLOWER = 0.1, 0.5  # log change of the speed for a cosine of 1 and of -1
_FASTEST = 2.0
_SHORTEST = 0.2  # of the path, in the answer
_TRAVEL = 30.0  # weight of the mean gradient: it points where curvature is small, unlike noise
_APART = 3.5  # standard errors by which the two halves of the answer's part may differ
_FAR = 1e8  # first distances from x0, beyond which a path diverges unless its gradients shrink
_WINDOW = 32  # points from which curvature, and the gradient at the answer, are estimated


def length(v: Float64) -> float:
    """Return ||v||, whatever its scale."""
    largest = float(np.abs(v).max())
    return largest * float(np.linalg.norm(v / largest)) if largest > 0.0 else 0.0


@dataclass
class _Block:
    """Consecutive points of a path: their number, their mean and that of their gradients."""

    count: int
    x: Float64
    g: Float64
    spread: float = 0.0  # root of the sum of squared distances of the gradients from their mean
    degrees: int = 0  # of freedom of that sum

    def join(self, other: "_Block") -> "_Block":
        """Return both as one. The spread stays that within each."""
        count = self.count + other.count
        share = other.count / count
        return _Block(
            count,
            self.x + share * (other.x - self.x),
            self.g + share * (other.g - self.g),
            math.hypot(self.spread, other.spread),
            self.degrees + other.degrees,
        )

    def add(self, x: Float64, g: Float64) -> "_Block":
        """Return the block with one more point."""
        distance = length(g - self.g) * math.sqrt(self.count / (self.count + 1))
        return self.join(_Block(1, x, g, distance, 1))

    @property
    def noise(self) -> float:
        """The root mean square length of the noise."""
        return self.spread / math.sqrt(max(self.degrees, 1))

    def steady(self, later: "_Block", slope: float) -> bool:
        """Return whether noise explains how far the points before `later` are from those in it."""
        before = self.count - later.count
        if before == 0:
            return True
        # The means of the two differ by self.count / before times this.
        gap = slope * length(self.x - later.x)
        return gap * math.sqrt(self.count * later.count / before) <= _APART * self.noise


@dataclass
class _Blocks:
    """All points of a path in blocks of one size; the last one may be incomplete."""

    size: int
    most: int  # of them, before they are joined in pairs
    blocks: list[_Block] = field(default_factory=list)

    def add(self, x: Float64, g: Float64) -> int:
        """Add a point. Return the size of the block that it completed, or 0."""
        size, blocks = self.size, self.blocks
        if blocks and blocks[-1].count < size:
            blocks[-1] = blocks[-1].add(x, g)
        else:
            blocks.append(_Block(1, x, g))
        if blocks[-1].count < size:
            return 0
        if len(blocks) == self.most:
            pairs = zip(blocks[::2], blocks[1::2], strict=True)
            self.blocks, self.size = [first.join(second) for first, second in pairs], 2 * size
        return size


@dataclass
class Path:
    """Where a descent is, and all that it remembers."""

    start: Float64
    x: Float64
    velocity: Float64
    turn: Float64  # where the present block began
    first: float  # the distance it began with
    reach: float  # the largest distance from the start
    L: float | None = None
    prox: Callable[[Float64, float], Float64] | None = None
    constrained: bool = False  # whether it has a prox, which is not saved
    way: Float64 | None = None  # of the last block
    gradients: float = 0.0  # root of the sum of their squared lengths
    latest: float = 0.0  # the same for the present block
    typical: float = 0.0  # length of a gradient in the last block
    initial: float = 0.0  # and in the first
    speed: float = 1.0
    gain: float = 0.0  # the sum of the weights of the gradients in the velocity
    size: float = 0.0  # of the last step
    parts: _Blocks = field(default_factory=lambda: _Blocks(_BLOCK, _BLOCKS))
    points: _Blocks = field(default_factory=lambda: _Blocks(1, _POINTS))
    steps: int = 0
    history: list[float] = field(default_factory=list)  # lengths of gradients, by call
    recent: deque[tuple[Float64, Float64]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    @classmethod
    def begin(cls, x: Float64) -> "Path":
        """Return a path that starts at x."""
        first = _FIRST * (length(x) or 1.0)
        return cls(x, x, np.zeros_like(x), x, first, first)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"prox": None}  # most functions cannot be pickled

    def step(self, g: Float64) -> None:
        """Take one step along a noisy gradient at x."""
        self.recent.append((self.x, g))
        complete = self.parts.add(self.x, g)
        if self.x.size <= _LARGEST:
            self.points.add(self.x, g)
        size = length(g)
        self.gradients = math.hypot(self.gradients, size)
        self.latest = math.hypot(self.latest, size)
        self.steps += 1
        self._choose_size()
        kept = 1.0 - 1.0 / self.speed
        self.velocity, self.gain = kept * self.velocity + g, kept * self.gain + 1.0
        self.x = self.x - self.size * self.velocity
        if self.prox is not None:
            self.x = self.prox(self.x, self.size * self.gain)
        self.reach = max(self.reach, length(self.x - self.start))
        if complete:
            self._turn(complete)

    def _choose_size(self) -> None:
        # By the last block, not the present one: a step that depends on its own gradient is biased.
        past = max(self.gradients, math.sqrt(self.steps) * self.typical)
        self.size = self.reach / past if past > 0.0 else 0.0

    def _turn(self, calls: int) -> None:
        """End a block of calls."""
        way, self.turn = self.x - self.turn, self.x
        if self.way is not None:
            size = length(way) * length(self.way)
            cosine = float(way @ self.way) / size if size > 0.0 else 0.0
            change = math.exp((_FASTER if cosine > 0.0 else _SLOWER) * cosine)
            self.speed = min(max(self.speed * change, 1.0), _FASTEST)
        self.way = way
        self.typical, self.latest = self.latest / math.sqrt(calls), 0.0
        self.initial = self.initial or self.typical

    @property
    def runs_away(self) -> bool:
        """Whether the path leads far away along gradients that do not shrink."""
        return self.reach > _FAR * self.first and self.typical >= 0.5 * self.initial

    def estimate(self, x: Float64, field: Field | None) -> tuple[Float64, Float64]:
        """Return the gradient at the answer x, and the standard error of each coordinate."""
        if field is not None:
            return field.gradient(x)
        points, gradients = (np.array(v) for v in zip(*self.recent, strict=True))
        found = solve(points, gradients, L=self.L, model="gaussian")
        return found.gradients[-1], np.full_like(x, np.nan)

    def answer(self) -> tuple[Float64, Field | None]:
        """Return the minimum of the fitted field, and it, or the average where it does not hold."""
        if not self.gradients > 0.0:
            return self.x, None
        part = self._last_part()
        ascent, x = self.mapping(part.x, part.g)
        blocks = self.points.blocks
        if not blocks:
            return x, None
        X, G = np.array([b.x for b in blocks]), np.array([b.g for b in blocks])
        counts = np.array([b.count for b in blocks], dtype=np.float64)
        tail = math.ceil(part.count / self.points.size)
        found = regression.answer(X, G, counts, (x, ascent, G[-tail:]), self.prox)
        return found or (x, None)

    def _last_part(self) -> _Block:
        """Return the last part of the path, as long as the data advise."""
        parts: list[_Block] = []
        for block in reversed(self.parts.blocks):
            parts.append(block.join(parts[-1]) if parts else block)
        slope, fit = self._slope(), list[_Block]()
        for part in parts:
            if part.count >= _SHORTEST * self.steps:
                half = min(parts, key=lambda other: abs(2 * other.count - part.count))
                if fit and not part.steady(half, slope):
                    break
                fit.append(part)
        return min(fit, key=self._score)

    def _score(self, part: _Block) -> float:
        """Estimate how bad the mean point of a part is."""
        # In units of the gradients, so that squares do not overflow.
        g, noise = self.mapping(part.x, part.g)[0] / self.gradients, part.noise / self.gradients
        return float(_TRAVEL * (g @ g) + noise**2 / part.count)

    def is_stationary(self, x: Float64, g: Float64, std: Float64) -> bool:
        """Return whether a gradient with these standard errors may be zero; not if they are NaN."""
        # The largest of d normal numbers is rarely beyond sqrt(2 log d) + 2.
        limit = (math.sqrt(2.0 * math.log(g.size)) + 2.0) * std
        return bool((np.abs(self.mapping(x, g)[0]) <= limit).all())

    def mapping(self, x: Float64, g: Float64) -> tuple[Float64, Float64]:
        """Return the gradient mapping for g at x, and the point to which it leads."""
        if self.prox is None:
            return g, x
        slope = self._slope()
        step = 1.0 / slope if slope > 0.0 else self.size
        after = self.prox(x - step * g, step)
        return (x - after) / step, after

    def _slope(self) -> float:
        """Regress the last gradients on their points: how much noise, and no move, explains."""
        x, g = (np.array(v) - np.mean(v, axis=0) for v in zip(*self.recent, strict=True))
        spread = length(x.reshape(-1))
        if spread == 0.0:
            return 0.0
        return float(np.vdot(x / spread, g / self.gradients)) * (self.gradients / spread)
