"""What a warm start saves the paper's solver, and how fast it converges (warm_starting).

After ten steps of SGD+COCO_10 the window moves by one point. The fast dual proximal gradient
method, to the letter of the paper, starts from zero, or from the dual variables of the window
before: those of the pairs that stay as they were, those of the new pairs zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coco_denoiser import Denoiser
from coco_denoiser.paper import fdpg
from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit, generator
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.problems import Quadratic
from coco_denoiser.problem import Problem, from_observations
from coco_denoiser.typing import Float64

_MEAN, _FIRST = "mean of the runs", "first run"
_WARM, _COLD = "WS", "No WS"
_PLAIN = "no momentum"  # beside the figure: the same steps from zero, without acceleration
_CHECKED = (5, 10, 20, 40, 80)  # iterations after which the primal answer is looked at


@dataclass(frozen=True)
class WarmStart(Experiment):
    """The paper's numbers; it shows one run, we add the mean over many."""

    name = "warm-start"
    summary = (
        "Dual objective over the paper's solver's iterations, from the last window and from zero."
    )
    quick: ClassVar = {"runs": 20}
    numbers = (6,)

    runs: int = 100
    dimension: int = 10
    window: int = 10
    sigma: float = 10.0
    start: float = 100.0
    shown: int = 80
    iterations: int = 1000

    def unit(self, index: int) -> Unit:
        """Return the dual objective minus the best value seen, (3, shown + 1): warm, cold, plain.

        And how far the primal answer of the cold start is from its last one, after some iterations.
        """
        K, problem = self.window, Quadratic.spaced(self.dimension, noise_std=self.sigma)
        points, gradients = self._observations(problem, generator(self, self.name, index))

        def window(first: int) -> tuple[Problem, float]:
            seen = slice(first, first + K)
            reduced, units = from_observations(
                points[seen], gradients[seen], L=problem.L, mu=0.0, variances=np.ones(K)
            )
            return reduced, units.batch.scale

        def table(dual: Float64) -> Float64:
            pairs = np.zeros((K, K, dual.shape[1]))
            pairs[np.triu_indices(K, 1)] = dual
            return pairs

        before, unit_before = window(0)
        after, unit_after = window(1)
        dual, _ = fdpg.iterate(before, max_iter=self.iterations)
        moved = np.zeros((K, K, self.dimension))
        moved[:-1, :-1] = table(dual * (unit_before / unit_after))[1:, 1:]
        values = [
            fdpg.iterate(after, max_iter=self.iterations, dual=start)[1] * unit_after**2
            for start in (moved[np.triu_indices(K, 1)], None)
        ]
        plain, heights = np.zeros_like(dual), []
        for _ in range(self.shown):  # one iteration after the other has no momentum
            plain, history = fdpg.iterate(after, max_iter=1, dual=plain)
            heights.append(history)
        values.append(np.array([heights[0][0], *(end for _, end in heights)]) * unit_after**2)
        best = min(history.min() for history in values)
        limits = (*_CHECKED, self.iterations)
        ends = (table(fdpg.iterate(after, max_iter=limit)[0]) for limit in limits)
        primal = [pairs.sum(axis=0) - pairs.sum(axis=1) for pairs in ends]
        return {
            "excess": np.stack([history[: self.shown + 1] - best for history in values]),
            "primal": np.array([np.linalg.norm(moved - primal[-1]) for moved in primal[:-1]]),
        }

    def _observations(
        self, problem: Quadratic, rng: np.random.Generator
    ) -> tuple[Float64, Float64]:
        """Return the points and noisy gradients of the first window + 1 steps of SGD+COCO."""
        denoiser, x = Denoiser(problem.L, self.window), np.full(self.dimension, self.start)
        points, gradients = np.empty((2, self.window + 1, self.dimension))
        for k in range(self.window + 1):
            points[k], gradients[k] = x, problem.oracle(x, rng)
            x = x - denoiser(x, gradients[k]) / problem.L
        return points, gradients

    def gather(self, units: Sequence[Unit]) -> Curves:
        excess = np.stack([unit["excess"] for unit in units])
        at = np.arange(self.shown + 1)
        curves = Curves()
        for row, series in enumerate((_WARM, _COLD)):
            curves.exact(_FIRST, series, at, excess[0, row])
        curves.compare(_MEAN, at, {_COLD: excess[:, 1], _WARM: excess[:, 0]})
        primal = np.stack([unit["primal"] for unit in units])
        curves.add("primal", "distance to the answer", _CHECKED, primal)
        # p of k^-p, run by run, from iteration 5 on.
        first = _CHECKED[0]
        dual = np.maximum(excess[:, 1, first:], 1e-300)
        for series, k, falls in (
            ("dual", at[first:], dual),
            ("primal", np.array(_CHECKED), primal),
        ):
            power = np.polyfit(np.log(k), np.log(falls).T, 1)[0]
            curves.add("exponent", series, first, power[:, None])
        # How many iterations until the excess is below a thousandth of the cold start's first.
        goal = 1e-3 * excess[:, 1, :1]
        needed = np.argmax(excess <= goal[:, None], axis=2).astype(float)
        needed[~(excess <= goal[:, None]).any(axis=2)] = self.shown
        samples = {_COLD: needed[:, 1:2], _WARM: needed[:, :1], _PLAIN: needed[:, 2:]}
        curves.compare("iterations needed", 1e-3, samples)
        return curves

    def panels(self, _: Curves) -> list[Panel]:
        y = "dual objective above its minimum"
        return [
            Panel(_FIRST, "One run", "iteration", y, log="y", figure="6"),
            Panel(_MEAN, f"Mean of {self.runs} runs", "iteration", y, (_WARM, _COLD), log="y"),
        ]

    def claims(self, curves: Curves) -> list[Claim]:
        paper = Judge(self.runs, figure=6)
        ahead, needed = (curves.difference(p, _COLD, _WARM) for p in (_MEAN, "iterations needed"))
        warm, cold, plain = (curves["iterations needed", s].mean[0] for s in (_WARM, _COLD, _PLAIN))
        powers = {name: curves["exponent", name] for name in ("dual", "primal")}
        return [
            paper.increases(
                "A warm start begins with a much better guess: it is ahead in each of the first "
                "ten iterations.",
                [ahead.part(slice(11))],
            ),
            paper.increases(
                "Warm-starting reaches a satisfactory solution in fewer iterations "
                f"({warm:.0f} instead of {cold:.0f} to a thousandth of a cold start's first gap).",
                [needed],
            ),
            paper.increases(
                "The method is accelerated: it reaches the same in fewer iterations than the "
                f"proximal gradient method without momentum ({cold:.0f} instead of {plain:.0f}).",
                [curves.difference("iterations needed", _PLAIN, _COLD)],
            ),
            paper.no_worse(
                "The dual objective of the paper's method converges at the rate O(1/k²), or faster "
                f"(here k^{powers['dual'].mean[0]:.1f} from iteration 5 to {self.shown}).",
                [powers["dual"].shifted(2)],
                margin=0.1,
                measure="excess of the exponent over −2 that the runs leave possible",
            ),
            paper.no_worse(
                "Its primal answer converges at the rate O(1/k), or faster "
                f"(here k^{powers['primal'].mean[0]:.1f}).",
                [powers["primal"].shifted(1)],
                margin=0.1,
                measure="excess of the exponent over −1 that the runs leave possible",
            ),
        ]
