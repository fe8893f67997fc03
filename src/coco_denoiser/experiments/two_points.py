"""Two points on a line: how often the constraint is active, and what that does to the error.

For f = x^2 / 2 and two points at distance D, the difference of the noisy gradients is normal,
g_1 - g_2 ~ N(D, 2 sigma^2), and COCO clips it to [0, L D]; the mean of the two is left alone.
So everything has a closed form: the probability of clipping (the paper's formula), the error
and the bias (ours), and the simulation is held against all three.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

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
    Config,
    Curve,
    Curves,
    Experiment,
    Result,
    Unit,
    generator,
)
from coco_denoiser.experiments.panels import Panel

TIGHTNESS, DISTANCE = "constraint-tightness", "mse-vs-distance"
_BLOCK = 11  # distances of a unit


@dataclass(frozen=True)
class PairConfig(Config):
    """The paper's numbers; L_real is 1."""

    runs: int = 10_000
    sigma: float = 10.0
    L: tuple[float, ...] = (0.1, 0.55, 1.0, 1.45, 1.9)
    longest: int = 120


def _distances(config: PairConfig) -> Array:
    return np.arange(config.longest + 1, dtype=float)


def p_active(L: float, distance: Array, sigma: float) -> Array:
    """Return the probability that two noisy gradients are not co-coercive, 1 - p_inactive."""
    scale = np.sqrt(2) * sigma
    inside = stats.norm.cdf((L - 1) * distance / scale) - stats.norm.cdf(-distance / scale)
    return np.asarray(1 - inside)


def clipped(L: float, distance: Array, sigma: float) -> tuple[Array, Array]:
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


def _series(L: float) -> str:
    return f"ΔL={L - 1:+.2f}" if L != 1 else "ΔL=0"


# Constraint tightness: the formula alone.


def _formula(config: PairConfig, _: int) -> Unit:
    """Return p_active (L, distances) at sigma and at twice sigma."""
    at = _distances(config)
    return {
        f"{factor}": np.stack([p_active(L, at, factor * config.sigma) for L in config.L])
        for factor in (1, 2)
    }


def _formula_curves(config: PairConfig, units: Sequence[Unit]) -> Curves:
    (unit,) = units
    curves = Curves()
    at = _distances(config)
    for row, L in enumerate(config.L):
        curves.exact("p_active", _series(L), at, unit["1"][row])
    for factor in (1, 2):
        for row, L in enumerate(config.L):
            curves.exact("noise", _noisy(config, L, factor), at, unit[f"{factor}"][row])
    return curves


def _noisy(config: PairConfig, L: float, factor: int) -> str:
    return _series(L) if factor == 1 else f"{_series(L)}, σ={factor * config.sigma:g}"


def _formula_panels(result: Result) -> list[Panel]:
    doubled = frozenset(name for name in result.curves.series("noise") if "σ" in name)
    apart = "distance Δx"
    return [
        Panel("p_active", "Probability of an active constraint", apart, "p_active"),
        Panel(
            "noise",
            "The same, and with twice the noise (thin)",
            apart,
            "p_active",
            references=doubled,
        ),
    ]


def _formula_claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    values = {L: curves["p_active", _series(L)].mean for L in config.L}
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
    wide = [curves["noise", _noisy(config, L, f)].mean for L in above + below for f in (1, 2)]
    slower = [
        np.abs(a - a[-1].round()) - np.abs(b - b[-1].round())
        for a, b in zip(wide[::2], wide[1::2], strict=True)
    ]
    start = max(float(v[0]) for v in values.values())
    return [
        at_most(
            "Points at distance 0 always make the constraint active, whatever L is.",
            abs(1 - min(float(v[0]) for v in values.values())) + abs(1 - start),
            1e-12,
            measure="deviation of p_active(0) from 1; threshold: rounding",
            theory=True,
        ),
        at_most(
            "As the distance grows, p_active tends to 0 if L is overestimated, to 1/2 if it is "
            "exact, to 1 if it is underestimated.",
            max(float(abs(values[L][-1] - limits[L]) / tail[L]) for L in config.L),
            1.0,
            measure="distance to the limit at Δx=120, as a share of the normal tail's bound",
            theory=True,
        ),
        at_most(
            "At first p_active decreases for every L.",
            max(float(v[1] - v[0]) for v in values.values()),
            0.0,
            measure="largest change from Δx=0 to 1",
            theory=True,
        ),
        at_most(
            "The more L is overestimated, the faster p_active tends to 0.",
            float((values[above[1]] - values[above[0]]).max()),
            1e-12,
            measure=f"largest excess of p_active at L={above[1]} over L={above[0]}; threshold: "
            "rounding",
            theory=True,
        ),
        at_most(
            "The more L is underestimated, the faster p_active tends to 1.",
            float((values[below[1]] - values[below[0]]).max()),
            1e-12,
            measure=f"largest excess of p_active at L={below[1]} over L={below[0]}; threshold: "
            "rounding",
            theory=True,
        ),
        at_most(
            "More noise makes the convergence to these limits slower.",
            float(max((s[config.longest // 2 :]).max() for s in slower)),
            0.0,
            measure="largest lead of σ=20 over σ=10 on the way to the limit, second half",
            theory=True,
        ),
    ]


# Error and bias against distance: the simulation.


def _count(config: PairConfig) -> int:
    return -(-(config.longest + 1) // _BLOCK)


def _unit(config: PairConfig, index: int) -> Unit:
    """Return sums over the runs, (L, distances): active, errors and biases with their squares."""
    at = _distances(config)[index * _BLOCK : (index + 1) * _BLOCK]
    shape = (len(config.L), at.size)
    active, error, error2, bias, bias2, oracle = (np.zeros(shape) for _ in range(6))
    for column, distance in enumerate(at):
        rng = generator(config, DISTANCE, int(distance))
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
    at = _distances(config)
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
            curves.exact(panel, _series(L), at, mean[row], error[row])
    curves.exact("MSE", "MSE(g)", at, np.full(at.size, 2 * config.sigma**2))
    for L in config.L:
        first, second = clipped(L, at, config.sigma)
        curves.exact("p_active theory", _series(L), at, p_active(L, at, config.sigma))
        curves.exact("MSE theory", _series(L), at, config.sigma**2 + second / 2)
        curves.exact("Bias theory", _series(L), at, first / 2)
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
    runs, at = config.runs, _distances(config)
    mse = {L: curves["MSE", _series(L)] for L in config.L}
    bias = {L: curves["Bias", _series(L)] for L in config.L}
    raw = 2 * config.sigma**2
    over = [L for L in config.L if L >= 1]
    above = [L for L in over if L > 1]
    under = sorted(L for L in config.L if L < 1)

    def deviations(panel: str) -> list[Curve]:
        out = []
        for L in config.L:
            seen, known = curves[panel, _series(L)], curves[f"{panel} theory", _series(L)].mean
            p = curves["p_active theory", _series(L)].mean
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
        TIGHTNESS,
        "constraints_tightness, theoretical_prob_constraints_sigma",
        "Probability that two noisy gradients break co-coercivity, by the paper's formula.",
        PairConfig(runs=1),
        {},
        lambda _: 1,
        _formula,
        _formula_curves,
        _formula_panels,
        _formula_claims,
    ),
    Experiment(
        DISTANCE,
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
