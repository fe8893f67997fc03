"""What came out and what the settings mean, in words."""

import math
from collections.abc import Iterator

import numpy as np

from coco_denoiser.paper.explore.objectives import OBJECTIVES
from coco_denoiser.paper.explore.simulation import Settings, Simulation, over_seeds

NAMES = {
    "average": "average of SGD's iterates",
    "plain": "SGD",
    "coco": "SGD with COCO",
    "gaussian": "SGD with the Gaussian model",
}


def summary(simulation: Simulation) -> str:
    """Return what came out, in a sentence or two: the second half of the steps that all took."""
    changes, compared = simulation.changes(), simulation.compared
    plain = np.mean(simulation.paths["plain"].distances[compared])
    shown = [f"{NAMES[name]} {_signed(change)}" for name, change in changes.items()]
    text = (
        f"Mean distance to the minimum over steps {compared.start} to {compared.stop - 1}: SGD "
        f"{plain:.3g}, {', '.join(shown)}."
    )
    if changes["coco"] > 0.03:
        chance = "on this noise; compare with the median over seeds"
        bounds = "because the bounds it was given rule out the true gradients"
        text += f" COCO loses {bounds if _excluded(simulation) else chance}."
    return text


def medians(settings: Settings, *, patience: float = math.inf) -> str:
    """Return what comes out for other noise, as far as `patience` seconds allow, in a sentence."""
    changes = over_seeds(settings, patience=patience)
    shown = [
        f"{NAMES[name]} {_signed(float(np.median(each)))} (worse on {np.mean(each > 0):.0%})"
        for name, each in changes.items()
    ]
    return f"Median over {len(changes['coco'])} seeds, against SGD: {', '.join(shown)}."


def _signed(share: float) -> str:
    return "the same" if abs(share) < 5e-3 else f"{100 * share:+.0f}%".replace("-", "−")


def _excluded(simulation: Simulation) -> bool:
    """Whether the bounds rule out the true gradients."""
    settings, problem = simulation.settings, simulation.problem
    return settings.L < 1 or settings.mu * settings.L > problem.mu / problem.L + 1e-9


def remarks(simulation: Simulation) -> list[str]:
    """Return a sentence for each setting that explains what is seen; none for a usual one."""
    about = OBJECTIVES[simulation.settings.objective].remark
    ends = [
        f"{NAMES[name]} diverged and was stopped after {len(path.observed)} steps."
        for name, path in simulation.paths.items()
        if len(path.observed) < simulation.settings.steps
    ]
    return [*([about] if about else []), *_on_settings(simulation), *ends]


def _on_settings(simulation: Simulation) -> Iterator[str]:
    settings, true_mu = simulation.settings, simulation.problem.mu
    if settings.window == 1:
        yield "K = 1: there is no pair to compare, so COCO changes nothing."
        return
    if settings.noise == 0 and not _excluded(simulation):
        yield "No noise: the true gradients satisfy the bounds already, so COCO changes nothing."
    elif settings.noise == 0:
        yield "No noise, and yet COCO changes the gradients: its bounds rule out the true ones."
    if settings.L < 1:
        yield (
            f"L is {settings.L:g} times the true one, which is too small: COCO takes true "
            "differences between gradients for noise and averages them away."
        )
    elif settings.L >= 5:
        yield (
            f"L is {settings.L:g} times the true one: little more than convexity is left of the "
            "bounds. Too large an L is safe, but usually gains less."
        )
    if settings.mu * settings.L > true_mu + 1e-9:
        yield (
            f"mu is above the smallest curvature of this function ({true_mu:g}), so denoised "
            "gradients are biased."
        )
    elif settings.mu < 0:
        yield "mu below 0 allows functions that are not convex: safe, but it gains less."
