"""Two points on a line: how often their constraint is active, by the paper's formula.

For f = x^2 / 2 and two points at distance D, the difference of the noisy gradients is normal,
g_1 - g_2 ~ N(D, 2 sigma^2), and COCO clips it to [0, L D]; the mean of the two is left alone.
So everything has a closed form: the probability of clipping (the paper's formula), the error
and the bias, which the paper does not draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curves
from coco_denoiser.experiments.experiment import Config, Experiment, Result, Unit
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.typing import Float64

NAME = "constraint-tightness"


@dataclass(frozen=True)
class PairConfig(Config):
    """The paper's numbers; L_real is 1."""

    runs: int = 10_000
    sigma: float = 10.0
    L: tuple[float, ...] = (0.1, 0.55, 1.0, 1.45, 1.9)
    longest: int = 120


def distances(config: PairConfig) -> Float64:
    """Return the distances looked at."""
    return np.arange(config.longest + 1, dtype=float)


def p_active(L: float, distance: Float64, sigma: float) -> Float64:
    """Return the probability that two noisy gradients are not co-coercive, 1 - p_inactive."""
    scale = np.sqrt(2) * sigma
    inside = stats.norm.cdf((L - 1) * distance / scale) - stats.norm.cdf(-distance / scale)
    return np.asarray(1 - inside)


def clipped(L: float, distance: Float64, sigma: float) -> tuple[Float64, Float64]:
    """Return mean and mean square of clip(z, 0, L D) - D for z ~ N(D, 2 sigma^2)."""
    s = np.sqrt(2) * sigma
    low, high = -distance / s, (L - 1) * distance / s  # the bounds, in standard deviations
    cdf, pdf, tail = stats.norm.cdf, stats.norm.pdf, stats.norm.sf
    inside = cdf(high) - cdf(low)
    first = s * (low * cdf(low) + high * tail(high) + pdf(low) - pdf(high))
    second = s**2 * (
        low**2 * cdf(low) + high**2 * tail(high) + inside + low * pdf(low) - high * pdf(high)
    )
    return np.asarray(first), np.asarray(second)


def series_name(L: float) -> str:
    """Return the name of the curve of one L, as the paper has it."""
    return f"ΔL={L - 1:+.2f}" if L != 1 else "ΔL=0"


def panel(name: str, title: str, y: str, **options: Any) -> Panel:
    """Return a panel of curves over the distance."""
    return Panel(name, title, "distance Δx", y, **options)


def p_active_panel(figure: str) -> Panel:
    """Return the panel that Figures 7 and 9 have in common."""
    title = "Probability of an active constraint"
    return panel("p_active", title, "p_active", figure=figure, y_range=(0.0, 1.0))


def _unit(config: PairConfig, _: int) -> Unit:
    """Return p_active (L, distances) at sigma and at twice sigma."""
    at = distances(config)
    return {
        f"{factor}": np.stack([p_active(L, at, factor * config.sigma) for L in config.L])
        for factor in (1, 2)
    }


def _gather(config: PairConfig, units: Sequence[Unit]) -> Curves:
    (unit,) = units
    curves = Curves()
    at = distances(config)
    for row, L in enumerate(config.L):
        curves.exact("p_active", series_name(L), at, unit["1"][row])
    for factor in (1, 2):
        for row, L in list(enumerate(config.L))[::2]:  # every other L, as in the paper
            curves.exact("noise", _noisy(config, L, factor), at, unit[f"{factor}"][row])
    return curves


def _noisy(config: PairConfig, L: float, factor: int) -> str:
    return series_name(L) if factor == 1 else f"{series_name(L)}, σ={factor * config.sigma:g}"


def _panels(result: Result) -> list[Panel]:
    doubled = frozenset(name for name in result.curves.series("noise") if "σ" in name)
    first, options = p_active_panel("7"), {"references": doubled, "figure": "8"}
    second = panel("noise", "The same with twice the noise", first.y, **options)
    return [first, replace(second, y_range=first.y_range)]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    values = {L: curves["p_active", series_name(L)].mean for L in config.L}
    limits = {L: 0.5 * (1 - np.sign(L - 1)) for L in config.L}
    scale = np.sqrt(2) * config.sigma
    # Tails of the normal distribution are below exp(-z^2 / 2) / 2 each.
    tail = {
        L: 0.5 * np.exp(-0.5 * (config.longest / scale) ** 2)
        + (0.5 * np.exp(-0.5 * ((L - 1) * config.longest / scale) ** 2) if L != 1 else 0)
        for L in config.L
    }
    above = sorted(L for L in config.L if L > 1)
    below = sorted(L for L in config.L if L < 1)
    wide = [
        curves["noise", _noisy(config, L, f)].mean for L in (below[0], above[-1]) for f in (1, 2)
    ]
    slower = [
        np.abs(a - a[-1].round()) - np.abs(b - b[-1].round())
        for a, b in zip(wide[::2], wide[1::2], strict=True)
    ]
    start = max(float(v[0]) for v in values.values())
    paper = Judge(1, figure=7)
    return [
        paper.at_most(
            "Points at distance 0 always make the constraint active, whatever L is.",
            abs(1 - min(float(v[0]) for v in values.values())) + abs(1 - start),
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
            for which, limit, (a, b) in (("over", 0, above), ("under", 1, below))
        ),
        Judge(1, figure=8).at_most(
            "More noise makes the convergence to these limits slower.",
            float(max((s[config.longest // 2 :]).max() for s in slower)),
            0.0,
            measure="largest lead of σ=20 over σ=10 on the way to the limit, second half",
            theory=True,
        ),
    ]


EXPERIMENT = Experiment(
    NAME,
    "Probability that two noisy gradients break co-coercivity, by the paper's formula.",
    PairConfig(runs=1),
    {},
    _unit,
    _gather,
    _panels,
    _claims,
    figure="constraints_tightness, theoretical_prob_constraints_sigma",
    count=lambda _: 1,
    seconds=(0.1, 0.1),
)
