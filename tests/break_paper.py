"""Break the reproduction on purpose, and see which statements of the paper notice.

    python -m tests.break_paper [NAMES ...]

runs the paper's experiments (or those named) at their quick sizes, once as they are and once for
each break below, and prints how many statements are then confirmed, contradicted and open, and
which of those confirmed at first are not any more. The exit code is 1 if a statement on COCO is
still confirmed when the denoiser does nothing.
"""

# ruff: noqa: T201
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from coco_denoiser import Cocoercive, Denoiser, denoise
from coco_denoiser.paper import fdpg, pairs
from coco_denoiser.paper.experiments import pair_errors, paths
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.claims import Claim, Verdict
from coco_denoiser.paper.optimizers import momentum

# Statements on the oracle, on optimizers without COCO, on a formula, or on the paper's solver.
NOT_ON_COCO = (
    "The oracle's error is C σ²",
    "SGD alone ends in stagnation",
    "Adam alone ends in stagnation",
    "A decreasing step delays",
    "In the end averaging outperforms",
    "Adam arrives at its variance regime",
    "Adam receives an initial step size",
)
NO_DENOISER = ("constraint-tightness", "warm-start")

Batch = Callable[..., Any]


@contextmanager
def denoisers(
    batch: Callable[[Batch], Batch], stream: Callable[[float, int], Any]
) -> Iterator[None]:
    """Replace what denoises a window at once, and what makes the denoiser of an optimizer."""

    def made(name: str, L: float) -> Any:
        return stream(L, int(name.partition("_")[2] or 10_000))  # all points

    with (
        patch.object(pairs, "denoise", batch(denoise)),
        patch.object(pair_errors, "denoise_pairs", batch(pairs.denoise_pairs)),
        patch.object(paths, "named", made),
    ):
        yield


def rows(L: float, window: int) -> Any:
    """Return a denoiser for every run."""
    model = Cocoercive(L, tol=paths.TOLERANCE)
    return paths.Rows(lambda: Denoiser(model=model, window=window)) if window > 1 else None


def nothing() -> Any:
    """Return every gradient as it was observed."""
    return denoisers(lambda _: lambda _, g, **__: np.array(g), lambda *_: lambda _, g: g)


def with_l(factor: float) -> Any:
    """Tell the denoiser another L."""
    return denoisers(
        lambda real: lambda x, g, *, L: real(x, g, L=factor * L),
        lambda L, window: rows(factor * L, window),
    )


def shorter_window() -> Any:
    """Leave the first point out."""

    def batch(real: Batch) -> Batch:
        def broken(points: Any, gradients: Any, *, L: float) -> Any:
            theta = np.array(gradients)
            if points.shape[-2] > 2:
                theta[1:] = real(points[1:], gradients[1:], L=L)
            return theta

        return broken

    return denoisers(batch, lambda L, window: rows(L, window - 1))


class HalfNoise(np.random.Generator):
    """Draws normal numbers of half the size."""

    def standard_normal(self, *args: Any, **kwargs: Any) -> Any:
        return 0.5 * super().standard_normal(*args, **kwargs)


def half_the_noise() -> Any:
    real = np.random.default_rng
    return patch.object(np.random, "default_rng", lambda seed: HalfNoise(real(seed).bit_generator))


def no_bias_correction() -> Any:
    return patch.object(momentum, "math", SimpleNamespace(pow=lambda *_: 0.0))


def no_momentum() -> Any:
    """Let the paper's solver start anew at every iteration."""
    real = fdpg.iterate

    def broken(window: Any, *, max_iter: int, dual: Any = None, **ignored: Any) -> Any:
        history = []
        for _ in range(max_iter):
            dual, values = real(window, max_iter=1, dual=dual)
            history.append(values[0])
        return dual, np.array([*history, values[-1]])

    return patch.object(fdpg, "iterate", broken)


BREAKS: dict[str, Callable[[], Any]] = {
    "nothing broken": nullcontext,
    "a denoiser that does nothing": nothing,
    "L/2": lambda: with_l(0.5),
    "2L": lambda: with_l(2.0),
    "a window of K-1": shorter_window,
    "half the noise": half_the_noise,
    "Adam without bias correction": no_bias_correction,
    "FDPG without momentum": no_momentum,
}


def judged(names: list[str]) -> list[tuple[str, Claim]]:
    """Return the paper's claims at the quick sizes, with the name of their experiment."""
    found = []
    for name in names:
        experiment = replace(EXPERIMENTS[name], **EXPERIMENTS[name].quick)
        found += [(name, claim) for claim in experiment.claims(experiment.run()) if claim.figure]
    return found


def main(names: list[str]) -> int:
    chosen = [name for name, e in EXPERIMENTS.items() if e.numbers and name in (names or [name])]
    whole: list[tuple[str, Claim]] = []
    survivors: list[str] = []
    print(f"{'broken':30}{'confirmed':>10}{'contradicted':>14}{'open':>6}   noticed by")
    for broken, breaking in BREAKS.items():
        with breaking(), np.errstate(all="ignore"):
            found = judged(chosen)
        whole = whole or found
        count = {v: sum(claim.verdict is v for _, claim in found) for v in Verdict}
        lost = [
            name
            for (name, claim), (_, before) in zip(found, whole, strict=True)
            if before.verdict is Verdict.HOLDS and claim.verdict is not Verdict.HOLDS
        ]
        noticed = ", ".join(f"{name} {lost.count(name)}" for name in dict.fromkeys(lost))
        print(
            f"{broken:30}{count[Verdict.HOLDS]:10}{count[Verdict.FAILS]:14}"
            f"{count[Verdict.OPEN]:6}   {noticed or 'none'}",
            flush=True,
        )
        if breaking is nothing:
            survivors = [
                f"{name}: {claim.sentence}"
                for name, claim in found
                if claim.verdict is Verdict.HOLDS
                and name not in NO_DENOISER
                and not claim.sentence.startswith(NOT_ON_COCO)
            ]
    for sentence in survivors:
        print("confirmed by a denoiser that does nothing:", sentence)
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
