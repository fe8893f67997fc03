"""Error and bias of two gradients on a line, by their distance, with L right and wrong.

The paper simulates both (Figures 9 and 12). The simulation is held against the closed forms of
`two_points.py`, at every distance.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import Unit, generator
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.experiments.two_points import (
    P_ACTIVE,
    Pair,
    clipped,
    name_of,
    p_active,
    panel,
)
from coco_denoiser.paper.pairs import denoise_pairs

_TOGETHER = 10  # distances whose deviations are averaged
# What is simulated. The excess is over the error of the exact L on the same noise.
_SIMULATED = (
    "p_active",
    "p_active, twice the noise",
    "MSE",
    "excess over the exact L",
    "Bias",
)


def _together(curve: Curve) -> Curve:
    """Average over neighbouring distances, whose noise is independent."""
    cuts = range(_TOGETHER, curve.x.size - _TOGETHER + 1, _TOGETHER)
    x, mean, square = (np.split(c, cuts) for c in (curve.x, curve.mean, curve.sem**2))
    return Curve(
        np.array([part.mean() for part in x]),
        np.array([part.mean() for part in mean]),
        np.array([np.sqrt(part.sum()) / part.size for part in square]),
    )


def _last(inside: NDArray[np.bool_]) -> int:
    """Return the last distance of a range."""
    return int(np.flatnonzero(inside)[-1])


def _between(above: Curve, below: Curve, *, ends: Sequence[int]) -> list[Curve]:
    """Return how far above and below zero two curves are, half way between two distances."""
    middle = slice(sum(ends) // 2 - _TOGETHER // 2, sum(ends) // 2 + _TOGETHER // 2)
    return [_together(above.part(middle)), _together(below.part(middle).times(-1))]


class PairErrors(Pair):
    """Error and bias, simulated."""

    name = "mse-vs-distance"
    summary = (
        "Active constraints, error and bias of two gradients against their distance, for five L."
    )
    quick: ClassVar = {"runs": 4000}
    numbers = (9, 12)

    def count(self) -> int:
        return self.longest + 1

    def unit(self, index: int) -> Unit:
        """Return means and standard errors (L, what is simulated) at one distance."""
        rng = generator(self, self.name, index)
        noise = self.sigma * rng.standard_normal((self.runs, 2, 1))
        points = np.array([[0.0], [index]])
        g, doubled = points + noise, points + 2 * noise
        best = np.sum((denoise_pairs(points, g, L=1.0) - points) ** 2, axis=(1, 2))
        samples = []
        for L in self.L:
            theta = denoise_pairs(points, g, L=L)
            squares = np.sum((theta - points) ** 2, axis=(1, 2))
            # The oracle has no bias, so theta - g has that of theta, and less variance.
            move = theta[:, 1, 0] - g[:, 1, 0]
            further = denoise_pairs(points, doubled, L=L)[:, 1, 0] - doubled[:, 1, 0]
            samples.append([move != 0, further != 0, squares, squares - best, move])
        sem = np.std(samples, axis=2, ddof=1) / np.sqrt(self.runs)
        return {"mean": np.mean(samples, axis=2), "sem": sem}

    def gather(self, units: Sequence[Unit]) -> Curves:
        curves, at = Curves(), self.distances
        mean, sem = (np.stack([unit[name] for unit in units], axis=2) for name in ("mean", "sem"))
        for (i, what), (j, L) in product(enumerate(_SIMULATED), enumerate(self.L)):
            curves.exact(what, name_of(L), at, mean[j, i], sem[j, i])
        curves.exact("MSE", "MSE(g)", at, np.full(at.size, 2 * self.sigma**2))
        for L in self.L:
            first, second = clipped(L, at, self.sigma)
            curves.exact("p_active theory", name_of(L), at, p_active(L, at, self.sigma))
            curves.exact("MSE theory", name_of(L), at, self.sigma**2 + second / 2)
            curves.exact("Bias theory", name_of(L), at, first / 2)
        return curves

    def panels(self, _: Curves) -> list[Panel]:
        above = tuple(name_of(L) for L in self.L if L >= 1)
        raw = frozenset({"MSE(g)"})
        error = panel("MSE", "Total error of the two gradients", "MSE(θ)", references=raw)
        bias = panel("Bias", "Bias", "|Bias(θ)|", magnitude=True)
        return [
            replace(P_ACTIVE, figure="9, top"),
            replace(error, figure="9, bottom", y_range=(0.0, 250.0), new_row=True),
            replace(error, title="The same in full, on a logarithmic axis", log="y"),
            replace(bias, figure="12", y_range=(0.0, 5.0), new_row=True),
            replace(bias, title="The same, L not too small", series=above),
        ]

    def _settled(self, curves: Curves) -> slice:
        """Return from where on p_active has settled at 1/2, with L exact."""
        off = curves["p_active theory", name_of(1.0)].mean - 0.5
        return slice(int(np.argmax(off <= 0.01)), None)

    def _loose(self) -> dict[float, slice]:
        """Return from where on p_active is below 1%, for every L that is too large."""
        p = {L: p_active(L, self.distances, self.sigma) for L in self.over}
        return {L: slice(int(np.argmax(values < 0.01)), None) for L, values in p.items()}

    def _against(self, curves: Curves, L: float, level: float = 2.0) -> Curve:
        """Return by how much the error exceeds a multiple of σ², that of the oracle, as a share."""
        return curves["MSE", name_of(L)].over(level * self.sigma**2).shifted(-1)

    def claims(self, curves: Curves) -> list[Claim]:
        parts = (self._error_claims, self._under_claims, self._right_claims, self._bias_claims)
        claims = [claim for part in parts for claim in part(curves)]
        return [*claims, self._closed_form_claim(curves)]

    def _error_claims(self, curves: Curves) -> list[Claim]:
        """Return what is claimed of active constraints, and of the error with any L."""
        paper = Judge(self.runs, figure=9)
        p = [
            _together(curves["p_active", name].minus(curves["p_active theory", name]))
            for name in map(name_of, self.L)
        ]
        blocks = [_together(self._against(curves, L)) for L in (1.0, *self.over)]
        grows = paper.premise(
            "a larger error in the end than at first",
            [c.part(slice(-1, None)).minus(c.part(slice(1))) for c in blocks],
        )
        return [
            paper.equivalent(
                "The simulated p_active recovers that of Figure 7.",
                p,
                margin=0.02,
                measure="largest deviation that the runs leave possible",
                theory=True,
            ),
            paper.equivalent(
                "At distance 0 the estimate is the average, whatever L is: the total error is σ².",
                [self._against(curves, L, 1.0).part(slice(1)) for L in self.L],
                margin=0.1,
                theory=True,
            ),
            paper.no_worse(
                "The looser the constraint, the less is denoised: with L exact or too large the "
                "error grows with the distance.",
                [c.falls() for c in blocks],
                measure=f"largest fall of the error from {_TOGETHER} distances to the next "
                f"{_TOGETHER} that the runs leave possible, as a share of the oracle's error",
                theory=True,
                provided=grows,
            ),
        ]

    def _under_claims(self, curves: Curves) -> list[Claim]:
        """Return what is claimed of an L that is too small."""
        paper, raw = Judge(self.runs, figure=9), 2 * self.sigma**2
        excess = [self._against(curves, L) for L in self.under]
        ends = [_last(curves["MSE theory", name_of(L)].mean <= raw) for L in self.under]
        return [
            paper.increases(
                "With L underestimated, MSE(θ) can exceed MSE(g).",
                [curve.part(slice(-1, None)) for curve in excess],
                measure="smallest excess at Δx=120, in standard errors",
            ),
            paper.increases(
                "Yet there is a range of distances where MSE(θ) ≤ MSE(g), even then.",
                [
                    curve.part(slice(1, end // 2 + 1)).times(-1)
                    for curve, end in zip(excess, ends, strict=True)
                ],
                measure="smallest difference over the first half of that range, in standard errors",
            ),
            paper.increases(
                "The more L is underestimated, the smaller that range.",
                _between(*excess, ends=ends),
                measure="half way between its ends by theory, the smaller of MSE(θ) − MSE(g) at "
                "L={} and MSE(g) − MSE(θ) at L={}, in standard errors".format(*self.under),
            ),
        ]

    def _right_claims(self, curves: Curves) -> list[Claim]:
        """Return what is claimed of an L that is exact or too large."""
        settled = self._settled(curves)
        paper, at = Judge(self.runs, figure=9), self.distances
        over_raw = [self._against(curves, L) for L in (1.0, *self.over)]
        widest, active = self.over[-1], ("p_active, twice the noise", "p_active")
        ends = [_last(p_active(widest, at, k * self.sigma) >= 0.01) for k in (1, 2)]
        noisy, quiet = (curves[name, name_of(widest)].shifted(-0.01) for name in active)
        gains = paper.premise(
            f"a gain over the first {_TOGETHER} distances",
            [_together(curve.part(slice(_TOGETHER))).times(-1) for curve in over_raw],
        )
        return [
            paper.no_worse(
                "With L exact or overestimated, MSE(θ) ≤ MSE(g) at every distance.",
                [_together(curve) for curve in over_raw],
                theory=True,
                provided=gains,
            ),
            paper.increases(
                "With L exact the error is minimal among all L, at every distance: every other L "
                f"has more, over any {_TOGETHER} distances.",
                [
                    _together(curves["excess over the exact L", name_of(L)])
                    for L in self.L
                    if L != 1
                ],
                theory=True,
            ),
            paper.equivalent(
                "With L exact the error settles at an intermediate value where p_active does (from "
                f"Δx={at[settled][0]:.0f} on): 3σ²/2.",
                [_together(self._against(curves, 1.0, 1.5).part(settled))],
            ),
            paper.equivalent(
                "With L overestimated the error is MSE(g) where p_active has settled at 0.",
                [
                    _together(self._against(curves, L).part(where))
                    for L, where in self._loose().items()
                ],
                provided=gains,
            ),
            paper.increases(
                "With more noise, that happens at longer distances.",
                _between(noisy, quiet, ends=ends),
                measure="half way between the distances from which p_active < 1% by theory, the "
                f"smaller of p_active − 1% at σ={2 * self.sigma:g} and 1% − p_active at "
                f"σ={self.sigma:g}, in standard errors",
                theory=True,
            ),
        ]

    def _falls(self, bias: dict[float, Curve]) -> list[Curve]:
        """Return, for an L too large, the bias at its peak and its falls until dx = 60 and 120."""
        falls = []
        for c in (_together(bias[L]) for L in self.over):
            high = int(c.mean.argmax())
            peak = c.part(slice(high, high + 1))
            falls += [peak, *(peak.minus(c.part(slice(i, i + 1))) for i in (6, c.x.size - 1))]
        return falls

    def _bias_claims(self, curves: Curves) -> list[Claim]:
        paper, at = Judge(self.runs, figure=12), self.distances
        sigma, limit = self.sigma, self.sigma / (2 * np.sqrt(np.pi))
        # The second point moves down if the constraint is active: the sign is known.
        bias = {}
        for L in self.L:
            seen = curves["Bias", name_of(L)]
            bias[L] = seen.times(np.sign(seen.mean.sum())).over(sigma)
        share = "largest bias that the runs leave possible, as a share of σ"
        biased = paper.increases(
            "With L overestimated the estimate is biased too, and its bias decreases again with "
            "the distance.",
            self._falls(bias),
            measure="smallest of the bias at its peak and of its fall until Δx=60 and 120, in "
            "standard errors",
        )
        return [
            paper.equivalent(
                "At distance 0 the estimate has no bias, whatever L is.",
                [c.part(slice(1)) for c in bias.values()],
                measure=share,
                theory=True,
                provided=biased,
            ),
            paper.equivalent(
                "With L underestimated the bias grows linearly with the distance: as (1 − L)Δx/2.",
                [
                    bias[L].times(sigma).shifted((L - 1) * at / 2).over((1 - L) * at[-1] / 2)
                    for L in self.under
                ],
                measure="largest distance from that line that the runs leave possible, as a share "
                "of its height at Δx=120",
            ),
            paper.increases(
                "The smaller L is, the steeper that growth.",
                [Curve.minus(*(bias[L].part(slice(-10, None)) for L in self.under))],
            ),
            paper.equivalent(
                "With L exact the bias grows until it settles, at σ/(2√π), where p_active does.",
                [
                    _together(
                        bias[1.0].part(self._settled(curves)).times(sigma).over(limit).shifted(-1)
                    )
                ],
            ),
            biased,
            paper.no_worse(
                "The more L is overestimated, the lower the bias.",
                [_together(bias[self.over[1]].minus(bias[self.over[0]]))],
                margin=0.005,
                measure="largest increase that the runs leave possible, as a share of σ",
                provided=biased,
            ),
            paper.equivalent(
                "Where the constraint is inactive (p_active below 1%) there is no bias.",
                [_together(bias[L].part(where)) for L, where in self._loose().items()],
                margin=0.01,
                measure=share,
                provided=biased,
            ),
        ]

    def _closed_form_claim(self, curves: Curves) -> Claim:
        deviations = []
        for name, unit in (("MSE", 2 * self.sigma**2), ("Bias", self.sigma)):
            for L in self.L:
                known = curves[f"{name} theory", name_of(L)]
                off = curves[name, name_of(L)].minus(known)
                deviations.append(_together(off.over(np.maximum(np.abs(known.mean), unit))))
        return Judge(self.runs).equivalent(
            "Error and bias are the moments of a clipped normal variable (the paper has no closed "
            "form).",
            deviations,
            theory=True,
        )
