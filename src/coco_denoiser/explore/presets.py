"""Settings worth a look, and settings in an address, so that a picture can be shared."""

import math
from collections.abc import Mapping
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
# What a setting may be, for its slider and for an address: least, largest, step.
LIMITS: dict[str, tuple[float, float, float]] = {
    "window": (1, 64, 1),
    "L": (0.1, 10.0, 0.05),  # the step is one of its logarithm
    "mu": (-1.0, 0.9, 0.1),
    "noise": (0.0, 10.0, 0.25),
    "step": (0.05, 1.9, 0.05),
    "steps": (10, 150, 5),
    "seed": (1, 50, 1),
}
_CHOICES = {"objective": list(OBJECTIVES), "method": list(METHODS)}


def from_query(query: Mapping[str, str]) -> Settings:
    """Return the settings that an address asks for; the usual ones where it is silent or wrong."""
    usual = asdict(Settings())
    chosen = {name: query[name] for name, known in _CHOICES.items() if query.get(name) in known}
    return Settings(**{**usual, **chosen, **_numbers(query, usual)})


def _numbers(query: Mapping[str, str], usual: Mapping[str, object]) -> dict[str, float]:
    numbers = {}
    for name, (least, largest, _) in LIMITS.items():
        try:
            number = float(query.get(name, ""))
        except ValueError:
            continue
        if math.isfinite(number):
            number = min(max(number, least), largest)
            numbers[name] = round(number) if isinstance(usual[name], int) else number
    return numbers
