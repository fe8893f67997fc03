"""Two points on a line: how often their constraint is active, their error and their bias.

For f = x^2 / 2 and two points at distance D, the difference of the noisy gradients is normal,
g_1 - g_2 ~ N(D, 2 sigma^2), and COCO clips it to [0, L D]; the mean of the two is left alone.
So everything has a closed form: the probability of clipping (the paper's formula, Figures 7 and
8), and the error and the bias, which `pair_errors.py` simulates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.typing import Float64


def p_active(L: float, distance: Float64, sigma: float) -> Float64:
    """Return the probability that two noisy gradients are not co-coercive, 1 - p_inactive."""
    scale = np.sqrt(2) * sigma
    inside = ndtr((L - 1) * distance / scale) - ndtr(-distance / scale)
    return np.asarray(1 - inside)


def clipped(L: float, distance: Float64, sigma: float) -> tuple[Float64, Float64]:
    """Return mean and mean square of clip(z, 0, L D) - D for z ~ N(D, 2 sigma^2)."""
    s = np.sqrt(2) * sigma
    low, high = -distance / s, (L - 1) * distance / s  # the bounds, in standard deviations
    below, above = ndtr(low), ndtr(-high)
    at_low, at_high = (np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) for z in (low, high))
    inside = ndtr(high) - below
    first = s * (low * below + high * above + at_low - at_high)
    second = s**2 * (low**2 * below + high**2 * above + inside + low * at_low - high * at_high)
    return np.asarray(first), np.asarray(second)


def name_of(L: float, noise: str = "") -> str:
    """Return the name of the curve of one L, as the paper has it."""
    return (f"ΔL={L - 1:+.2f}" if L != 1 else "ΔL=0") + noise


def panel(name: str, title: str, y: str, **options: Any) -> Panel:
    """Return a panel over the distance."""
    return Panel(name, title, "distance Δx", y, **options)


_DOUBLED = ", σ=20"
P_ACTIVE = panel(
    "p_active", "Probability of an active constraint", "p_active", figure="7", y_range=(0.0, 1.0)
)


@dataclass(frozen=True)
class Pair(Experiment):
    """The paper's numbers; the true L is 1."""

    runs: int = 10_000
    sigma: float = 10.0
    L: tuple[float, ...] = (0.1, 0.55, 1.0, 1.45, 1.9)
    longest: int = 120

    @property
    def distances(self) -> Float64:
        """The distances looked at."""
        return np.arange(self.longest + 1, dtype=float)

    @property
    def under(self) -> list[float]:
        """The values of L that are too small."""
        return [L for L in self.L if L < 1]

    @property
    def over(self) -> list[float]:
        """The values of L that are too large."""
        return [L for L in self.L if L > 1]


class Tightness(Pair):
    """How often the constraint is active: a formula."""

    name = "constraint-tightness"
    summary = "Probability that two noisy gradients break co-coercivity, by the paper's formula."
    numbers = (7, 8)

    def unit(self, _: int) -> Unit:
        return {}

    def gather(self, _: Sequence[Unit]) -> Curves:
        curves, at = Curves(), self.distances
        for L in self.L:
            curves.exact("p_active", name_of(L), at, p_active(L, at, self.sigma))
        for factor, noise in ((1, ""), (2, _DOUBLED)):
            for L in self.L[::2]:  # every other L, as in the paper
                curves.exact("noise", name_of(L, noise), at, p_active(L, at, factor * self.sigma))
        return curves

    def panels(self, curves: Curves) -> list[Panel]:
        doubled = frozenset(name for name in curves.series("noise") if "σ" in name)
        title = "The same with twice the noise"
        noisier = replace(P_ACTIVE, name="noise", title=title, references=doubled, figure="8")
        return [P_ACTIVE, noisier]

    def _distance_to_limits(self, ends: Float64) -> float:
        """Return how far p_active ends from its limits, over the bound of the normal tails."""
        over = np.array(self.L) - 1
        # Tails of the normal distribution are below exp(-z^2 / 2) / 2 each.
        z = self.longest / (np.sqrt(2) * self.sigma)
        tails = 0.5 * np.exp(-0.5 * z**2) + np.where(over, 0.5 * np.exp(-0.5 * (over * z) ** 2), 0)
        return float(np.max(np.abs(ends - 0.5 * (1 - np.sign(over))) / tails))

    def _lead_of_noise(self, curves: Curves) -> float:
        """Return the largest lead of the doubled noise on the way to the limit, second half."""
        leads = []
        for L in (self.under[0], self.over[-1]):
            a, b = (curves["noise", name_of(L, noise)].mean for noise in ("", _DOUBLED))
            lead = np.abs(a - a[-1].round()) - np.abs(b - b[-1].round())
            leads.append(float(lead[self.longest // 2 :].max()))
        return max(leads)

    def claims(self, curves: Curves) -> list[Claim]:
        p = np.stack([curves["p_active", name_of(L)].mean for L in self.L])  # (L, distances)
        paper = Judge(1, figure=7)
        return [
            paper.at_most(
                "Points at distance 0 always make the constraint active, whatever L is.",
                float(np.abs(1 - p[:, 0]).max()),
                1e-12,
                measure="deviation of p_active(0) from 1; threshold: rounding",
                theory=True,
            ),
            paper.at_most(
                "As the distance grows, p_active tends to 0 if L is overestimated, to 1/2 if it is "
                "exact, to 1 if it is underestimated.",
                self._distance_to_limits(p[:, -1]),
                1.0,
                measure="distance to the limit at Δx=120, as a share of the normal tail's bound",
                theory=True,
            ),
            paper.at_most(
                "At first p_active decreases for every L.",
                float((p[:, 1] - p[:, 0]).max()),
                0.0,
                measure="largest change from Δx=0 to 1",
                theory=True,
            ),
            paper.at_most(
                "The constraint becomes looser as the distance increases: p_active falls from each "
                "distance to the next, for every L.",
                float(np.diff(p).max()),
                0.0,
                measure="largest rise of p_active from one distance to the next",
                note="It does if L is exact or overestimated. If L is underestimated, p_active "
                "rises to 1 again, as the paper's own appendix says.",
            ),
            *(
                paper.at_most(
                    f"The more L is {which}estimated, the faster p_active tends to {limit}.",
                    float((p[self.L.index(b)] - p[self.L.index(a)]).max()),
                    1e-12,
                    measure=f"largest excess of p_active at L={b} over L={a}; threshold: rounding",
                    theory=True,
                )
                for which, limit, (a, b) in (("over", 0, self.over), ("under", 1, self.under))
            ),
            Judge(1, figure=8).at_most(
                "More noise makes the convergence to these limits slower.",
                self._lead_of_noise(curves),
                0.0,
                measure="largest lead of σ=20 over σ=10 on the way to the limit, second half",
                theory=True,
            ),
        ]
