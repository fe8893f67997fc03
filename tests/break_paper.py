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
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from coco_denoiser import Denoiser
from coco_denoiser.paper import fdpg
from coco_denoiser.paper.experiments import (
    counterexample,
    elementwise_mse,
    logistic,
    mse_vs_variance,
    pair_errors,
    paths,
    synthetic,
    warm_start,
)
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.claims import Claim, Verdict
from coco_denoiser.paper.optimizers import momentum

MODULES: tuple[Any, ...] = (counterexample, elementwise_mse, mse_vs_variance, pair_errors)
NOISY: tuple[Any, ...] = (*MODULES, logistic, synthetic, warm_start)
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
    batch: Callable[[Batch], Batch], stream: Callable[[Any, int | None], Any]
) -> Iterator[None]:
    """Replace what denoises a window at once, and what makes the denoiser of an optimizer."""
    with ExitStack() as stack:
        for module in MODULES:
            for name in ("denoise", "denoise_pairs"):
                if hasattr(module, name):
                    broken = batch(getattr(module, name))
                    stack.enter_context(patch.object(module, name, broken))
        made = lambda problem, window, **_: None if window == 1 else stream(problem, window)  # noqa: E731
        stack.enter_context(patch.object(paths, "coco", made))
        yield


def rows(L: float, window: int | None) -> paths.Rows:
    """Return a denoiser for every run."""
    return paths.Rows(lambda: Denoiser(L, window, tol=paths.TOLERANCE))


def nothing() -> Any:
    """Return every gradient as it was observed."""
    return denoisers(
        lambda _: lambda _, gradients, **__: np.array(gradients),
        lambda *_: lambda _, gradient: gradient,
    )


def with_l(factor: float) -> Any:
    """Tell the denoiser another L."""
    return denoisers(
        lambda real: lambda points, gradients, *, L: real(points, gradients, L=factor * L),
        lambda problem, window: rows(factor * problem.L, window),
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

    def stream(problem: Any, window: int | None) -> Any:
        size = window if window is None else window - 1
        return None if size == 1 else rows(problem.L, size)

    return denoisers(batch, stream)


class HalfNoise(np.random.Generator):
    """Draws normal numbers of half the size."""

    def standard_normal(self, *args: Any, **kwargs: Any) -> Any:
        return 0.5 * super().standard_normal(*args, **kwargs)


@contextmanager
def half_the_noise() -> Iterator[None]:
    with ExitStack() as stack:
        for module in NOISY:
            real = module.generator

            def halved(*args: Any, real: Batch = real) -> HalfNoise:
                return HalfNoise(real(*args).bit_generator)

            stack.enter_context(patch.object(module, "generator", halved))
        yield


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
    "nothing broken": ExitStack,
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
        experiment = EXPERIMENTS[name]
        result = experiment.run(replace(experiment.paper, **experiment.quick))
        claims = [claim for claim in experiment.claims(result) if claim.figure is not None]
        found += [(name, claim) for claim in claims]
    return found


def on_coco(name: str, claim: Claim) -> bool:
    return name not in NO_DENOISER and not claim.sentence.startswith(NOT_ON_COCO)


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
                if claim.verdict is Verdict.HOLDS and on_coco(name, claim)
            ]
    for sentence in survivors:
        print("confirmed by a denoiser that does nothing:", sentence)
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
