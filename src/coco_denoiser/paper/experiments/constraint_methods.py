"""The methods that `constraints` compares, and what is tuned as one."""

import math
from collections.abc import Callable

import numpy as np

from coco_denoiser.paper.experiments.constraint_problems import Composite
from coco_denoiser.paper.experiments.paths import named
from coco_denoiser.paper.optimizers import (
    SGD,
    Adam,
    DenoiserLike,
    DualAveraging,
    FrankWolfe,
    GradientMean,
    Optimizer,
    Schedule,
)
from coco_denoiser.typing import Array

_PLAIN: dict[str, Callable[[float], Optimizer]] = {
    "SGD": SGD,
    "1/√t": lambda step: SGD(lambda k: step / (1 + k / 10) ** 0.5),
    "1/t": lambda step: SGD(lambda k: step / (1 + k / 10)),
    "dual averaging": DualAveraging,
    "Adam": Adam,
}


def _fading(beta: float) -> Schedule:
    return lambda k: (1 - beta) / (1 - beta**k)


# Means of gradients: their weights, and the slope that corrects them, in L; None is 1/step.
_WEIGHTS: dict[str, Schedule] = {
    **{f"{beta}": _fading(beta) for beta in (0.9, 0.97, 0.99)},
    "1/t": lambda k: max(2 / (k + 1), 0.01),
    "1/√t": lambda k: k**-0.5,
    "Mokhtari": lambda k: 4 / (k + 7) ** (2 / 3),
}
_SLOPES = {"EMA": 0.0, "slope L/2": 0.5, "slope L/10": 0.1, "surrogates": None}
_MEANS = {f"{slope} {weight}": (slope, weight) for slope in _SLOPES for weight in _WEIGHTS}
_MEANS["mean of gradients"] = _MEANS.pop("EMA 1/t")
BASELINES = (*_PLAIN, *_MEANS)
FW_BASELINES = ("raw", *(mean for mean, (slope, _) in _MEANS.items() if slope != "surrogates"))
_OURS = ("COCO_16", "fold 2", "fold 16", "Gaussian 32", "Gaussian 128")
_STEP_L = ("fold 2, L=1/s", "fold 16, L=1/s")  # under Frank-Wolfe steps say nothing about L
SLOW = ("COCO_16", "fold 16", "Gaussian 32", "Gaussian 128")
METHODS, FW_METHODS = (*BASELINES, *_OURS, *_STEP_L), (*FW_BASELINES, *_OURS)
# Of ours, the lowest at its best step on the problems seen before, in the geometric mean.
CHOICE, FW_CHOICE = "fold 2, L=1/s", "Gaussian 128"


def _means(*slopes: str) -> tuple[str, ...]:
    return tuple(mean for mean, (slope, _) in _MEANS.items() if slope in slopes)


# What is tuned as one: a method, or all second parameters of a family.
BASELINE_FAMILIES = {
    "SGD": ("SGD",),
    "decreasing step": ("1/√t", "1/t"),
    "tuned mean": _means("EMA"),
    "slope-corrected mean": _means("slope L/2", "slope L/10"),
    "surrogates": _means("surrogates"),
    "dual averaging": ("dual averaging",),
    "Adam": ("Adam",),
}
FAMILIES = BASELINE_FAMILIES | {method: (method,) for method in (*_OURS, *_STEP_L)}
FW_FAMILIES = {
    "raw": ("raw",),
    **{name: BASELINE_FAMILIES[name] for name in ("tuned mean", "slope-corrected mean")},
    **{method: (method,) for method in _OURS},
}
SHOWN = (
    *(family for family in BASELINE_FAMILIES if family != "decreasing step"),
    *_STEP_L,
    "Gaussian 128",
)


class _OneScale(Adam):
    """Adam with one scale for all coordinates: on sets that are no boxes, others have wrong ends.

    A projection in the usual distance, after steps that differ by coordinate, stops elsewhere
    than at the minimiser.
    """

    def move(self, x: Array, g: Array, step_size: float) -> Array:
        """Return the next point."""
        super().move(x, g, step_size)
        m, v = np.asarray(self._m), np.asarray(self._v)
        mean = v.mean(axis=-1, keepdims=True) / (1 - math.pow(self.beta2, self.steps))
        self.last_step = np.asarray(step_size / (np.sqrt(mean) + self.eps))
        return np.asarray(x - self.last_step * m / (1 - math.pow(self.beta1, self.steps)))


def optimizer(method: str, of: Composite, multiple: float) -> Optimizer:
    """Return a method for a batch of runs, at a multiple of 1/L; NaN for Frank-Wolfe."""
    L, step = of.smooth.L, multiple / of.smooth.L
    denoiser: DenoiserLike | None = None
    if method in _MEANS:
        slope, weight = _MEANS[method]
        share = _SLOPES[slope]
        denoiser = GradientMean(_WEIGHTS[weight], slope=1 / step if share is None else share * L)
    elif method in _OURS + _STEP_L:
        bound = 1 / step if method in _STEP_L else L
        denoiser = named(method.removesuffix(", L=1/s"), bound)
    if math.isnan(multiple):
        return FrankWolfe(of.map.corner, denoiser=denoiser)
    if method == "Adam":
        return (Adam if of.map.separable else _OneScale)(0.1 * of.reach * multiple)
    return SGD(step, denoiser=denoiser) if denoiser else _PLAIN[method](step)
