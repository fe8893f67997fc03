"""The K by K tables of a sliding window, kept up to date one row at a time.

Everything about a window that does not depend on d: how far apart its points are and its
residuals, the cosine between the two differences, and the noise variances. What is returned is
a view to read; nothing outside this file writes into it.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._jit import kernel
from coco_denoiser.typing import Float64, Int64

_SAVED = ("point_distances", "residual_distances", "cosines", "variances")


# How one observation relates to each slot, (3, count): a row of every table, distances between
# points first, then cosines, then distances between residuals.
Rows: TypeAlias = Float64


def rows(sums: Float64) -> tuple[Rows, bool]:
    """Turn ||dx||^2, <dx, dh> and ||dh||^2, (3 count,), into rows; the sums are used up.

    Also returns whether the squares were neither infinite nor as good as zero.
    """
    in_range = _roots(sums)
    return sums.reshape(3, -1), in_range


class Tables:
    """Tables of the last `slots` observations, in slots that are reused in a ring."""

    def __init__(self, slots: int | None) -> None:
        self.slots = slots
        self.reset()

    def reset(self) -> None:
        """Forget every observation."""
        self.count = 0  # slots in use: always the first ones
        self.next = 0  # the slot that the next observation takes
        self._points = np.zeros((0, 0))
        self._residuals = np.zeros((0, 0))
        self._cosines = np.zeros((0, 0))
        self._variances = np.zeros(0)

    @property
    def full(self) -> bool:
        """Whether the next observation overwrites the oldest."""
        return self.count == self.slots

    @property
    def heir(self) -> int:
        """The slot of the second oldest observation, if the window is full."""
        return (self.next + 1) % max(self.count, 1)

    def used(self) -> tuple[Float64, Float64, Float64, Float64]:
        """Return the distances between points and between residuals, the cosines, the variances.

        The first three are (count, count), the last is (count,).
        """
        tables, variances = (self._points, self._residuals, self._cosines), self._variances
        count = self.count
        if count == variances.size:
            return *tables, variances
        points, residuals, cosines = (table[:count, :count] for table in tables)
        return points, residuals, cosines, variances[:count]

    @property
    def variances(self) -> Float64:
        """Noise variances, (count,)."""
        return self._variances[: self.count]

    def order(self) -> Int64:
        """Return the slots in use, from the oldest observation to the newest."""
        return _ring(self.next if self.full else 0, self.count)

    def insert(self, new: Rows, variance: float) -> int:
        """Take one observation into the next slot, by its row to those in use; return the slot.

        Entries of the slot itself are ignored.
        """
        slot = self.next
        if slot >= self._variances.size:
            self._grow(slot + 1)
        self.count = max(self.count, slot + 1)
        self._replace(slot, new)
        self._variances[slot] = variance
        self.next = slot + 1 if self.slots is None else (slot + 1) % self.slots
        return slot

    def update(self, slot: int, row: Rows | None, variance: float) -> None:
        """Change an observation in use: its variance, and its row to the others."""
        if row is not None:
            self._replace(slot, row)
        self._variances[slot] = variance

    def state_dict(self) -> dict[str, Any]:
        """Return plain arrays and numbers."""
        return {
            "count": self.count,
            "next": self.next,
            **{name: table.copy() for name, table in zip(_SAVED, self.used(), strict=True)},
        }

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `load_state_dict` needs of a saved state, or raise ValueError."""
        count = check.saved_count(state, "count", 0, self.slots)
        full = count == self.slots
        following = check.saved_count(state, "next", 0 if full else count, count - full)
        tables = {name: check.saved_distances(state, name, count) for name in _SAVED[:2]}
        tables["cosines"] = cosines = check.saved_table(state, "cosines", count)
        if not (np.abs(cosines) <= 1.0).all():
            raise check.damaged("cosines must be between -1 and 1")
        variances = check.saved(state, "variances", (count,), kind=np.dtype(np.float64))
        if not (variances > 0.0).all():
            raise check.damaged(f"variances must be positive, got {variances.min()}")
        return {"count": count, "next": following, **tables, "variances": variances}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a saved state that has been checked."""
        self.reset()
        self._grow(state["count"])
        self.count, self.next = state["count"], state["next"]
        for name, table in zip(_SAVED, self.used(), strict=True):
            table[:] = state[name]

    def _replace(self, slot: int, new: Rows) -> None:
        _insert(self._points, self._residuals, self._cosines, new, slot)

    def _grow(self, slots: int) -> None:
        old = self._variances.size
        new = self.slots or max(16, 2 * old, slots)
        for name in ("_points", "_residuals", "_cosines"):
            table = np.zeros((new, new))
            table[:old, :old] = getattr(self, name)
            setattr(self, name, table)
        self._variances = np.concatenate((self._variances, np.zeros(new - old)))


@lru_cache(maxsize=256)
def _ring(start: int, count: int) -> Int64:
    """Return start, ..., count - 1, 0, ..., start - 1; to read, as callers share it."""
    order = np.arange(start, start + count) % max(count, 1)
    order.flags.writeable = False
    return order


@kernel
def _roots(sums: Float64) -> bool:
    count = sums.size // 3
    most_x, most_h = 0.0, 0.0
    for i in range(count):
        most_x, most_h = max(most_x, sums[i]), max(most_h, sums[2 * count + i])
        x, h = math.sqrt(sums[i]), math.sqrt(sums[2 * count + i])
        cosine = sums[count + i] / (x * h) if x * h > 0.0 else 0.0
        sums[i], sums[2 * count + i] = x, h
        sums[count + i] = min(1.0, max(-1.0, cosine))
    return 1e-200 < most_x < 1e250 and 1e-200 < most_h < 1e250


@kernel
def _insert(
    points: Float64,
    residuals: Float64,
    cosines: Float64,
    rows: Rows,
    slot: int,
) -> None:
    for i in range(rows.shape[1]):
        if i != slot:
            points[slot, i] = points[i, slot] = rows[0, i]
            cosines[slot, i] = cosines[i, slot] = rows[1, i]
            residuals[slot, i] = residuals[i, slot] = rows[2, i]
