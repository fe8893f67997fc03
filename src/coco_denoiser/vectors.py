"""The vectors of a window: K points and K residuals, and the passes over them.

A backend holds the vectors and one observation (x, g) at a time; the stream never sees them. It
compares first, which reads the window once and writes nothing. Between that and the second pass,
which reads the residuals once and writes the new slot, lies the decision whether the observation
may enter at all. The compiled passes go block by block, while it is in the cache.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from coco_denoiser._core import kernels
from coco_denoiser._validation import LIMITS
from coco_denoiser.typing import Array, Float64
from coco_denoiser.window import Plan

_FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_NOTHING: Array = np.empty(0, _FLOAT32)


class Comparison(NamedTuple):
    """How an observation relates to a window.

    Attributes:
        plan: what the observation does to the window.
        sums: what `Ring.products` has added up.
    """

    plan: Plan
    sums: Float64


class Vectors(Protocol):
    """What a backend has to do."""

    @property
    def d(self) -> int:
        """The number of coordinates of the observation, on all ranks together."""

    def reset(self) -> None:
        """Let go of everything."""

    def compare(self, plan: Plan) -> Float64 | None:
        """Return what `Ring.products` adds up over all; None if the observation must not enter."""

    def merge_oldest(self, plan: Plan) -> None:
        """Merge the slot that is about to be overwritten into its successor."""

    def write(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its denoised gradient ready.

        That is theta = g + sum_i w_i ((h_i - h) - shift (x_i - x)).
        """

    def filter(self, centre: float, weight: float, shift: float) -> None:
        """Average slot 0 into the observation, which takes its place and is ready as theta."""

    def short(self, centre: float, count: int, slot: int) -> tuple[Array, Array] | None:
        """Return points and residuals, (count, d), with the observation in its slot.

        None where the vectors are not all here. Asked for only where d is below count.
        """


def zeros(plan: Plan) -> Float64:
    """Return zeros for what `Ring.products` adds up."""
    return np.zeros((3 if plan.successor < 0 else 6) * plan.used + 2)


class Ring:
    """K points and residuals, (K, d) arrays, and the compiled passes over them."""

    def __init__(self, points: Array, residuals: Array) -> None:
        self.points, self.residuals = points, residuals

    def products(self, x: Array, g: Array, limit: float, plan: Plan) -> Float64:
        """Add up how an observation relates to the slots in use, in float64; write nothing.

        Returns:
            For every slot in use ||dx||^2, <dx, dh> and ||dh||^2 to the observation, then, if
            there is one, to the successor as it will be; the number of entries that must not
            enter; and the sum of |g|.
        """
        out = zeros(plan)
        kernels.measure(self.points, self.residuals, x, g, limit, plan, out)
        return out

    def merge_oldest(self, plan: Plan) -> None:
        """Merge the slot that is about to be overwritten into its successor."""
        kernels.merge(self.points, self.residuals, plan)

    def write(
        self,
        x: Array,
        g: Array,
        centre: float,
        slot: int,
        weights: Float64 | None,
        shift: float,
        out: Array,
    ) -> None:
        """Write an observation into its slot, and its gradient to out, denoised if weighted."""
        average = None if weights is None else (weights, shift)
        kernels.commit(self.points, self.residuals, x, g, centre, slot, average, out)

    def filter(
        self, x: Array, g: Array, centre: float, weight: float, shift: float, out: Array
    ) -> None:
        """Average slot 0 into an observation, which takes its place; write its gradient to out."""
        kernels.smooth(self.points, self.residuals, x, g, centre, weight, shift, out)


class ArrayVectors:
    """Vectors of NumPy; float32 as long as nothing wider has come.

    Attributes:
        ring: the vectors that are held.
        d: the number of coordinates.
        limit: the largest entry that can be stored.
        theta: the gradient that is ready.
    """

    d = 0
    limit = LIMITS[_FLOAT32]

    x: Array
    g: Array

    def __init__(self, slots: int | None) -> None:
        self._slots = slots
        self.reset()

    def reset(self) -> None:
        """Let go of everything."""
        self.ring = Ring(np.empty((0, 0), _FLOAT32), np.empty((0, 0), _FLOAT32))
        self.release()

    def release(self) -> None:
        """Let go of the observation."""
        self.x = self.g = self.theta = _NOTHING
        self._wider = self.ring

    def hold(self, x: NDArray[Any], g: NDArray[Any]) -> None:
        """Take hold of an observation of any shape."""
        held = self.ring.points
        dtype: np.dtype[np.floating[Any]] = FLOAT64
        if held.dtype != FLOAT64 and _is_narrow(x.dtype) and _is_narrow(g.dtype):
            dtype = _FLOAT32
        self.x = x.astype(dtype, "C", copy=False).ravel()
        self.g = g.astype(dtype, "C", copy=False).ravel()
        self.d, self.limit = self.x.size, LIMITS[dtype]
        # What is held stays as it is until the observation is admitted.
        if not len(held):
            self._wider = self.empty(self.d, dtype)
        elif held.dtype != dtype:
            self._wider = Ring(held.astype(dtype), self.ring.residuals.astype(dtype))

    def compare(self, plan: Plan) -> Float64 | None:
        """Compare the observation with the slots in use; None if it must not enter."""
        sums = self._wider.products(self.x, self.g, self.limit, plan)
        return sums if sums.item(-2) == 0.0 else None

    def merge_oldest(self, plan: Plan) -> None:
        """Merge the slot that is about to be overwritten into its successor."""
        self._wider.merge_oldest(plan)

    def write(self, centre: float, slot: int, weights: Float64 | None, shift: float) -> None:
        """Write the observation into a slot; with weights, make its denoised gradient ready."""
        if self.ring is not self._wider or slot >= len(self.ring.points):
            self._adopt(slot)
        self.theta = theta = np.empty_like(self.g)
        self.ring.write(self.x, self.g, centre, slot, weights, shift, theta)

    def filter(self, centre: float, weight: float, shift: float) -> None:
        """Average slot 0 into the observation, which takes its place and is ready as theta."""
        self._adopt(0)
        self.theta = theta = np.empty_like(self.g)
        self.ring.filter(self.x, self.g, centre, weight, shift, theta)

    def short(self, centre: float, count: int, slot: int) -> tuple[Array, Array] | None:
        """Return points and residuals with the observation in its slot."""
        self._adopt(slot)
        points, residuals = self.ring.points, self.ring.residuals
        points[slot], residuals[slot] = self.x, self.g - centre * self.x
        return points[:count], residuals[:count]

    def load(self, points: Array, residuals: Array) -> None:
        """Take over vectors, (count, d) each."""
        self.reset()
        if len(points):
            self.ring = self._larger(Ring(points, residuals), len(points))
        self.release()

    def empty(self, d: int, dtype: np.dtype[Any] = FLOAT64) -> Ring:
        """Return room for vectors of so many coordinates."""
        nothing = np.empty((0, d), dtype)
        return self._larger(Ring(nothing, nothing), 1)

    def room(self, slot: int) -> Ring:
        """Return vectors that are wide and many enough for the observation; `ring` stays."""
        if slot >= len(self._wider.points):
            self._wider = self._larger(self._wider, slot + 1)
        return self._wider

    def _adopt(self, slot: int) -> None:
        """Go over to vectors that are wide and many enough for the observation."""
        self.ring = self.room(slot)

    def _larger(self, ring: Ring, slots: int) -> Ring:
        count, size = ring.points.shape
        shape = self._slots or max(16, 2 * count, slots), size
        # Zeros: slots that are not in use have a weight of zero, and no NaN in them.
        points, residuals = (np.zeros(shape, ring.points.dtype) for _ in range(2))
        points[:count], residuals[:count] = ring.points, ring.residuals
        return Ring(points, residuals)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" and dtype.itemsize <= 4
