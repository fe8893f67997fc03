"""What a lower bound mu on the curvature brings, and what a wrong one costs.

Windows of K random points on functions of four kinds, all with L = 1, from gradients with
Gaussian noise. The error is (1/K) sum_i ||theta_i - f'(x_i)||^2 as a function of the assumed mu.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coco_denoiser import denoise
from coco_denoiser.experiments.claims import Claim, Judge
from coco_denoiser.experiments.curves import Curve, Curves
from coco_denoiser.experiments.experiment import Config, Experiment, Result, Unit, generator
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.typing import Float64

NAME = "curvature-bounds"
_RAW = "raw gradients"
# A relative gap of 1e-9 leaves an answer within sqrt(2e-9) of its move from the exact one.
_INEXACT = 2 * np.sqrt(2e-9)


class Kind(NamedTuple):
    """A function with L = 1: its gradient, and the largest mu that holds."""

    gradient: Callable[[Float64], Float64]
    mu: float


def _eigenvalues(lowest: float) -> Callable[[Float64], Float64]:
    return lambda x: np.asarray(np.linspace(1.0, lowest, x.shape[-1]) * x)


KINDS = {
    "strongly convex": Kind(_eigenvalues(1 / 3), 1 / 3),  # a quadratic
    "convex": Kind(np.tanh, 0.0),  # sum_j log cosh x_j
    "weakly convex": Kind(_eigenvalues(-1 / 3), -1 / 3),  # an indefinite quadratic
    "merely smooth": Kind(np.sin, -1.0),  # -sum_j cos x_j
}


@dataclass(frozen=True)
class BoundsConfig(Config):
    """The points are uniform in boxes of two sizes; mu is assumed from -1 to 0.9."""

    runs: int = 200
    dimension: int = 3
    window: int = 8
    sigma: float = 1.0
    boxes: tuple[float, ...] = (1.0, 8.0)
    mus: tuple[float, ...] = (
        -1.0, -2 / 3, -1 / 3, -1 / 6, 0.0, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 0.9,
    )  # fmt: skip


def _box(size: float) -> str:
    return f"points within ±{size:g}"


def _unit(config: BoundsConfig, index: int) -> Unit:
    """Return errors by kind and box: (mus,) and that of the raw gradients, (1,)."""
    rng = generator(config, NAME, index)
    shape = (config.window, config.dimension)
    unit: dict[str, Float64] = {}
    for size in config.boxes:
        x, noise = size * rng.uniform(-1, 1, shape), config.sigma * rng.standard_normal(shape)
        for name, kind in KINDS.items():
            truth = np.asarray(kind.gradient(x))
            found = [denoise(x, truth + noise, L=1.0, mu=mu) for mu in config.mus]
            errors = [np.sum((theta - truth) ** 2) / config.window for theta in found]
            unit[f"{name}, {_box(size)}"] = np.array(errors)
            unit[f"{name}, {_box(size)} raw"] = np.array([np.sum(noise**2) / config.window])
    return unit


def _gather(config: BoundsConfig, units: Sequence[Unit]) -> Curves:
    curves, at = Curves(), np.array(config.mus)
    for name, kind in KINDS.items():
        for size in config.boxes:
            box = _box(size)
            errors = np.stack([unit[f"{name}, {box}"] for unit in units])
            raw = np.stack([unit[f"{name}, {box} raw"] for unit in units])
            curves.add(name, box, at, errors)
            curves.add(f"{name} minus raw", box, at, errors - raw)
            holds = at <= kind.mu + 1e-12
            excess = ((errors - raw) / raw)[:, holds]
            curves.exact(f"{name} largest excess", box, 0, excess.max())
            best = errors[:, [int(np.flatnonzero(holds)[-1])]]
            curves.add(f"{name} minus the right mu", box, at, errors - best)
        expected = config.dimension * config.sigma**2
        curves.exact(name, _RAW, at, np.full(at.size, expected))
    return curves


def _panels(_: Result) -> list[Panel]:
    return [
        Panel(
            name,
            f"{name}: true μ = {_fraction(kind.mu)}, L = 1",
            "assumed μ",
            "MSE(θ)",
            references=frozenset({_RAW}),
            log="y",
            new_row=i % 2 == 0,
        )
        for i, (name, kind) in enumerate(KINDS.items())
    ]


def _fraction(mu: float) -> str:
    return {1 / 3: "1/3", -1 / 3: "−1/3"}.get(mu, f"{mu:g}".replace("-", "−"))


def _claims(result: Result) -> list[Claim]:
    config, curves = result.config, result.curves
    near, far = (_box(size) for size in (config.boxes[0], config.boxes[-1]))
    ours, at = Judge(config.runs), list(config.mus)

    def one(panel: str, box: str, mu: float) -> Curve:
        i = at.index(mu)
        return curves[panel, box].part(slice(i, i + 1))

    excesses = [
        float(curves[f"{name} largest excess", _box(size)].mean[0])
        for name in KINDS
        for size in config.boxes
    ]
    right = {name: kind.mu for name, kind in KINDS.items()}
    gains = ", ".join(
        f"{1 - one(name, far, mu).mean[0] / curves[name, _RAW].mean[0]:.0%} {name}"
        for name, mu in right.items()
    )
    return [
        ours.at_most(
            "With any valid mu, no window ends further from the true gradients than it began: they "
            "are feasible, and a projection moves closer to every feasible point.",
            max(excesses),
            float(_INEXACT),
            measure="largest relative excess over the raw error, of all windows",
            theory=True,
        ),
        ours.increases(
            "The right mu beats mere smoothness (mu = -L) wherever they differ, for points near "
            "and far.",
            [
                one(f"{name} minus the right mu", box, -1.0)
                for name in list(KINDS)[:3]
                for box in (near, far)
            ],
        ),
        ours.increases(
            f"For points far apart, a mu that is much too large (0.9) is worse than raw, on each "
            f"kind; the right one gains ({gains}).",
            [one(f"{name} minus raw", far, 0.9) for name in KINDS],
        ),
        ours.increases(
            "For points far apart, assuming convexity (mu = 0) of what is not convex is worse "
            "than raw.",
            [one(f"{name} minus raw", far, 0.0) for name in ("weakly convex", "merely smooth")],
            note="On -sum cos x_j it is better: between points far apart its mean curvature is "
            "hardly negative, so that mu = 0 is nearly right for these pairs.",
        ),
        ours.increases(
            "For points close together, where noise dominates, even mu = 0.9 is better than raw, "
            "on each kind.",
            [one(f"{name} minus raw", near, 0.9).times(-1) for name in KINDS],
        ),
    ]


EXPERIMENT = Experiment(
    NAME,
    "Error against the assumed mu, right and wrong, on functions of four kinds.",
    BoundsConfig(),
    {"runs": 40},
    _unit,
    _gather,
    _panels,
    _claims,
)
