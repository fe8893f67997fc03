"""What the last step did, and what the window costs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coco_denoiser.solution import Answer
from coco_denoiser.tables import Tables
from coco_denoiser.typing import Float64


class Averaging(NamedTuple):
    """How the newest gradient was averaged: four entries of `Diagnostics`."""

    weights: Float64
    active: int
    gap: float
    moved: float


def averaging(tables: Tables, found: Answer | None, slot: int) -> Averaging:
    """Return how the answer of a window averaged the gradient in a slot; None changes nothing."""
    count = tables.count
    if not count:
        return Averaging(np.zeros(0), 0, 0.0, 0.0)
    if found is None:
        W, multipliers, gap = np.eye(count), np.zeros((count, count)), 0.0
    else:
        W, multipliers, gap = found.weights, found.multipliers, found.gap
    # ||sum_i w_i h_i - h||^2 from distances alone: the coefficients add up to zero.
    v = W[slot].copy()
    v[slot] -= 1.0
    square = -0.5 * v @ tables.residuals[:count, :count] ** 2 @ v
    active = int(np.count_nonzero(np.triu(multipliers > 0.0, 1)))
    return Averaging(W[slot, tables.order()], active, gap, float(np.sqrt(max(0.0, square))))


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What the last step did, and what the window costs.

    Attributes:
        observations: how many are in the window; folded ones count as one.
        window: how many may be, K.
        L: upper bound on the curvature at the last step.
        mu: lower bound at the last step.
        weights: (observations,), how the last gradient was averaged, oldest first; the last
            entry is the weight of the newest observation itself. With window=2 and folding
            there are two, the first being that of the past as a whole.
        active: how many pairs of observations were drawn together.
        gap: relative duality gap of the last step.
        moved: distance between the last gradient and the denoised one.
        skipped: how many observations were refused because they were not finite.
        nbytes: memory that the window takes on this rank: 2 K copies of the parameters; two
            with window=2 and folding.
    """

    observations: int
    window: int
    L: float
    mu: float
    weights: Float64
    active: int
    gap: float
    moved: float
    skipped: int
    nbytes: int

    def __str__(self) -> str:
        """Say it in a few lines."""
        weights = " ".join(f"{w:.3f}" for w in self.weights)
        return (
            f"window: {self.observations} of {self.window} observations, "
            f"{self.nbytes / 2**20:.1f} MiB\n"
            f"curvature: between {self.mu:g} and {self.L:g}\n"
            f"weights, oldest first: {weights}\n"
            f"active constraints: {self.active}, relative gap: {self.gap:.1e}\n"
            f"the gradient moved by {self.moved:.3e}\n"
            f"refused as not finite: {self.skipped}"
        )
