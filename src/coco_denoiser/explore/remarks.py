"""What the settings mean, in words: where they leave COCO nothing to do, or mislead it."""

from collections.abc import Iterator

import numpy as np

from coco_denoiser.explore.simulation import Ended, Path, Settings, Simulation

LARGE_WINDOW = 32


def remarks(simulation: Simulation) -> list[str]:
    """Return a sentence for each setting that explains what is seen; none for a usual one."""
    settings, problem = simulation.settings, simulation.problem
    return [
        *_on_window(settings),
        *_on_noise(settings),
        *_on_bounds(settings, problem.mu / problem.L),
        *_on_end("The method alone", simulation.plain),
        *_on_end("With COCO", simulation.coco),
    ]


def summary(simulation: Simulation) -> str:
    """Return what came out, in a sentence: the second half of the run, with COCO and without."""
    settings = simulation.settings
    plain, coco = _late(simulation.plain), _late(simulation.coco)
    text = (
        f"Mean distance to the minimum over the second half of the run: {plain:.3g} with "
        f"{settings.method}, {coco:.3g} with COCO_{settings.window}"
    )
    if np.isclose(plain, coco, rtol=5e-3):
        return f"{text}: the same."
    change = f"{100 * (coco / plain - 1):+.0f}%".replace("-", "−")
    return f"{text} ({change})."


def _late(path: Path) -> float:
    return float(np.mean(path.distances[len(path.distances) // 2 :]))


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


def _on_noise(settings: Settings) -> Iterator[str]:
    if settings.noise > 0 or settings.window == 1:
        return
    if settings.L >= 1:
        yield (
            "No noise: true gradients keep the bound already, so COCO changes nothing, and both "
            "paths are the same."
        )
    else:
        yield (
            "No noise, and yet COCO changes the gradients: with an L below the true one, the bound "
            "forbids the truth."
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
            "L is below the true one: the bound forbids the truth, and denoised gradients are "
            "biased."
        )
    elif settings.L >= 5 and not mu_too_large:
        yield (
            f"L is {settings.L:g} times the true one: the bound allows nearly everything, and COCO "
            "changes little. Too large an L is safe, but gains less."
        )
    if mu_too_large:
        yield (
            f"mu is above the smallest curvature of this function ({true_mu:g}): the bound forbids "
            "the truth, and denoised gradients are biased."
        )
    elif settings.mu < 0:
        yield "mu below 0 allows functions that are not convex: safe, but it gains less."


def _on_end(name: str, path: Path) -> Iterator[str]:
    taken = len(path.points) - 1
    if path.ended is Ended.DIVERGED:
        yield f"{name}, the run diverged, and was stopped after {taken} steps."
    elif path.ended is Ended.PATIENCE:
        yield (
            f"{name}, the run was stopped after {taken} steps: these windows take the exact method "
            "too long for a page. A smaller K answers at once."
        )
