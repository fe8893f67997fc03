"""Settings worth a look, and settings in an address, so that a picture can be shared."""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict

from coco_denoiser.explore.objectives import OBJECTIVES
from coco_denoiser.explore.simulation import METHODS, Settings

PRESETS = {
    "The usual case": Settings(),
    "L too small": Settings(L=0.1, noise=1.0, step=1.0),
    "Too long a step": Settings(step=1.7),
    "Flat valley": Settings(objective="valley", step=1.0, steps=100),
    "Adam": Settings(method="Adam", step=1.0),
    "Not convex": Settings(objective="bumps", mu=-0.1),
    "50 dimensions": Settings(objective="many"),
}
# What a setting may be, wherever it comes from: least, largest, step.
LIMITS: dict[str, tuple[float, float, float]] = {
    "window": (1, 64, 1),
    "L": (0.1, 10.0, 0.05),  # the step is one of its logarithm
    "mu": (-1.0, 0.9, 0.1),
    "noise": (0.0, 10.0, 0.25),
    "step": (0.05, 1.9, 0.05),
    "steps": (10, 150, 5),
    "seed": (1, 50, 1),
}
_CHOICES: dict[str, Collection[str]] = {"objective": OBJECTIVES, "method": METHODS}


def settings(asked: Mapping[str, object]) -> Settings:
    """Return the settings asked for, within the limits; the usual ones where it makes no sense.

    What asks is an address or a browser, and neither is trusted.
    """
    usual = asdict(Settings())
    chosen = {name: asked[name] for name, known in _CHOICES.items() if asked.get(name) in known}
    for name, (least, largest, _) in LIMITS.items():
        number = _number(asked.get(name))
        if math.isfinite(number):
            number = min(max(number, least), largest)
            chosen[name] = round(number) if isinstance(usual[name], int) else number
    return Settings(**{**usual, **chosen})


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
