"""The two K by K tables of a sliding window, kept up to date one row at a time.

Everything about a window that does not depend on d lives here: the distances between its
points and between its residuals, and the noise variances.
Whoever holds the vectors (NumPy arrays, torch tensors, shards on many ranks) has two duties
only: the distances that fill one new row, and one weighted sum.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import folding, geometry
from coco_denoiser._jit import kernel
from coco_denoiser.solution import Answer
from coco_denoiser.solvers import answer
from coco_denoiser.typing import Array, Float64, Int64


class Tables:
    """Tables of the last `window` observations, in slots that are reused in a ring."""

    def __init__(self, window: int | None, neighbors: int | None = None) -> None:
        self.window = window
        self.neighbors = neighbors  # None for all pairs, see geometry.nearest
        self.reset()

    def reset(self) -> None:
        """Forget every observation."""
        self.count = 0  # slots in use: always the first ones
        self.next = 0  # the slot that the next observation takes
        self.points = np.zeros((0, 0))
        self.residuals = np.zeros((0, 0))
        self.variances = np.zeros(0)

    def leaving(self, radius: float) -> folding.Fold | None:
        """Return how the oldest observation is folded into its successor; None if it can stay.

        The residual in the slot `heir` must then become h_heir + w (h_next - h_heir), before
        the slot `next` is overwritten. Nothing has changed until `insert` is given the fold.
        """
        if self.count != self.window:
            return None
        old, heir = self.next, self.heir
        return folding.fold(
            self.residuals.item(old, heir),
            radius * self.points.item(old, heir),
            self.variances.item(old),
            self.variances.item(heir),
        )

    @property
    def heir(self) -> int:
        """The slot of the second oldest observation, if the window is full."""
        return (self.next + 1) % max(self.count, 1)

    def insert(
        self,
        points: Float64,
        residuals: Float64,
        variance: float,
        fold: folding.Fold | None = None,
    ) -> None:
        """Take one observation into the next slot, by its distances (slots,) to all the others.

        The entry of the slot itself is ignored. With a fold, distances are to the residuals as
        they are after it; `folding.mixed` has the heir's, if it was measured before.
        """
        slot = self.next
        if fold is not None and fold.weight > 0.0:
            folding.mix_table(self.residuals, self.count, slot, self.heir, fold.weight)
            self.variances[self.heir] = fold.variance
        if slot >= self.variances.size:
            self._grow(slot + 1)
        self.count = max(self.count, slot + 1)
        _insert(
            self.points,
            self.residuals,
            points,
            residuals,
            slot,
            self.count,
        )
        self.variances[slot] = variance
        self.next = slot + 1 if self.window is None else (slot + 1) % self.window

    def answer(self, radius: float, tol: float, residuals: Array | None = None) -> Answer:
        """Solve the window; all is indexed by slots.

        Args:
            radius: r of the bounds r ||x_m - x_l||.
            tol: relative duality gap to reach.
            residuals: (slots, d), if they are at hand; used if d is small.
        """
        used = slice(self.count)
        window = geometry.from_tables(
            self.points[used, used],
            self.residuals[used, used],
            radius,
            self.variances[used],
            None if residuals is None else residuals[used],
        )
        if self.neighbors is not None:
            window = geometry.nearest(window, self.neighbors)
        return answer(window, tol=tol)

    def order(self) -> Int64:
        """Return the slots in use, from the oldest observation to the newest."""
        start = self.next if self.count == self.window else 0
        return np.roll(np.arange(self.count), -start)

    def state_dict(self) -> dict[str, Any]:
        """Return plain arrays and numbers."""
        used = slice(self.count)
        return {
            "count": self.count,
            "next": self.next,
            "point_distances": self.points[used, used].copy(),
            "residual_distances": self.residuals[used, used].copy(),
            "variances": self.variances[used].copy(),
        }

    @staticmethod
    def checked(state: Mapping[str, Any], window: int | None) -> dict[str, Any]:
        """Return what `load_state_dict` needs of a saved state, or refuse it.

        Raises:
            ValueError: if it is not what `state_dict` of such a window can have returned.
        """
        count = check.saved_count(state, "count", 0, window)
        full = count == window
        following = check.saved_count(state, "next", 0 if full else count, count - full)
        distances = {
            name: check.saved_distances(state, name, count)
            for name in ("point_distances", "residual_distances")
        }
        variances = check.saved(state, "variances", (count,), kind=np.dtype(np.float64))
        if not (variances > 0.0).all():
            raise check.damaged(f"variances must be positive, got {variances.min()}")
        return {"count": count, "next": following, **distances, "variances": variances}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a saved state that has been checked."""
        self.reset()
        count = state["count"]
        self._grow(count)
        self.count, self.next = count, state["next"]
        used = slice(count)
        self.points[used, used] = state["point_distances"]
        self.residuals[used, used] = state["residual_distances"]
        self.variances[used] = state["variances"]

    def _grow(self, slots: int) -> None:
        old = self.variances.size
        new = self.window or max(16, 2 * old, slots)
        for name in ("points", "residuals"):
            table = np.zeros((new, new))
            table[:old, :old] = getattr(self, name)
            setattr(self, name, table)
        self.variances = np.concatenate((self.variances, np.zeros(new - old)))


@kernel
def _insert(
    points: Float64,
    residuals: Float64,
    point_row: Float64,
    residual_row: Float64,
    slot: int,
    count: int,
) -> None:
    for i in range(count):
        here = i != slot
        points[slot, i] = points[i, slot] = point_row[i] if here else 0.0
        residuals[slot, i] = residuals[i, slot] = residual_row[i] if here else 0.0
