"""What the settings mean, in words: where they leave COCO nothing to do, or mislead it."""

from collections.abc import Iterator

import numpy as np

from coco_denoiser.explore.objectives import OBJECTIVES
from coco_denoiser.explore.simulation import Ended, Path, Settings, Simulation

LARGE_WINDOW = 32
FLAT = 0.05  # a curvature, relative to L, below which a direction is flat
LOSS = 1.03  # how much worse counts as a loss that needs an explanation


def remarks(simulation: Simulation) -> list[str]:
    """Return a sentence for each setting that explains what is seen; none for a usual one."""
    settings, problem = simulation.settings, simulation.problem
    about = OBJECTIVES[settings.objective].remark
    return [
        *([about] if about else []),
        *_on_window(settings),
        *_on_noise(settings, problem.mu / problem.L),
        *_on_bounds(settings, problem.mu / problem.L),
        *_on_end("The method alone", simulation.plain),
        *_on_end("With COCO", simulation.coco),
        *_on_end("With the Gaussian model", simulation.gaussian),
    ]


def summary(simulation: Simulation) -> str:
    """Return what came out, in a sentence or two: the second half of the steps that all took."""
    settings, last = simulation.settings, simulation.common
    half = slice(last // 2, last + 1)
    plain, coco, gaussian = (
        float(np.mean(path.distances[half])) for path in simulation.paths.values()
    )
    text = (
        f"Mean distance to the minimum over steps {half.start} to {last}: {plain:.3g} with "
        f"{settings.method}, {coco:.3g} with COCO_{settings.window} ({_change(coco, plain)}), "
        f"{gaussian:.3g} with the Gaussian model ({_change(gaussian, plain)})."
    )
    if coco > LOSS * plain:
        text += f" {_why_it_loses(simulation)}"
        if gaussian > LOSS * plain:
            text += " The Gaussian model loses too."
    elif gaussian > LOSS * plain:
        text += (
            " The Gaussian model loses: it must learn noise and slope from the window, and few or "
            "distant points say little."
        )
    return text


def _change(distance: float, plain: float) -> str:
    if np.isclose(distance, plain, rtol=5e-3):
        return "the same"
    return f"{100 * (distance / plain - 1):+.0f}%".replace("-", "−")


def _why_it_loses(simulation: Simulation) -> str:
    settings, problem, last = simulation.settings, simulation.problem, simulation.common
    errors = [float(np.mean(path.errors[:last])) for path in (simulation.plain, simulation.coco)]
    if settings.L < 1 or settings.mu * settings.L > problem.mu / problem.L + 1e-9:
        return (
            "Denoising loses here because the bounds it was given rule out the truth: see below. "
            f"The mean error of its gradients is {errors[1]:.2g}, that of the oracle's "
            f"{errors[0]:.2g}."
        )
    if errors[1] > errors[0]:
        return (
            "Denoising loses here although its bounds are right: its gradients are less accurate "
            f"({errors[1]:.2g} against {errors[0]:.2g}), which over few steps can be chance. Try "
            "another seed, or more steps."
        )
    if settings.method == "Adam":
        why = (
            "Adam divides by the size of its gradients, so smaller noise does not make its steps "
            "shorter. Try a shorter step."
        )
    elif problem.mu < FLAT * problem.L:
        why = (
            "where the function is flat, noise moves the point further than the gradient does, and "
            "here it moved it the right way. Try other seeds."
        )
    else:
        why = (
            "errors of one window resemble each other, so they add up over the steps where fresh "
            "noise cancels. A shorter step or another seed may give another result."
        )
    return (
        f"Denoising loses here although its gradients are better (mean error {errors[1]:.2g} "
        f"against {errors[0]:.2g}): {why}"
    )


def _on_window(settings: Settings) -> Iterator[str]:
    K, pairs = settings.window, settings.window * (settings.window - 1) // 2
    if K == 1:
        yield (
            "K = 1: a window of one gradient has no pair to compare, so COCO passes on what it "
            "gets, and both paths are the same."
        )
    elif settings.steps <= K:
        yield (
            f"K = {K} is as long as the run: nothing is forgotten, and each step compares up to "
            f"{pairs} pairs."
        )
    elif K >= LARGE_WINDOW:
        yield (
            f"K = {K}: each step compares {pairs} pairs. Points further apart than noise / L add "
            "little, and the page takes longer to answer."
        )


def _on_noise(settings: Settings, true_mu: float) -> Iterator[str]:
    if settings.noise > 0 or settings.window == 1:
        return
    if settings.L >= 1 and settings.mu * settings.L <= true_mu + 1e-9:
        yield (
            "No noise: true gradients satisfy the bound already, so COCO changes nothing, and both "
            "paths are the same."
        )
    else:
        yield (
            "No noise, and yet COCO changes the gradients: the bounds it was given rule out the "
            "truth."
        )


def _on_bounds(settings: Settings, true_mu: float) -> Iterator[str]:
    if settings.window == 1:
        return
    mu_too_large = settings.mu * settings.L > true_mu + 1e-9
    if settings.L <= 0.5:
        yield (
            f"L is {settings.L:g} times the true one, far too small: COCO takes true differences "
            "between gradients for noise and averages them away. The path lags and overshoots."
        )
    elif settings.L < 1:
        yield (
            "L is below the true one: the bound rules out the truth, and denoised gradients are "
            "biased."
        )
    elif settings.L >= 5 and not mu_too_large:
        yield (
            f"L is {settings.L:g} times the true one: the bound allows nearly everything, and COCO "
            "changes little. Too large an L is safe, but gains less."
        )
    if mu_too_large:
        yield (
            f"mu is above the smallest curvature of this function ({true_mu:g}): the bound rules "
            "out the truth, and denoised gradients are biased."
        )
    elif settings.mu < 0:
        yield "mu below 0 allows functions that are not convex: safe, but it gains less."


def _on_end(name: str, path: Path) -> Iterator[str]:
    taken = len(path.points) - 1
    if path.ended is Ended.DIVERGED:
        yield f"{name}, the run diverged, and was stopped after {taken} steps."
    elif path.ended is Ended.PATIENCE:
        yield (
            f"{name}, the run was stopped after {taken} steps: the exact method takes too long on "
            "these windows for a page. A smaller K answers at once."
        )
