"""The sliding window as a model sees it: K by K numbers, kept up to date one row at a time.

With residuals h_i = g_i - c0 x_i for a centre c0 that never changes, dx = x_i - x_j and
dh = h_i - h_j, a window knows ||dx||, ||dh|| and the cosine between the two. Any other centre c is
then a matter of arithmetic:

    ||dg - c dx||^2 = ||dh||^2 - 2 (c - c0) <dh, dx> + (c - c0)^2 ||dx||^2.

A model answers with weights w that sum to 1, and a centre c: the newest gradient becomes

    theta = sum_i w_i (g_i - c (x_i - x_newest)).
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser.solution import Answer, Status
from coco_denoiser.typing import Array, Float64, Int64

_SAVED = ("point_distances", "cosines", "residual_distances")


class Plan(NamedTuple):
    """What the next observation does to a window.

    Attributes:
        centre: c of the residuals g - c x that are stored.
        used: how many slots are in use.
        oldest: the slot that is about to be overwritten; -1 for none.
        successor: the slot that the oldest is merged into; -1 if it is dropped.
        weight: of the oldest in the merged residual.
        shift: how far the centre at which they are merged lies from that of the residuals.
        variance: noise variance of the merged observation.
    """

    centre: float
    used: int
    oldest: int = -1
    successor: int = -1
    weight: float = 0.0
    shift: float = 0.0
    variance: float = 1.0


class Window(kernels.Window):
    """Tables of the last `slots` observations, in slots that are reused in a ring.

    Models may read everything and write nothing. What the tables hold is in `_core/tables.pxi`.

    Attributes:
        vectors: points and residuals, (count, d) each, where d is below count and they are at
            hand: shorter and more accurate than what can be recovered from the tables.
    """

    def __init__(self, slots: int | None) -> None:
        super().__init__(slots)
        self.reset()

    def reset(self) -> None:
        """Forget every observation."""
        self.count = self.next = self.d = 0
        self.centre = 0.0
        self.newest = -1
        self.hold(np.zeros((3, 0, 0)), np.zeros(0))
        self.vectors: tuple[Array, Array] | None = None
        self._room: kernels.Workspace | None = None

    def workspace(self, count: int) -> kernels.Workspace:
        """Return memory for the problem of so many observations."""
        if self._room is None or count != self._room.K:
            self._room = kernels.Workspace(count, count)
        return self._room

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to copy and pickle it: it holds C memory."""
        return type(self), (self.slots,), {**self.state_dict(), "d": self.d}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.load_state_dict(state)
        self.d = state["d"]

    @property
    def points(self) -> Float64:
        """Distances ||dx|| between points, (count, count)."""
        return self.tables[0, : self.count, : self.count]

    @property
    def cosines(self) -> Float64:
        """Cosines <dh, dx> / (||dh|| ||dx||), (count, count); 0 where one of them is 0."""
        return self.tables[1, : self.count, : self.count]

    @property
    def residuals(self) -> Float64:
        """Distances ||dh|| between residuals h = g - c0 x, (count, count)."""
        return self.tables[2, : self.count, : self.count]

    @property
    def variances(self) -> Float64:
        """Relative noise variances, (count,)."""
        return self.all_variances[: self.count]

    @property
    def order(self) -> Int64:
        """The slots in use, from the oldest observation to the newest."""
        return _cycle(self.next if self.count == self.slots else 0, self.count)

    def distances(self, centre: float) -> Float64:
        """Return the distances ||dg - centre dx||, (count, count)."""
        return recentred(self.points, self.cosines, self.residuals, centre - self.centre)

    def admit(self, plan: Plan, sums: Float64, variance: float) -> Float64:
        """Take an observation into the next slot, and change the successor that the plan names.

        Args:
            plan: what the observation does to the window.
            sums: what `Ring.products` adds up; overwritten.
            variance: relative noise variance of the observation.

        Returns:
            The rows of the tables, which begin with the observation's: ||dx||, cosines, ||dh||.
        """
        slot, used = self.next, plan.used
        self.grow(slot + 1)
        if plan.successor >= 0:
            # First: its row to the oldest, whose slot the observation takes, is not used.
            self.insert(sums[3 * used : 6 * used], used, plan.successor, plan.variance)
        self.insert(sums[: 3 * used], used, slot, variance)
        self.newest = slot
        self.next = slot + 1 if self.slots is None else (slot + 1) % self.slots
        self.count = max(self.count, slot + 1)
        return sums

    def state_dict(self) -> dict[str, Any]:
        """Return plain arrays and numbers."""
        used = slice(self.count)
        return {
            "count": self.count,
            "next": self.next,
            "centre": self.centre,
            "variances": self.variances.copy(),
            **{n: t[used, used].copy() for n, t in zip(_SAVED, self.tables, strict=True)},
        }

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `load_state_dict` needs of a saved state, or raise ValueError."""
        count = check.saved_count(state, "count", 0, self.slots)
        full = count == self.slots
        found: dict[str, Any] = {
            "count": count,
            "next": check.saved_count(state, "next", 0 if full else count, count - full),
            "centre": check.saved_number(state, "centre"),
            "variances": check.saved(state, "variances", (count,), kind=np.dtype(np.float64)),
            **{name: check.saved_table(state, name, count) for name in _SAVED},
        }
        if not (np.abs(found["cosines"]) <= 1.0).all():
            raise check.damaged("cosines must be between -1 and 1")
        for name in ("point_distances", "residual_distances"):
            if not (found[name] >= 0.0).all():
                raise check.damaged(f"{name} must not be negative, got {found[name].min()}")
        if not (found["variances"] > 0.0).all():
            raise check.damaged(f"variances must be positive, got {found['variances'].min()}")
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a saved state that has been checked."""
        self.reset()
        self.grow(state["count"])
        self.count, self.next, self.centre = state["count"], state["next"], state["centre"]
        self.newest = (self.next or self.count) - 1
        self.variances[:] = state["variances"]
        for name, table in zip(_SAVED, self.tables, strict=True):
            table[: self.count, : self.count] = state[name]

    def grow(self, slots: int) -> None:
        """Make room for so many observations at least."""
        if slots <= self.all_variances.size:
            return
        old = self.all_variances.size
        new = self.slots or max(16, 2 * old, slots)
        tables = np.zeros((3, new, new))
        tables[:, :old, :old] = self.tables
        self.hold(tables, np.concatenate((self.all_variances, np.zeros(new - old))))


def recentred(points: Float64, cosines: Float64, residuals: Float64, shift: float) -> Float64:
    """Return ||dh - shift dx|| from ||dx||, the cosine between dx and dh, and ||dh||.

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


@lru_cache(maxsize=256)
def _cycle(start: int, count: int) -> Int64:
    """Return start, ..., count - 1, 0, ..., start - 1; to read, as callers share it."""
    order = np.arange(start, start + count) % max(count, 1)
    order.flags.writeable = False
    return order


class Estimate(NamedTuple):
    """How the newest gradient is averaged, and what is known about that; NaN if unknown.

    Attributes:
        weights: (count,), one for each slot; they sum to 1 and may be negative.
        centre: c, for which residuals g - c x are averaged.
        std: standard error of each coordinate of the answer.
        gap: relative duality gap.
        violation: worst relative violation of a bound.
        iterations: how many the solver took.
        status: how it ended.
        method: the name of the method that answered.
        source: what holds the answer for the whole window, until the next step; None if the model
            makes it anew.
        least: the least noise variance in the window, of which its multipliers are multiples.
    """

    weights: Float64
    centre: float
    std: float = math.nan
    gap: float = 0.0
    violation: float = 0.0
    iterations: int = 0
    status: Status = Status.SOLVED
    method: str = "newton"
    source: Answer | kernels.Workspace | None = None
    least: float = 1.0

    def whole(self) -> Answer | None:
        """Return the answer for the whole window."""
        if not isinstance(self.source, kernels.Workspace):
            return self.source
        K, q = self.source.K, self.source.q
        W, phi, multipliers = np.empty((K, K)), np.empty((K, q)), np.empty((K, K))
        self.source.answer(W, phi, multipliers)
        name = "newton" if K > 2 else "closed-form"
        told = self.gap, self.violation, self.iterations, name, self.status
        return Answer(phi, W, multipliers, *told)
