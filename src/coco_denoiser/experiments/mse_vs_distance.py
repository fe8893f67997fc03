"""Two points on a line: what their distance, and a wrong L, do to error and bias (MSEvsDistance).

The simulation is held against the closed forms of `tightness.py`, at every distance.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curve, Curves
from coco_denoiser.experiments.experiment import Experiment, Result, Unit, generator
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.experiments.tightness import (
    PairConfig,
    clipped,
    distances,
    p_active,
    p_active_panel,
    panel,
    series_name,
)
from coco_denoiser.solvers.closed_form import denoise_pairs
from coco_denoiser.typing import Float64

NAME = "mse-vs-distance"
_BLOCK = 11  # distances of a unit
_TOGETHER = 10  # distances whose deviations are averaged
_SUMS = ("active", "noisier", "error", "error2", "excess", "excess2", "bias", "bias2")


def _count(config: PairConfig) -> int:
    return -(-(config.longest + 1) // _BLOCK)


def _unit(config: PairConfig, index: int) -> Unit:
    """Return sums over the runs, (L, distances), of what `_SUMS` names; 2 is for the squares.

    `excess` is the error minus that with the exact L on the same noise, and `noisier` counts
    active constraints if the noise is doubled.
    """
    at = distances(config)[index * _BLOCK : (index + 1) * _BLOCK]
    shape = (len(config.L), at.size)
    sums = {name: np.zeros(shape) for name in _SUMS}
    for column, distance in enumerate(at):
        rng = generator(config, NAME, int(distance))
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
    N = config.runs
    total = {name: np.concatenate([u[name] for u in units], axis=1) / N for name in units[0]}
    at = distances(config)
    curves = Curves()

    def sem(mean: Float64, square: Float64) -> Float64:
        return np.sqrt(np.maximum(square - mean**2, 0) / (N - 1))

    p, doubled = total["active"], total["noisier"]
    for name, mean, error in (
        ("p_active", p, sem(p, p)),
        ("p_active, twice the noise", doubled, sem(doubled, doubled)),
        ("excess over the exact L", total["excess"], sem(total["excess"], total["excess2"])),
        ("MSE", total["error"], sem(total["error"], total["error2"])),
        ("Bias", total["bias"], sem(total["bias"], total["bias2"])),
    ):
        for row, L in enumerate(config.L):
            curves.exact(name, series_name(L), at, mean[row], error[row])
    curves.exact("MSE", "MSE(g)", at, np.full(at.size, 2 * config.sigma**2))
    for L in config.L:
        first, second = clipped(L, at, config.sigma)
        curves.exact("p_active theory", series_name(L), at, p_active(L, at, config.sigma))
        curves.exact("MSE theory", series_name(L), at, config.sigma**2 + second / 2)
        curves.exact("Bias theory", series_name(L), at, first / 2)
    return curves


def _panels(result: Result) -> list[Panel]:
    raw = frozenset({"MSE(g)"})
    above = tuple(series_name(L) for L in result.config.L if L >= 1)
    error = panel("MSE", "Total error of the two gradients", "MSE(θ)", references=raw)
    bias = panel("Bias", "Bias", "|Bias(θ)|", magnitude=True)
    return [
        p_active_panel("9, top"),
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
    at = distances(config)
    off = curves["p_active theory", series_name(1.0)].mean - 0.5
    settled = slice(int(np.argmax(off <= 0.01)), None)
    loose = {
        L: slice(int(np.argmax(p_active(L, at, config.sigma) < 0.01)), None)
        for L in config.L
        if L > 1
    }
    return [
        *_error_claims(config, curves, settled, loose),
        *_bias_claims(config, curves, settled, loose),
        _closed_form_claim(config, curves),
    ]


def _error_claims(
    config: PairConfig, curves: Curves, settled: slice, loose: dict[float, slice]
) -> list[Claim]:
    paper, at = Judge(config.runs, figure=9), distances(config)
    mse = {L: curves["MSE", series_name(L)] for L in config.L}
    raw = 2 * config.sigma**2
    under, over = sorted(L for L in config.L if L < 1), [L for L in config.L if L >= 1]

    def against(L: float, level: float) -> Curve:
        return mse[L].over(level).shifted(-1)

    p = [curves["p_active", series_name(L)] for L in config.L]
    known = [curves["p_active theory", series_name(L)].mean for L in config.L]
    reach = {L: float(at[mse[L].mean <= raw].max()) for L in under}
    widest = series_name(max(config.L))
    quiet, noisy = (
        int(np.argmax(curves[name, widest].mean < 0.01))
        for name in ("p_active", "p_active, twice the noise")
    )
    blocks = {L: _together(mse[L].over(raw)) for L in over}
    falls = [c.part(slice(None, -1)).minus(c.part(slice(1, None))) for c in blocks.values()]
    grows = paper.increases(
        "",
        [c.part(slice(-1, None)).minus(c.part(slice(1))) for c in blocks.values()],
        measure="a larger error in the end than at first",
    )
    gains = paper.increases(
        "",
        [_together(against(L, raw).part(slice(_TOGETHER))).times(-1) for L in over],
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
            falls,
            measure=f"largest fall of the error from {_TOGETHER} distances to the next "
            f"{_TOGETHER} that the runs leave possible, as a share of the oracle's error",
            theory=True,
            provided=grows,
        ),
        paper.increases(
            "With L underestimated, MSE(θ) can exceed MSE(g).",
            [against(L, raw).part(slice(-1, None)) for L in under],
            measure="smallest excess at Δx=120, in standard errors",
        ),
        paper.increases(
            "Yet there is a range of distances where MSE(θ) ≤ MSE(g), even then.",
            [against(L, raw).part(slice(1, int(reach[L]) // 2 + 1)).times(-1) for L in under],
        ),
        paper.at_most(
            "The more L is underestimated, the smaller that range.",
            reach[under[0]],
            reach[under[1]] - 1,
            measure=f"its end at L={under[0]}; threshold: just below that at L={under[1]}",
        ),
        paper.no_worse(
            "With L exact or overestimated, MSE(θ) ≤ MSE(g) at every distance.",
            [_together(against(L, raw)) for L in over],
            theory=True,
            provided=gains,
        ),
        paper.increases(
            "With L exact the error is minimal among all L, at every distance: every other L has "
            f"more, over any {_TOGETHER} distances.",
            [
                _together(curves["excess over the exact L", series_name(L)])
                for L in config.L
                if L != 1
            ],
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
    paper, at = Judge(config.runs, figure=12), distances(config)
    sigma, limit = config.sigma, config.sigma / (2 * np.sqrt(np.pi))
    signed = {L: curves["Bias", series_name(L)] for L in config.L}
    # The second point moves down if the constraint is active: the sign is known.
    bias = {
        L: Curve(c.x, np.sign(c.mean.sum()) * c.mean / sigma, c.sem / sigma)
        for L, c in signed.items()
    }
    under, above = sorted(L for L in config.L if L < 1), sorted(loose)

    off_line = [
        Curve(at, (bias[L].mean * sigma - (1 - L) * at / 2) / top, bias[L].sem * sigma / top)
        for L in under
        for top in [(1 - L) * at[-1] / 2]
    ]
    peaks = {L: _together(bias[L]) for L in above}
    falls = []
    for c in peaks.values():
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
            measure="largest bias that the runs leave possible, as a share of σ",
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
            [Curve.minus(*(bias[L].part(slice(-10, None)) for L in under))],
        ),
        paper.equivalent(
            "With L exact the bias grows until it settles, at σ/(2√π), where p_active does.",
            [_together(bias[1.0].part(settled).times(sigma).over(limit).shifted(-1))],
        ),
        biased,
        paper.no_worse(
            "The more L is overestimated, the lower the bias.",
            [_together(bias[above[1]].minus(bias[above[0]]))],
            margin=0.005,
            measure="largest excess that the runs leave possible, as a share of σ",
            provided=biased,
        ),
        paper.equivalent(
            "Where the constraint is inactive (p_active below 1%) there is no bias.",
            [_together(bias[L].part(where)) for L, where in loose.items()],
            margin=0.01,
            measure="largest bias that the runs leave possible, as a share of σ",
            provided=biased,
        ),
    ]


def _closed_form_claim(config: PairConfig, curves: Curves) -> Claim:
    deviations = []
    for name, unit in (("MSE", 2 * config.sigma**2), ("Bias", config.sigma)):
        for L in config.L:
            seen = curves[name, series_name(L)]
            known = curves[f"{name} theory", series_name(L)].mean
            scale = np.maximum(np.abs(known), unit)
            deviations.append(
                _together(Curve(seen.x, (seen.mean - known) / scale, seen.sem / scale))
            )
    return Judge(config.runs).equivalent(
        "Error and bias are the moments of a clipped normal variable (the paper has no closed "
        "form).",
        deviations,
        theory=True,
    )


EXPERIMENT = Experiment(
    NAME,
    "Active constraints, error and bias of two gradients against their distance, for five L.",
    PairConfig(),
    {"runs": 4000},
    _unit,
    _gather,
    _panels,
    _claims,
    figure="MSEvsDistance, Bias",
    count=_count,
    seconds=(1.0, 0.5),
)
