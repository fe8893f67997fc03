"""What the last step did, and what the window costs."""

import math
from dataclasses import dataclass

from coco_denoiser.typing import Float64


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
        std: standard error of every coordinate of the denoised gradient; NaN if the model does
            not tell.
        noise_std: standard deviation of the noise that the Gaussian model found, else NaN.
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
    std: float
    noise_std: float
    skipped: int
    nbytes: int

    def __str__(self) -> str:
        """Return a summary of a few lines."""
        weights = " ".join(f"{w:.3f}" for w in self.weights)
        told = f"active constraints: {self.active}, relative gap: {self.gap:.1e}\n"
        if not math.isnan(self.std):
            told = f"standard error of a coordinate: {self.std:.3g}, noise {self.noise_std:.3g}\n"
        return (
            f"window: {self.observations} of {self.window} observations, "
            f"{self.nbytes / 2**20:.1f} MiB\n"
            f"curvature: between {self.mu:g} and {self.L:g}\n"
            f"weights, oldest first: {weights}\n"
            f"{told}"
            f"the gradient moved by {self.moved:.3e}\n"
            f"refused as not finite: {self.skipped}"
        )
