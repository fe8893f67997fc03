"""What a backend, which holds the vectors of a window, has to do; and NumPy's backend.

The engine never sees a vector. A backend takes hold of one observation (x, g) at a time, in its
own way, and then does passes over what it holds: it measures before anything is written.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from coco_denoiser.typing import Array, Float64
from coco_denoiser.window import passes
from coco_denoiser.window.history import Plan
from coco_denoiser.window.tables import Rows, rows

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_NOTHING: Array = np.empty(0, _FLOAT32)
# The largest entry that is stored: in float64, no distance between two such vectors overflows.
LIMITS = {_FLOAT32: float(np.finfo(np.float32).max), _FLOAT64: 1e300}


class Measured(NamedTuple):
    """How a new observation relates to the window.

    Attributes:
        new: its rows of the tables.
        heir: the rows of the slot that the oldest observation is going to be mixed into, as it
            will be then; None if there is no such slot.
        finite: whether it may enter.
        zero: whether its gradient is zero.
        in_range: whether no square has become infinite or as good as zero.
    """

    new: Rows
    heir: Rows | None
    finite: bool
    zero: bool
    in_range: bool


class Vectors(Protocol):
    """The vectors of a window: K points, K residuals h = g - centre x, and one observation."""

    @property
    def d(self) -> int:
        """The number of coordinates of the observation, on all ranks together."""

    def measure(self, centre: float, plan: Plan) -> Measured:
        """Compare the observation with the slots in use; write nothing."""

    def mix(self, centre: float, plan: Plan) -> None:
        """Mix the slot that is about to be overwritten into its heir."""

    def commit(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its gradient ready.

        That is theta = g + sum_i w_i ((h_i - h) - shift (x_i - x)).
        """

    def advance(self, centre: float, weight: float, shift: float) -> None:
        """Mix slot 0 into the observation, which takes its place and is ready as theta."""

    def coordinates(self, centre: float, count: int, slot: int) -> tuple[Array, Array] | None:
        """Return points and residuals, (count, d), the observation being in its slot.

        None where d is not below count, or the vectors are not all here.
        """


def measured(sums: Float64, plan: Plan, *, finite: bool, zero: bool) -> Measured:
    """Return what `passes.measure` has added up; the sums are used up."""
    split = 3 * plan.used
    heir = None if plan.heir < 0 or not finite else rows(sums[split : 2 * split])[0]
    new, in_range = rows(sums[:split])
    return Measured(new, heir, finite, zero, in_range)


class Ring:
    """The K points and residuals of a window, (K, d) arrays, and the passes over them."""

    def __init__(self, points: Array, residuals: Array) -> None:
        self.points, self.residuals = points, residuals

    def measure(self, x: Array, g: Array, centre: float, limit: float, plan: Plan) -> Float64:
        """Return what `passes.measure` adds up; write nothing."""
        out = passes.room(plan.used, plan.heir)
        passes.measure(self.points, self.residuals, x, g, centre, limit, plan.numbers, out)
        return out

    def mix(self, plan: Plan) -> None:
        """Mix the slot that is about to be overwritten into its heir."""
        points, residuals, old, heir = self.points, self.residuals, plan.skip, plan.heir
        move = residuals[old] - residuals[heir]
        if plan.shift:
            move -= plan.shift * (points[old] - points[heir])
        residuals[heir] += plan.merger.weight * move

    def commit(
        self,
        x: Array,
        g: Array,
        centre: float,
        slot: int,
        weights: Float64 | None,
        shift: float,
        out: Array,
    ) -> None:
        """Write an observation into its slot; with weights, its denoised gradient to out."""
        w = passes.by_four(weights, self.points.dtype)
        passes.commit(self.points, self.residuals, x, g, centre, slot, w, shift, out)

    def advance(
        self, x: Array, g: Array, centre: float, weight: float, shift: float, out: Array
    ) -> None:
        """Mix slot 0 into an observation, which takes its place; write its gradient to out."""
        passes.advance(self.points[0], self.residuals[0], x, g, centre, weight, shift, out)


class ArrayVectors:
    """Vectors of NumPy, in two arrays; float32 as long as nothing wider has come."""

    _x: Array
    _g: Array
    theta: Array

    def __init__(self, slots: int | None) -> None:
        self._slots = slots
        self.reset()

    def reset(self) -> None:
        """Let go of everything."""
        self.points: Array = np.empty((0, 0), _FLOAT32)
        self.residuals: Array = np.empty((0, 0), _FLOAT32)
        self.release()

    def hold(self, x: NDArray[Any], g: NDArray[Any]) -> None:
        """Take hold of an observation of any shape."""
        held = self.points.dtype
        narrow = held != _FLOAT64 and _is_narrow(x.dtype) and _is_narrow(g.dtype)
        dtype: np.dtype[np.floating[Any]] = _FLOAT32 if narrow else _FLOAT64
        self._x, self._g = x.astype(dtype, "C", copy=False), g.astype(dtype, "C", copy=False)
        if x.ndim != 1:
            self._x, self._g = self._x.reshape(-1), self._g.reshape(-1)
        # Nothing is widened, and no room made, before the observation is admitted.
        rings = self.points, self.residuals
        if not len(self.points):
            rings = np.empty((0, self.d), dtype), np.empty((0, self.d), dtype)
        elif held != dtype:
            rings = self.points.astype(dtype), self.residuals.astype(dtype)
        self._rings: tuple[Array, Array] = rings

    def release(self) -> None:
        """Let go of the observation."""
        self._x = self._g = self.theta = _NOTHING
        self._rings = self.points, self.residuals

    @property
    def d(self) -> int:
        """The number of coordinates."""
        return self._x.size

    @property
    def limit(self) -> float:
        """The largest entry that can be stored."""
        return LIMITS[self._x.dtype]

    def measure(self, centre: float, plan: Plan) -> Measured:
        """Compare the observation with the slots in use; write nothing."""
        sums = Ring(*self._rings).measure(self._x, self._g, centre, self.limit, plan)
        if sums.item(-2) > 0.0:
            return measured(sums[:0], Plan(0, -1), finite=False, zero=False)
        found = measured(sums, plan, finite=True, zero=False)
        return found if found.in_range or not plan.used else self._measure_again(centre, plan)

    def mix(self, centre: float, plan: Plan) -> None:
        """Mix the slot that is about to be overwritten into its heir."""
        del centre
        Ring(*self._rings).mix(plan)

    def commit(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its gradient ready."""
        self._make_room(slot)
        self.theta = theta = np.empty(self.d, self._g.dtype)
        ring = Ring(self.points, self.residuals)
        ring.commit(self._x, self._g, centre, slot, weights, shift, theta)

    def advance(self, centre: float, weight: float, shift: float) -> None:
        """Mix slot 0 into the observation, which takes its place and is ready as theta."""
        self._make_room(0)
        self.theta = theta = np.empty_like(self._g)
        ring = Ring(self.points, self.residuals)
        ring.advance(self._x, self._g, centre, weight, shift, theta)

    def coordinates(self, centre: float, count: int, slot: int) -> tuple[Array, Array] | None:
        """Return points and residuals, the observation being in its slot, where d is small."""
        if self.d >= count:
            return None
        self.commit(centre, slot, None, 0.0)
        return self.points[:count], self.residuals[:count]

    def load(self, points: Array, residuals: Array) -> None:
        """Take over vectors, (count, d) each."""
        self.reset()
        if len(points):
            self.points, self.residuals = self._larger((points, residuals), len(points))
        self.release()

    def _make_room(self, slot: int) -> None:
        """Adopt what is wide and long enough for the observation."""
        if slot >= len(self._rings[0]):
            self._rings = self._larger(self._rings, slot + 1)
        self.points, self.residuals = self._rings

    def _larger(self, rings: tuple[Array, Array], slots: int) -> tuple[Array, Array]:
        count, size = rings[0].shape
        shape = self._slots or max(16, 2 * count, slots), size
        # Zeros: slots that are not in use have a weight of zero, and no NaN in them.
        points, residuals = (np.zeros(shape, ring.dtype) for ring in rings)
        points[:count], residuals[:count] = rings
        return points, residuals

    def _measure_again(self, centre: float, plan: Plan) -> Measured:
        """Measure in units in which squares neither overflow nor vanish: powers of two."""
        used = slice(plan.used)
        points, residuals = (np.asarray(ring[used], np.float64) for ring in self._rings)
        x, h = self._x.astype(np.float64), np.asarray(self._g - centre * self._x, np.float64)
        ex, eh = (int(np.frexp(np.abs(r - v).max())[1]) for r, v in ((points, x), (residuals, h)))
        sums = passes.room(plan.used, plan.heir)
        passes.measure(
            np.ldexp(points, -ex),
            np.ldexp(residuals, -eh),
            np.ldexp(x, -ex),
            np.ldexp(h, -eh),
            0.0,
            np.inf,
            plan._replace(shift=float(np.ldexp(plan.shift, ex - eh))).numbers,
            sums,
        )
        found = measured(sums, plan, finite=True, zero=False)
        for row in (found.new, found.heir):
            if row is not None:
                row[:] = np.ldexp(row, [[ex], [0], [eh]])
        return found


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize <= 4
