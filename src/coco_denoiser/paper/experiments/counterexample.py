"""A window on which the error of one gradient grows, and grows with K (ElementwiseMSE).

    f(x) = 1/2 dist(x, C)^2,    C = {x : x_1 <= -|(x_2, x_3)|},

the origin and K - 1 points on a circle around it in the plane x_1 = 0. Every constraint between
the origin and the circle is tight with the same normal, so that the estimate at the origin is
pulled up by the largest errors on the circle. docs/theory.md has the proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit, generator
from coco_denoiser.paper.experiments.panels import Kind, Panel
from coco_denoiser.paper.pairs import denoise_windows
from coco_denoiser.typing import Float64

_ERROR, _VARIANCE, _TOTAL = "error at the centre", "variance at the centre", "mean error of all"


def star(K: int, radius: float) -> Float64:
    """Return (K, 3): the origin, and K - 1 points evenly on a circle in the plane x_1 = 0."""
    angles = 2 * np.pi * np.arange(K - 1) / (K - 1)
    points = np.zeros((K, 3))
    points[1:, 1:] = radius * np.stack((np.cos(angles), np.sin(angles)), axis=1)
    return points


def gradient(points: Float64) -> Float64:
    """Return the gradient of f at points of the plane x_1 = 0."""
    exact = 0.5 * points
    exact[:, 0] = 0.5 * np.linalg.norm(points, axis=1)
    return exact


@dataclass(frozen=True)
class Counterexample(Experiment):
    """Our own numbers; noise and box are of the size of the paper's Figure 3."""

    name = "counterexample"
    summary = "Error of the gradient at the centre of a circle of points, for 2 to 33 points."
    quick: ClassVar = {"runs": 200}
    numbers = (3,)

    runs: int = 1000
    points: tuple[int, ...] = (2, 3, 5, 9, 17, 33)
    radius: float = 1000.0
    sigma: float = 10.0

    def count(self) -> int:
        return len(self.points)

    def unit(self, index: int) -> Unit:
        """Return, for one K, what is gained or lost on the noise of each run, over its mean square.

        That is error and variance at the centre, and the mean error of all gradients.
        """
        K = self.points[index]
        points = star(K, self.radius)
        exact = gradient(points)
        noise = self.sigma * generator(self, self.name, index).standard_normal((self.runs, K, 3))
        after = (denoise_windows(points, exact + noise, L=1.0) - exact) / self.sigma
        before = noise / self.sigma
        root, drawn = after[:, 0], before[:, 0]
        spread = (root - root.mean(axis=0)) ** 2 - (drawn - drawn.mean(axis=0)) ** 2
        return {
            _ERROR: np.sum(root**2 - drawn**2, axis=1) / 3,
            _VARIANCE: np.sum(spread, axis=1) / 3,
            _TOTAL: np.mean(after**2 - before**2, axis=(1, 2)),
        }

    def gather(self, units: Sequence[Unit]) -> Curves:
        """Return shares of the oracle's error, each with the noise's own deviation taken off."""
        curves = Curves()
        for name in (_ERROR, _VARIANCE, _TOTAL):
            gains = np.stack([unit[name] for unit in units], axis=1)
            curves.add("share", name, self.points, 1 + gains)
        curves.exact("share", "Oracle", self.points, np.ones(len(self.points)))
        return curves

    def panels(self, _: Curves) -> list[Panel]:
        title, x, y = (
            "The gradient at the centre",
            "number of points K",
            "share of the oracle's error",
        )
        raw = frozenset({"Oracle"})
        return [Panel("share", title, x, y, references=raw, log="x", kind=Kind.MARKERS)]

    def claims(self, curves: Curves) -> list[Claim]:
        paper, ours = Judge(self.runs, figure=3), Judge(self.runs)
        error, variance, total = (curves["share", name] for name in (_ERROR, _VARIANCE, _TOTAL))
        less = ours.premise("a smaller variance", [variance.shifted(-1).times(-1)])
        last = f"K = {self.points[-1]}"
        return [
            paper.no_worse(
                "MSE(θ_k) ≤ MSE(g_k) for arbitrary d and K: here for the gradient at the centre of "
                f"a circle of points, d = 3 ({error.mean[-1] - 1:+.0%} at {last}).",
                [error.shifted(-1)],
                margin=0.02,
                measure="largest increase that the runs leave possible, over the oracle's error",
                note="The constraints pull this gradient towards the largest errors around it. All "
                "of the increase is bias. For K = 2 the statement is proved.",
                provided=less,
            ),
            paper.increases(
                "The elementwise MSE decreases with K: here from each K to the next "
                f"({', '.join(f'{share - 1:+.0%}' for share in error.mean)} for K = "
                f"{', '.join(map(str, self.points))}).",
                [error.falls()],
                measure="smallest fall from one K to the next, in standard errors",
                note="More points mean a larger largest error around the centre.",
            ),
            ours.increases(
                "The variance of this gradient is nevertheless smaller than the oracle's, for "
                "every K.",
                [variance.shifted(-1).times(-1)],
                theory=True,
            ),
            ours.increases(
                "So is the mean error of all gradients, for every K.",
                [total.shifted(-1).times(-1)],
                theory=True,
            ),
        ]
