"""The sliding window: its vectors, and K by K numbers, kept up to date one row at a time.

With residuals h_i = g_i - c0 x_i for a centre c0 that never changes, dx = x_i - x_j and
dh = h_i - h_j, a window knows ||dx||, ||dh|| and the cosine between the two. Any other centre c is
then a matter of arithmetic:

    ||dg - c dx||^2 = ||dh||^2 - 2 (c - c0) <dh, dx> + (c - c0)^2 ||dx||^2.

A model answers with weights w that sum to 1, for a centre c: the newest gradient becomes

    theta = sum_i w_i (g_i - c (x_i - x_newest)).

Folding merges the oldest observation into the next instead of dropping it. The two, with residuals
h_0 and h_1 and noise variances v_0 and v_1, may be rho = r ||x_1 - x_0|| apart. Their two-point
problem has a closed form; its second half replaces the later one, with the variance that fixed
weights would give it:

    h_1 <- h_1 + w (h_0 - h_1),                 w = t v_1 / (v_0 + v_1),
    v_1 <- (1 - w)^2 v_1 + w^2 v_0,             t = max(0, 1 - rho / ||h_1 - h_0||).

At coinciding points (rho = 0) this is the recursive mean; where the bound holds, w = 0 and the
oldest is dropped. With a window of two, the new h_1 is the denoised residual itself: one slot holds
all of the past, and folding is a recursive filter.
"""

import math
from typing import NamedTuple

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser.solution import Answer, Status
from coco_denoiser.typing import AnyDType, Float64, Int64, Saved, State

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_SAVED = ("point_distances", "cosines", "residual_distances")
_COPIED = ("points", "residuals", "d", "centre")


class Window(kernels.Window):
    """Observations in slots that are reused in a ring: all that a stream remembers.

    Models read the tables and write nothing. What these hold is in `_core/tables.pxi`.
    """

    def __init__(self, slots: int | None, folds: bool = False) -> None:  # noqa: FBT001, FBT002 - as in the core
        super().__init__(slots, folds)
        self.reset()

    def reset(self) -> None:
        """Forget every observation."""
        self.points = self.residuals = None
        self.d, self.centre = 0, 0.0
        self.hold(np.zeros((3, 0, 0)), np.zeros(0))

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to copy and pickle it: it holds C memory.

        With the tables comes what they say of the last answer, which may have had one member more.
        """
        tables = self.tables.copy(), self.all_variances.copy()
        held = *tables, self.count, self.next, self.newest
        state = {name: getattr(self, name) for name in _COPIED}
        return type(self), (self.slots, self.folds), {**state, "held": held}

    def __setstate__(self, state: State) -> None:
        self.hold(*state["held"])
        for name in _COPIED:
            setattr(self, name, state[name])

    @property
    def point_distances(self) -> Float64:
        """Distances ||dx|| between points, (members, members)."""
        return self.tables[0, : self.members, : self.members]

    @property
    def variances(self) -> Float64:
        """Relative noise variances, (count,)."""
        return self.all_variances[: self.count]

    @property
    def order(self) -> Int64:
        """The slots in use, from the oldest observation to the newest."""
        oldest = self.next if self.count == self.slots else 0
        return np.arange(oldest, oldest + self.count) % max(self.count, 1)

    def found(self) -> "Estimate":
        """Return what the core has just found."""
        weights, gap, violation, steps, method, status = self.work.weights(self.newest)
        return Estimate(weights, math.nan, gap, violation, steps, method, status, self.work)

    def in_order(self, found: "Estimate | None") -> Float64:
        """Return how the last gradient was averaged, oldest first."""
        if found is None:
            return np.ones(min(self.count, 1))
        return found.weights if self.members > self.count else found.weights[self.order]

    def moved(self, found: "Estimate | None", centre: float) -> float:
        """Return the distance between the last gradient and the denoised one."""
        if found is None:
            return 0.0
        # ||sum_i w_i h_i - h||^2 from distances alone: the coefficients add up to zero.
        v = found.weights.copy()
        v[self.newest] -= 1.0
        return math.sqrt(max(0.0, float(-0.5 * v @ self.distances(centre) ** 2 @ v)))

    def fit(self, shape: tuple[int, ...], dtype: AnyDType) -> None:
        """Make room for one more observation, and for numbers so wide."""
        if self.next >= self.all_variances.size:
            self.grow(self.next + 1)
        held = self.points
        if held is None or held.shape[1:] != shape or held.dtype != dtype or self.next >= len(held):
            self.move(shape, dtype)

    def move(self, shape: tuple[int, ...], dtype: AnyDType) -> None:
        """Go over to other memory; the old one keeps what it holds."""
        rows = self.slots or max(16, 2 * self.count)
        for name in ("points", "residuals"):
            # Zeros: slots that are not in use have a weight of zero, and no NaN in them.
            room = np.zeros((rows, *shape), dtype)
            if self.count:
                room[: self.count] = getattr(self, name)[: self.count]
            setattr(self, name, room)

    def grow(self, count: int) -> None:
        """Make room in the tables for K observations, or for all that there will ever be."""
        old = self.all_variances.size
        most = None if self.slots is None else max(self.slots, 2 if self.folds else 1)
        if count <= old or old == most:
            return
        new = most or max(16, 2 * old, count)
        tables = np.zeros((3, new, new))
        tables[:, :old, :old] = self.tables
        variances = np.concatenate((self.all_variances, np.zeros(new - old)))
        self.hold(tables, variances, self.count, self.next, self.newest)

    def state_dict(self) -> State:
        """Return the tables, as plain arrays and numbers."""
        used = slice(self.count)
        return {
            "count": self.count,
            "next": self.next,
            "centre": self.centre,
            "variances": self.variances.copy(),
            **{n: t[used, used].copy() for n, t in zip(_SAVED, self.tables, strict=True)},
        }

    def checked(self, state: Saved) -> State:
        """Return what `load_state_dict` needs of a saved state, or raise ValueError."""
        count = check.saved_count(state, "count", 0, self.slots)
        full = count == self.slots
        found: State = {
            "count": count,
            "next": check.saved_count(state, "next", 0 if full else count, count - full),
            "centre": float(check.saved(state, "centre", (), kind=np.dtype(np.float64))),
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

    def load_state_dict(self, state: Saved) -> None:
        """Go back to saved tables that have been checked."""
        self.reset()
        count, following = state["count"], state["next"]
        self.grow(count)
        tables, variances = self.tables, self.all_variances
        for name, table in zip(_SAVED, tables, strict=True):
            table[:count, :count] = state[name]
        variances[:count] = state["variances"]
        self.hold(tables, variances, count, following, (following or count) - 1)
        self.centre = state["centre"]


class Estimate(NamedTuple):
    """How the newest gradient is averaged, and what is known about that; NaN if unknown.

    Attributes:
        weights: (members,), one for each slot; they sum to 1 and may be negative.
        std: standard error of each coordinate of the answer.
        gap: relative duality gap.
        violation: worst relative violation of a bound.
        iterations: how many the solver took.
        method: the name of the method that answered.
        status: how it ended.
        source: what holds the answer for the whole window, until the next step; None if the model
            makes it anew.
    """

    weights: Float64
    std: float = math.nan
    gap: float = 0.0
    violation: float = 0.0
    iterations: int = 0
    method: str = "newton"
    status: Status = Status.SOLVED
    source: Answer | kernels.Workspace | None = None

    def whole(self) -> Answer | None:
        """Return the answer for the whole window, its multipliers in units of 1 / variances."""
        if not isinstance(self.source, kernels.Workspace):
            return self.source
        found = self.source.answer()
        return found._replace(multipliers=found.multipliers / self.source.least)
