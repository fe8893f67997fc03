"""Two points on a line: what their distance, and a wrong L, do to error and bias (MSEvsDistance).

The simulation is held against the closed forms of `tightness.py`, at every distance.
"""

from collections.abc import Sequence

import numpy as np

from coco_denoiser import denoise_pairs
from coco_denoiser.experiments.claims import (
    Claim,
    agrees,
    at_most,
    increases,
    nowhere_positive,
)
from coco_denoiser.experiments.experiment import (
    Array,
    Curve,
    Curves,
    Experiment,
    Result,
    Unit,
    generator,
)
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.experiments.tightness import (
    PairConfig,
    clipped,
    distances,
    p_active,
    series_name,
)

NAME = "mse-vs-distance"
_BLOCK = 11  # distances of a unit


def _count(config: PairConfig) -> int:
    return -(-(config.longest + 1) // _BLOCK)


def _unit(config: PairConfig, index: int) -> Unit:
    """Return sums over the runs, (L, distances): active, errors and biases with their squares."""
    at = distances(config)[index * _BLOCK : (index + 1) * _BLOCK]
    shape = (len(config.L), at.size)
    active, error, error2, bias, bias2, oracle = (np.zeros(shape) for _ in range(6))
    for column, distance in enumerate(at):
        rng = generator(config, NAME, int(distance))
        noise = config.sigma * rng.standard_normal((config.runs, 2, 1))
        points = np.array([[0.0], [distance]])
        g = points + noise
        for row, L in enumerate(config.L):
            theta = denoise_pairs(points, g, L=L)
            squares = np.sum((theta - points) ** 2, axis=(1, 2))
            # The oracle has no bias, so theta - g has that of theta, and less variance.
            move = theta[:, 1, 0] - g[:, 1, 0]
            active[row, column] = np.count_nonzero(move)
            error[row, column], error2[row, column] = squares.sum(), np.sum(squares**2)
            bias[row, column], bias2[row, column] = move.sum(), np.sum(move**2)
            oracle[row, column] = np.sum(noise**2)
    return {
        "active": active,
        "error": error,
        "error2": error2,
        "bias": bias,
        "bias2": bias2,
        "oracle": oracle,
    }


def _gather(config: PairConfig, units: Sequence[Unit]) -> Curves:
    N = config.runs
    total = {name: np.concatenate([u[name] for u in units], axis=1) / N for name in units[0]}
    at = distances(config)
    curves = Curves()

    def sem(mean: Array, square: Array) -> Array:
        return np.sqrt(np.maximum(square - mean**2, 0) / (N - 1))

    p = total["active"]
    for panel, mean, error in (
        ("p_active", p, sem(p, p)),
        ("MSE", total["error"], sem(total["error"], total["error2"])),
        ("Bias", total["bias"], sem(total["bias"], total["bias2"])),
    ):
        for row, L in enumerate(config.L):
            curves.exact(panel, series_name(L), at, mean[row], error[row])
    curves.exact("MSE", "MSE(g)", at, np.full(at.size, 2 * config.sigma**2))
    for L in config.L:
        first, second = clipped(L, at, config.sigma)
        curves.exact("p_active theory", series_name(L), at, p_active(L, at, config.sigma))
        curves.exact("MSE theory", series_name(L), at, config.sigma**2 + second / 2)
        curves.exact("Bias theory", series_name(L), at, first / 2)
    return curves


def _panels(_: Result) -> list[Panel]:
    apart = "distance Δx"
    return [
        Panel("p_active", "Probability of an active constraint", apart, "p_active"),
        Panel(
            "MSE",
            "Total error of the two gradients",
            apart,
            "MSE(θ)",
            references=frozenset({"MSE(g)"}),
            log="y",
            new_row=True,
        ),
        Panel("Bias", "Bias", apart, "|Bias(θ)|", new_row=True, magnitude=True),
    ]


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    runs, at = config.runs, distances(config)
    mse = {L: curves["MSE", series_name(L)] for L in config.L}
    bias = {L: curves["Bias", series_name(L)] for L in config.L}
    raw = 2 * config.sigma**2
    over = [L for L in config.L if L >= 1]
    above = [L for L in over if L > 1]
    under = sorted(L for L in config.L if L < 1)

    def deviations(panel: str) -> list[Curve]:
        out = []
        for L in config.L:
            seen, known = (
                curves[panel, series_name(L)],
                curves[f"{panel} theory", series_name(L)].mean,
            )
            p = curves["p_active theory", series_name(L)].mean
            error = np.sqrt(p * (1 - p) / runs) if panel == "p_active" else seen.sem
            # Where the constraint is active, or inactive, in a handful of runs only, a mean is
            # not normal, and its standard error not known.
            usual = np.minimum(p, 1 - p if panel == "p_active" else 1) * runs >= 30
            out.append(Curve(at, np.where(usual, seen.mean - known, 0), error))
        return out

    reach = {L: float(at[mse[L].mean <= raw].max()) for L in under}
    exact_best = [
        Curve(at, mse[1.0].mean - mse[L].mean, np.hypot(mse[1.0].sem, mse[L].sem))
        for L in config.L
        if L != 1
    ]
    first = slice(0, 1)
    off = curves["p_active theory", series_name(1.0)].mean - 0.5
    settled = int(np.argmax(off <= 0.5 / np.sqrt(runs)))
    tail = mse[1.0].sem[settled:]
    return [
        agrees(
            "p_active agrees with its formula at every distance, for every L.",
            deviations("p_active"),
            runs,
            theory=True,
        ),
        agrees(
            "At distance 0 the estimate is the average: the total error is σ² (σ²/2 a point).",
            [
                Curve(c.x[first], c.mean[first] - config.sigma**2, c.sem[first])
                for c in mse.values()
            ],
            runs,
            theory=True,
        ),
        agrees(
            "At distance 0 the estimate has no bias.",
            [Curve(*(column[first] for column in c)) for c in bias.values()],
            runs,
            theory=True,
        ),
        agrees(
            "Error and bias agree with the moments of a clipped normal variable at every "
            "distance (ours; the paper has no closed form).",
            deviations("MSE") + deviations("Bias"),
            runs,
            theory=True,
        ),
        nowhere_positive(
            "With L exact or overestimated, MSE(θ) ≤ MSE(g) at every distance.",
            [Curve(at, mse[L].mean - raw, mse[L].sem) for L in over],
            runs,
            theory=True,
        ),
        increases(
            "With L underestimated, MSE(θ) can exceed MSE(g): it can hurt.",
            [Curve(at[-1:], mse[L].mean[-1:] - raw, mse[L].sem[-1:]) for L in under],
            runs,
            measure="smallest excess at Δx=120, in standard errors",
        ),
        at_most(
            "The more L is underestimated, the smaller the range of distances where COCO helps.",
            reach[under[0]],
            reach[under[1]],
            measure=f"largest distance with MSE(θ) ≤ MSE(g) at L={under[0]}; threshold: that at "
            f"L={under[1]}",
        ),
        nowhere_positive(
            "With L exact the error is minimal among all L, at every distance.",
            exact_best,
            runs,
            theory=True,
        ),
        agrees(
            "With L overestimated, the error tends to MSE(g) at long distances.",
            [Curve(at[-1:], mse[L].mean[-1:] - raw, mse[L].sem[-1:]) for L in above],
            runs,
        ),
        agrees(
            "With L exact, the error settles at an intermediate value: 3σ²/2.",
            [Curve(at[-10:], mse[1.0].mean[-10:] - 1.5 * config.sigma**2, mse[1.0].sem[-10:])],
            runs,
        ),
        agrees(
            "With L exact, where p_active has settled (within its standard error of 1/2, from "
            f"Δx={at[settled]:.0f} on) the error has settled, too.",
            [Curve(at[settled:], mse[1.0].mean[settled:] - 1.5 * config.sigma**2, tail)],
            runs,
        ),
        agrees(
            "With L underestimated the bias grows linearly with the distance, and the faster the "
            "smaller L: as (1 − L)Δx/2, from Δx=90 on.",
            [
                Curve(at[90:], np.abs(bias[L].mean[90:]) - (1 - L) * at[90:] / 2, bias[L].sem[90:])
                for L in under
            ],
            runs,
        ),
        agrees(
            "With L exact the bias grows until it settles, at σ/(2√π).",
            [
                Curve(
                    at[-10:],
                    np.abs(bias[1.0].mean[-10:]) - config.sigma / (2 * np.sqrt(np.pi)),
                    bias[1.0].sem[-10:],
                )
            ],
            runs,
        ),
        nowhere_positive(
            "With L overestimated the bias is the lower the larger L.",
            [
                Curve(
                    at,
                    np.abs(bias[above[1]].mean) - np.abs(bias[above[0]].mean),
                    np.hypot(bias[above[0]].sem, bias[above[1]].sem),
                )
            ],
            runs,
        ),
    ]


EXPERIMENTS = (
    Experiment(
        NAME,
        "MSEvsDistance, Bias",
        "Active constraints, error and bias of two gradients against their distance, for five L.",
        PairConfig(),
        {"runs": 1000},
        _count,
        _unit,
        _gather,
        _panels,
        _claims,
    ),
)
