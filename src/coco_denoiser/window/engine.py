"""The only state machine of a stream: observe -> tables -> model -> weights -> combine.

The engine holds everything that does not depend on d; a backend holds the vectors. Nothing
changes before an observation has been measured and accepted.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.models import Averaging, Model, Snapshot
from coco_denoiser.models.cocoercive import CoCoercive
from coco_denoiser.solution import ConvergenceWarning
from coco_denoiser.typing import Float64
from coco_denoiser.window.history import Drop, Filter, Fold, Plan
from coco_denoiser.window.tables import Tables
from coco_denoiser.window.vectors import Measured, Vectors

VERSION = 2  # of what a state holds


class Step(Enum):
    """What became of an observation."""

    REFUSED = "it is not finite, and nothing has changed"
    IGNORED = "its gradient is zero while the optimizer stands still: no observation"
    UNCHANGED = "it is in the window, and its gradient is as it was"
    DENOISED = "it is in the window, and its denoised gradient is ready"


class Engine:
    """The sliding window of a stream, without its vectors.

    Args:
        model: what turns the window into weights.
        window: how many observations are kept, K; None keeps all of them.
        forget: what becomes of the observation that leaves the window: "drop" or "fold".

    Attributes:
        window: K.
        forget: what becomes of the oldest.
        slots: how many observations are stored at most: 1 where the past is filtered.
        centre: c0 of the residuals that are stored.
        last: how the last gradient was averaged; None before the first.
    """

    def __init__(self, model: Model, *, window: int | None, forget: str) -> None:
        self.model = model
        self.window = window
        self.forget = check.forgetting(forget, window)
        self._history = _history(model, window, self.forget)
        self.slots = self._history.slots
        self.tables = Tables(self.slots)
        self.reset()

    def reset(self) -> None:
        """Forget every observation."""
        self.tables.reset()
        self.centre = 0.0
        self.last: Averaging | None = None
        self._moved = 0.0
        self._next = 0.0, Plan(0, -1)  # centre, and what the observation does to the window

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return self.tables.count

    def observe(self, vectors: Vectors, *, variance: float = 1.0) -> Step:
        """Take the observation that the vectors hold, of a noise variance relative to others'."""
        found = self.measure(vectors)
        return found if isinstance(found, Step) else self.take(vectors, found, variance)

    def measure(
        self, vectors: Vectors, *, sign: float = 1.0, standing: Callable[[], bool] | None = None
    ) -> Step | Measured:
        """Look at the observation that the vectors hold, and change nothing.

        Args:
            vectors: what holds the window and the observation.
            sign: -1 if the objective is maximised.
            standing: says whether the optimizer is made to stand still; zero gradients are then
                no observation. None if they always are one.

        Returns:
            What `take` needs, or what becomes of the observation if it cannot be taken.
        """
        self.model.begin(sign)
        centre = self.centre if self.tables.count else self.model.centre
        self._next = centre, self._history.plan(self.tables, centre)
        found = vectors.measure(*self._next)
        if not found.finite:
            return Step.REFUSED
        if standing is not None and found.zero and (not len(self) or standing()):
            return Step.IGNORED
        return found

    def take(self, vectors: Vectors, found: Measured, variance: float) -> Step:
        """Take the observation that has just been measured."""
        tables = self.tables
        self.centre, plan = self._next
        try:
            if isinstance(self._history, Filter) and tables.count:
                return self._filter(vectors, self._history, found.new, variance)
            if found.heir is not None:
                vectors.mix(self.centre, plan)
                tables.update(plan.heir, found.heir, plan.merger.variance)
            slot = tables.insert(found.new, variance)
            return self._average(vectors, slot)
        except BaseException:
            # Tables and vectors may no longer belong together.
            self.reset()
            raise

    def _average(self, vectors: Vectors, slot: int) -> Step:
        count = self.tables.count
        self.last = found = None
        weights, shift = None, 0.0
        if count > 1:
            at_hand = vectors.coordinates(self.centre, count, slot)
            self.last = found = self.model.average(self.snapshot(vectors.d, at_hand))
            shift = found.centre - self.centre
            weights = None if found.weights.item(slot) == 1.0 else found.weights
            if found.trouble is not None:
                warnings.warn(found.trouble, ConvergenceWarning, stacklevel=5)
        vectors.commit(self.centre, slot, weights, shift)
        return Step.UNCHANGED if weights is None else Step.DENOISED

    def _filter(self, vectors: Vectors, history: Filter, pair: Any, variance: float) -> Step:
        """Merge the past into the observation; the result is the answer, and the past from now."""
        c, past = self.model.centre, self.tables.variances.item(0)
        merger, apart = history.merge(pair, c - self.centre, past, variance)
        self.tables.update(0, None, merger.variance)
        w = merger.weight
        self.last = Averaging(np.array([w, 1.0 - w]), c, int(w > 0.0))
        self._moved = w * apart
        if w == 0.0:
            vectors.commit(self.centre, 0, None, 0.0)
            return Step.UNCHANGED
        vectors.advance(self.centre, w, c - self.centre)
        return Step.DENOISED

    def snapshot(self, d: int, vectors: Any = None) -> Snapshot:
        """Return the window as a model sees it; vectors (count, d) only if they are at hand."""
        return Snapshot(*self.tables.used(), self.tables.order(), d, self.centre, vectors)

    def weights(self) -> Float64:
        """Return how the last gradient was averaged, oldest first."""
        if isinstance(self._history, Filter) or self.last is None:
            return np.ones(min(len(self), 1)) if self.last is None else self.last.weights
        return self.last.weights[self.tables.order()]

    def moved(self) -> float:
        """Return the distance between the last gradient and the denoised one."""
        if isinstance(self._history, Filter) or self.last is None:
            return self._moved
        # ||sum_i w_i h_i - h||^2 from distances alone: the coefficients add up to zero.
        v = self.last.weights.copy()
        window = self.snapshot(0)
        v[window.newest] -= 1.0
        square = -0.5 * v @ window.distances(self.last.centre) ** 2 @ v
        return math.sqrt(max(0.0, float(square)))

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the vectors as plain arrays and numbers; 0 stands for None."""
        return {
            "version": VERSION,
            "window": self.window or 0,
            "forget": self.forget,
            "centre": self.centre,
            **self.tables.state_dict(),
        }

    def checked(self, state: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `load_state_dict` needs of a saved state, or raise ValueError.

        Args:
            state: what was saved.
            settings: further entries that must be the same.
        """
        wanted = {"version": VERSION, "window": self.window or 0, "forget": self.forget, **settings}
        missing = sorted((self.state_dict().keys() | wanted) - state.keys())
        if missing:
            raise ValueError(f"state lacks {', '.join(missing)}: it is not the state of a stream.")
        for name, mine in wanted.items():
            if state[name] != mine:
                raise ValueError(
                    f"state was saved with {name}={state[name]}, this one has {name}={mine}. "
                    f"Use the same {name}, or start with an empty window."
                )
        tables = self.tables.checked(state)
        return {**tables, "centre": check.saved_number(state, "centre")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that has been checked."""
        self.reset()
        self.tables.load_state_dict(state)
        self.centre = state["centre"]


def _history(model: Model, window: int | None, forget: str) -> Drop:
    if forget == "drop":
        return Drop(window)
    if not isinstance(model, CoCoercive):
        raise ValueError(  # noqa: TRY004  # the fault is in the settings, not in the type of one
            "forget='fold' needs L, a number or a function: folded gradients are not observations, "
            "and the Gaussian model would misjudge their noise. Pass L, or use forget='drop'."
        )
    return Filter(model) if window == 2 else Fold(window, model)
