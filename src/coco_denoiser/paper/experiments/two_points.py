"""Two points on a line: how often their constraint is active, their error and their bias.

For f = x^2 / 2 and two points at distance D, the difference of the noisy gradients is normal,
g_1 - g_2 ~ N(D, 2 sigma^2), and COCO clips it to [0, L D]; the mean of the two is left alone.
So everything has a closed form: the probability of clipping (the paper's formula, Figures 7 and
8), and the error and the bias, which the paper simulates (Figures 9 and 12). The simulation is
held against the closed forms, at every distance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.solvers.closed_form import denoise_pairs
from coco_denoiser.typing import Float64

_BLOCK = 11  # distances of a unit
_TOGETHER = 10  # distances whose deviations are averaged
_SUMS = ("active", "noisier", "error", "error2", "excess", "excess2", "bias", "bias2")


@dataclass(frozen=True)
class PairConfig(Config):
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


def _name(L: float, noise: str = "") -> str:
    """Return the name of the curve of one L, as the paper has it."""
    return (f"ΔL={L - 1:+.2f}" if L != 1 else "ΔL=0") + noise


def _panel(name: str, title: str, y: str, **options: Any) -> Panel:
    return Panel(name, title, "distance Δx", y, **options)


_P_ACTIVE = _panel(
    "p_active", "Probability of an active constraint", "p_active", figure="7", y_range=(0.0, 1.0)
)


# Figures 7 and 8: the formula.

_DOUBLED = ", σ=20"


def _formula_gather(config: PairConfig, _: Sequence[Unit]) -> Curves:
    curves, at = Curves(), config.distances
    for L in config.L:
        curves.exact("p_active", _name(L), at, p_active(L, at, config.sigma))
    for factor, noise in ((1, ""), (2, _DOUBLED)):
        for L in config.L[::2]:  # every other L, as in the paper
            curves.exact("noise", _name(L, noise), at, p_active(L, at, factor * config.sigma))
    return curves


def _formula_panels(result: Result) -> list[Panel]:
    doubled = frozenset(name for name in result.curves.series("noise") if "σ" in name)
    title = "The same with twice the noise"
    noisier = replace(_P_ACTIVE, name="noise", title=title, references=doubled, figure="8")
    return [_P_ACTIVE, noisier]


def _formula_claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    values = {L: curves["p_active", _name(L)].mean for L in config.L}
    limits = {L: 0.5 * (1 - np.sign(L - 1)) for L in config.L}
    # Tails of the normal distribution are below exp(-z^2 / 2) / 2 each.
    z = config.longest / (np.sqrt(2) * config.sigma)
    tail = {
        L: 0.5 * np.exp(-0.5 * z**2) + (0.5 * np.exp(-0.5 * ((L - 1) * z) ** 2) if L != 1 else 0)
        for L in config.L
    }
    slower = []
    for L in (config.under[0], config.over[-1]):
        a, b = (curves["noise", _name(L, noise)].mean for noise in ("", _DOUBLED))
        slower.append(np.abs(a - a[-1].round()) - np.abs(b - b[-1].round()))
    paper = Judge(1, figure=7)
    return [
        paper.at_most(
            "Points at distance 0 always make the constraint active, whatever L is.",
            max(float(abs(1 - v[0])) for v in values.values()),
            1e-12,
            measure="deviation of p_active(0) from 1; threshold: rounding",
            theory=True,
        ),
        paper.at_most(
            "As the distance grows, p_active tends to 0 if L is overestimated, to 1/2 if it is "
            "exact, to 1 if it is underestimated.",
            max(float(abs(values[L][-1] - limits[L]) / tail[L]) for L in config.L),
            1.0,
            measure="distance to the limit at Δx=120, as a share of the normal tail's bound",
            theory=True,
        ),
        paper.at_most(
            "At first p_active decreases for every L.",
            max(float(v[1] - v[0]) for v in values.values()),
            0.0,
            measure="largest change from Δx=0 to 1",
            theory=True,
        ),
        paper.at_most(
            "The constraint becomes looser as the distance increases: p_active falls from each "
            "distance to the next, for every L.",
            max(float(np.diff(v).max()) for v in values.values()),
            0.0,
            measure="largest rise of p_active from one distance to the next",
            note="It does if L is exact or overestimated. If L is underestimated, p_active rises "
            "to 1 again, as the paper's own appendix says.",
        ),
        *(
            paper.at_most(
                f"The more L is {which}estimated, the faster p_active tends to {limit}.",
                float((values[b] - values[a]).max()),
                1e-12,
                measure=f"largest excess of p_active at L={b} over L={a}; threshold: rounding",
                theory=True,
            )
            for which, limit, (a, b) in (("over", 0, config.over), ("under", 1, config.under))
        ),
        Judge(1, figure=8).at_most(
            "More noise makes the convergence to these limits slower.",
            float(max(s[config.longest // 2 :].max() for s in slower)),
            0.0,
            measure="largest lead of σ=20 over σ=10 on the way to the limit, second half",
            theory=True,
        ),
    ]


# Figures 9 and 12: the simulation.


def _unit(config: PairConfig, index: int) -> Unit:
    """Return sums over the runs, (L, distances), of what `_SUMS` names; 2 is for the squares.

    `excess` is the error minus that with the exact L on the same noise, and `noisier` counts
    active constraints if the noise is doubled.
    """
    at = config.distances[index * _BLOCK : (index + 1) * _BLOCK]
    sums = {name: np.zeros((len(config.L), at.size)) for name in _SUMS}
    for column, distance in enumerate(at):
        rng = generator(config, "mse-vs-distance", int(distance))
        noise = config.sigma * rng.standard_normal((config.runs, 2, 1))
        points = np.array([[0.0], [distance]])
        g, doubled = points + noise, points + 2 * noise
        best = np.sum((denoise_pairs(points, g, L=1.0) - points) ** 2, axis=(1, 2))
        for row, L in enumerate(config.L):
            theta = denoise_pairs(points, g, L=L)
            squares = np.sum((theta - points) ** 2, axis=(1, 2))
            # The oracle has no bias, so theta - g has that of theta, and less variance.
            move = theta[:, 1, 0] - g[:, 1, 0]
            further = denoise_pairs(points, doubled, L=L)[:, 1, 0] - doubled[:, 1, 0]
            for name, values in (("error", squares), ("excess", squares - best), ("bias", move)):
                sums[name][row, column] = values.sum()
                sums[f"{name}2"][row, column] = np.sum(values**2)
            sums["active"][row, column] = np.count_nonzero(move)
            sums["noisier"][row, column] = np.count_nonzero(further)
    return sums


def _gather(config: PairConfig, units: Sequence[Unit]) -> Curves:
    N, at = config.runs, config.distances
    total = {name: np.concatenate([u[name] for u in units], axis=1) / N for name in units[0]}
    curves = Curves()
    for panel, name, squared in (
        ("p_active", "active", "active"),
        ("p_active, twice the noise", "noisier", "noisier"),
        ("excess over the exact L", "excess", "excess2"),
        ("MSE", "error", "error2"),
        ("Bias", "bias", "bias2"),
    ):
        mean = total[name]
        sem = np.sqrt(np.maximum(total[squared] - mean**2, 0) / (N - 1))
        for row, L in enumerate(config.L):
            curves.exact(panel, _name(L), at, mean[row], sem[row])
    curves.exact("MSE", "MSE(g)", at, np.full(at.size, 2 * config.sigma**2))
    for L in config.L:
        first, second = clipped(L, at, config.sigma)
        curves.exact("p_active theory", _name(L), at, p_active(L, at, config.sigma))
        curves.exact("MSE theory", _name(L), at, config.sigma**2 + second / 2)
        curves.exact("Bias theory", _name(L), at, first / 2)
    return curves


def _panels(result: Result) -> list[Panel]:
    above = tuple(_name(L) for L in result.config.L if L >= 1)
    raw = frozenset({"MSE(g)"})
    error = _panel("MSE", "Total error of the two gradients", "MSE(θ)", references=raw)
    bias = _panel("Bias", "Bias", "|Bias(θ)|", magnitude=True)
    return [
        replace(_P_ACTIVE, figure="9, top"),
        replace(error, figure="9, bottom", y_range=(0.0, 250.0), new_row=True),
        replace(error, title="The same in full, on a logarithmic axis", log="y"),
        replace(bias, figure="12", y_range=(0.0, 5.0), new_row=True),
        replace(bias, title="The same, L not too small", series=above),
    ]


def _together(curve: Curve) -> Curve:
    """Average over neighbouring distances, whose noise is independent."""
    cuts = range(_TOGETHER, curve.x.size - _TOGETHER + 1, _TOGETHER)
    x, mean, square = (np.split(c, cuts) for c in (curve.x, curve.mean, curve.sem**2))
    return Curve(
        np.array([part.mean() for part in x]),
        np.array([part.mean() for part in mean]),
        np.array([np.sqrt(part.sum()) / part.size for part in square]),
    )


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    at = config.distances
    off = curves["p_active theory", _name(1.0)].mean - 0.5
    settled = slice(int(np.argmax(off <= 0.01)), None)
    loose = {
        L: slice(int(np.argmax(p_active(L, at, config.sigma) < 0.01)), None) for L in config.over
    }
    return [
        *_error_claims(config, curves, settled, loose),
        *_bias_claims(config, curves, settled, loose),
        _closed_form_claim(config, curves),
    ]


def _error_claims(
    config: PairConfig, curves: Curves, settled: slice, loose: dict[float, slice]
) -> list[Claim]:
    paper, at = Judge(config.runs, figure=9), config.distances
    mse = {L: curves["MSE", _name(L)] for L in config.L}
    raw = 2 * config.sigma**2
    right = [1.0, *config.over]

    def against(L: float, level: float) -> Curve:
        return mse[L].over(level).shifted(-1)

    p = [curves["p_active", _name(L)] for L in config.L]
    known = [curves["p_active theory", _name(L)].mean for L in config.L]
    reach = {L: float(at[mse[L].mean <= raw].max()) for L in config.under}
    quiet, noisy = (
        int(np.argmax(curves[name, _name(config.over[-1])].mean < 0.01))
        for name in ("p_active", "p_active, twice the noise")
    )
    blocks = [_together(mse[L].over(raw)) for L in right]
    grows = paper.increases(
        "",
        [c.part(slice(-1, None)).minus(c.part(slice(1))) for c in blocks],
        measure="a larger error in the end than at first",
    )
    gains = paper.increases(
        "",
        [_together(against(L, raw).part(slice(_TOGETHER))).times(-1) for L in right],
        measure=f"a gain over the first {_TOGETHER} distances",
    )
    return [
        paper.equivalent(
            "The simulated p_active recovers that of Figure 7.",
            [_together(Curve(at, a.mean - b, a.sem)) for a, b in zip(p, known, strict=True)],
            margin=0.02,
            measure="largest deviation that the runs leave possible",
            theory=True,
        ),
        paper.equivalent(
            "At distance 0 the estimate is the average, whatever L is: the total error is σ².",
            [against(L, config.sigma**2).part(slice(1)) for L in config.L],
            margin=0.1,
            theory=True,
        ),
        paper.no_worse(
            "The looser the constraint, the less is denoised: with L exact or too large the error "
            "grows with the distance.",
            [c.part(slice(None, -1)).minus(c.part(slice(1, None))) for c in blocks],
            measure=f"largest fall of the error from {_TOGETHER} distances to the next "
            f"{_TOGETHER} that the runs leave possible, as a share of the oracle's error",
            theory=True,
            provided=grows,
        ),
        paper.increases(
            "With L underestimated, MSE(θ) can exceed MSE(g).",
            [against(L, raw).part(slice(-1, None)) for L in config.under],
            measure="smallest excess at Δx=120, in standard errors",
        ),
        paper.increases(
            "Yet there is a range of distances where MSE(θ) ≤ MSE(g), even then.",
            [against(L, raw).part(slice(1, int(r) // 2 + 1)).times(-1) for L, r in reach.items()],
        ),
        paper.at_most(
            "The more L is underestimated, the smaller that range.",
            reach[config.under[0]],
            reach[config.under[1]] - 1,
            measure="its end at L={}; threshold: just below that at L={}".format(*config.under),
        ),
        paper.no_worse(
            "With L exact or overestimated, MSE(θ) ≤ MSE(g) at every distance.",
            [_together(against(L, raw)) for L in right],
            theory=True,
            provided=gains,
        ),
        paper.increases(
            "With L exact the error is minimal among all L, at every distance: every other L has "
            f"more, over any {_TOGETHER} distances.",
            [_together(curves["excess over the exact L", _name(L)]) for L in config.L if L != 1],
            theory=True,
        ),
        paper.equivalent(
            "With L exact the error settles at an intermediate value where p_active does (from "
            f"Δx={at[settled][0]:.0f} on): 3σ²/2.",
            [_together(against(1.0, 1.5 * config.sigma**2).part(settled))],
        ),
        paper.equivalent(
            "With L overestimated the error is MSE(g) where p_active has settled at 0.",
            [_together(against(L, raw).part(where)) for L, where in loose.items()],
            provided=gains,
        ),
        paper.at_most(
            "With more noise, that happens at longer distances.",
            quiet,
            noisy - 1,
            measure="distance from which the simulated p_active < 1% at σ=10; threshold: just "
            "below that at σ=20",
            theory=True,
        ),
    ]


def _bias_claims(
    config: PairConfig, curves: Curves, settled: slice, loose: dict[float, slice]
) -> list[Claim]:
    paper, at = Judge(config.runs, figure=12), config.distances
    sigma, limit = config.sigma, config.sigma / (2 * np.sqrt(np.pi))
    # The second point moves down if the constraint is active: the sign is known.
    bias = {}
    for L in config.L:
        seen = curves["Bias", _name(L)]
        bias[L] = seen.times(np.sign(seen.mean.sum())).over(sigma)
    share = "largest bias that the runs leave possible, as a share of σ"
    off_line = [
        Curve(at, (bias[L].mean * sigma - (1 - L) * at / 2) / top, bias[L].sem * sigma / top)
        for L in config.under
        for top in [(1 - L) * at[-1] / 2]
    ]
    falls = []
    for c in (_together(bias[L]) for L in config.over):
        high = int(c.mean.argmax())
        peak = c.part(slice(high, high + 1))
        falls += [peak, *(peak.minus(c.part(slice(i, i + 1))) for i in (6, -1))]
    biased = paper.increases(
        "With L overestimated the estimate is biased too, and its bias decreases again with the "
        "distance.",
        falls,
        measure="smallest of the bias at its peak and of its fall until Δx=60 and 120, in standard "
        "errors",
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
            off_line,
            measure="largest distance from that line that the runs leave possible, as a share of "
            "its height at Δx=120",
        ),
        paper.increases(
            "The smaller L is, the steeper that growth.",
            [Curve.minus(*(bias[L].part(slice(-10, None)) for L in config.under))],
        ),
        paper.equivalent(
            "With L exact the bias grows until it settles, at σ/(2√π), where p_active does.",
            [_together(bias[1.0].part(settled).times(sigma).over(limit).shifted(-1))],
        ),
        biased,
        paper.no_worse(
            "The more L is overestimated, the lower the bias.",
            [_together(bias[config.over[1]].minus(bias[config.over[0]]))],
            margin=0.005,
            measure="largest excess that the runs leave possible, as a share of σ",
            provided=biased,
        ),
        paper.equivalent(
            "Where the constraint is inactive (p_active below 1%) there is no bias.",
            [_together(bias[L].part(where)) for L, where in loose.items()],
            margin=0.01,
            measure=share,
            provided=biased,
        ),
    ]


def _closed_form_claim(config: PairConfig, curves: Curves) -> Claim:
    deviations = []
    for name, unit in (("MSE", 2 * config.sigma**2), ("Bias", config.sigma)):
        for L in config.L:
            seen, known = curves[name, _name(L)], curves[f"{name} theory", _name(L)].mean
            scale = np.maximum(np.abs(known), unit)
            off = Curve(seen.x, seen.mean - known, seen.sem)
            deviations.append(_together(off.over(scale)))
    return Judge(config.runs).equivalent(
        "Error and bias are the moments of a clipped normal variable (the paper has no closed "
        "form).",
        deviations,
        theory=True,
    )


EXPERIMENTS = (
    Experiment(
        "constraint-tightness",
        "Probability that two noisy gradients break co-coercivity, by the paper's formula.",
        PairConfig(runs=1),
        {},
        lambda *_: {},
        _formula_gather,
        _formula_panels,
        _formula_claims,
        figure="constraints_tightness, theoretical_prob_constraints_sigma",
        count=lambda _: 1,
    ),
    Experiment(
        "mse-vs-distance",
        "Active constraints, error and bias of two gradients against their distance, for five L.",
        PairConfig(),
        {"runs": 4000},
        _unit,
        _gather,
        _panels,
        _claims,
        figure="MSEvsDistance, Bias",
        count=lambda config: -(-(config.longest + 1) // _BLOCK),
    ),
)
