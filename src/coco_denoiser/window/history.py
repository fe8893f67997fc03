"""What becomes of the observation that leaves a window: it is dropped, folded, or filtered.

Folding merges the oldest observation into the next-oldest instead of dropping it. The two, with
residuals h_0 and h_1 and noise variances v_0 and v_1, may be rho = r ||x_1 - x_0|| apart. Their
two-point problem has a closed form (`closed_form.py`); its second half replaces the successor,
with the variance that fixed weights would give it:

    h_1 <- h_1 + w (h_0 - h_1),                 w = t v_1 / (v_0 + v_1),
    v_1 <- (1 - w)^2 v_1 + w^2 v_0,             t = max(0, 1 - rho / ||h_1 - h_0||).

At coinciding points (rho = 0) this is the recursive mean; where the bound holds, w = 0 and the
oldest is dropped. With a window of two, the new h_1 is the denoised residual itself:
the past is one point, one residual and one number, and folding is a recursive filter.
"""

from typing import NamedTuple

import numpy as np

from coco_denoiser.models.base import recentred
from coco_denoiser.models.cocoercive import CoCoercive
from coco_denoiser.solvers import closed_form
from coco_denoiser.window.tables import Rows, Tables


class Merger(NamedTuple):
    """How an observation enters its successor: with this weight, and to this noise variance."""

    weight: float
    variance: float


class Plan(NamedTuple):
    """What to measure, before anything is written.

    Attributes:
        used: how many slots are in use.
        skip: the slot that is about to be overwritten; -1 for none.
        heir: the slot that it is mixed into; -1 for none.
        merger: how.
        shift: how far the centre of the mixture lies from that of the residuals.
    """

    used: int
    skip: int
    heir: int = -1
    merger: Merger = Merger(0.0, 1.0)
    shift: float = 0.0

    @property
    def numbers(self) -> tuple[int, int, int, float, float]:
        """What `passes.measure` has to know of it."""
        return self.used, self.skip, self.heir, self.merger.weight, self.shift


def merge(apart: float, rho: float, older: float, newer: float) -> Merger:
    """Merge one observation into the next.

    Args:
        apart: the distance of the two residuals.
        rho: how far apart they may be.
        older: noise variance of the observation that leaves.
        newer: noise variance of the one that stays.
    """
    # At coinciding points, even equal gradients count as two observations.
    t = closed_form.pull(apart, rho) if rho > 0.0 else 1.0
    w = t * (newer / (older + newer))
    return Merger(w, (1.0 - w) ** 2 * newer + w**2 * older)


class Drop:
    """The oldest observation is overwritten, as in the paper."""

    def __init__(self, window: int | None) -> None:
        self.slots = window

    def plan(self, tables: Tables, centre: float) -> Plan:
        """Return what the next observation does to a window of residuals g - centre x."""
        del centre
        return Plan(tables.count, tables.next if tables.full else -1)


class Fold(Drop):
    """The oldest observation is merged into the next-oldest before it is overwritten."""

    def __init__(self, window: int | None, model: CoCoercive) -> None:
        super().__init__(window)
        self._model = model

    def plan(self, tables: Tables, centre: float) -> Plan:
        """Return what the next observation does to a window of residuals g - centre x."""
        plan = super().plan(tables, centre)
        if not tables.full:
            return plan
        old, heir, shift = tables.next, tables.heir, self._model.centre - centre
        points, residuals, cosines, variances = tables.used()
        merger = self.merge(
            np.array([[table[old, heir]] for table in (points, cosines, residuals)]),
            shift,
            variances.item(old),
            variances.item(heir),
        )[0]
        if merger.weight == 0.0:
            return plan
        return plan._replace(heir=heir, merger=merger, shift=shift)

    def merge(self, pair: Rows, shift: float, older: float, newer: float) -> tuple[Merger, float]:
        """Return how one observation is merged into another, and how far apart the two are.

        Args:
            pair: what the tables hold of the two, (3, 1).
            shift: how far the centre of the bounds lies from that of the residuals.
            older: noise variance of the observation that leaves.
            newer: noise variance of the one that stays.
        """
        points, cosines, residuals = pair
        apart = recentred(points, residuals, cosines, shift).item(0)
        return merge(apart, self._model.radius * points.item(0), older, newer), apart


class Filter(Fold):
    """With a window of two, the merger is the answer itself: one slot holds all the past."""

    def __init__(self, model: CoCoercive) -> None:
        super().__init__(1, model)

    def plan(self, tables: Tables, centre: float) -> Plan:
        """Return a plan that only measures the past."""
        del centre
        return Plan(tables.count, -1)
