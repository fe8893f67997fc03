"""How the mean squared error grows with the noise, for one to ten points (MSE_totalVsVariance).

In every run K points are drawn uniformly in a cube, their gradients are observed with noise of
variance sigma^2, and denoised. The error of a window is its total squared error over K. For
points close enough to each other the error is C sigma^2, with C falling as 1/K.

The K points of a run are the first K of ten, with the same noise, so that two values of K are
compared on the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit, generator
from coco_denoiser.paper.experiments.panels import Kind, Panel
from coco_denoiser.paper.pairs import denoise_windows
from coco_denoiser.paper.problems import Quadratic

_FIT = "regression"
_ERRORS = ("oracle", "coco", "averaged", "centroid")
_BATCHES = 20  # of runs, each of which gives one exponent


@dataclass(frozen=True)
class ErrorByNoise(Experiment):
    """The paper's numbers."""

    name = "mse-vs-variance"
    summary = "Error of the oracle and of COCO against the noise variance, for 1 to 10 points."
    quick: ClassVar = {"runs": 100}
    numbers = (2,)
    seconds = 10.0

    runs: int = 1000
    dimension: int = 3
    most_points: int = 10
    half_width: float = 5.0
    variances: tuple[float, ...] = tuple(100.0 * i for i in range(11))

    def count(self) -> int:
        return len(self.variances)

    def unit(self, index: int) -> Unit:
        """Return, for one variance, errors (runs, K) of the oracle and of COCO.

        And that of the mean of the K noises, which COCO would have at K equal points.
        """
        sigma = np.sqrt(self.variances[index])
        problem = Quadratic.spaced(self.dimension)
        points = np.empty((self.runs, self.most_points, self.dimension))
        noise = np.empty_like(points)
        for run in range(self.runs):
            rng = generator(self, self.name, index * self.runs + run)
            points[run] = rng.uniform(-self.half_width, self.half_width, points.shape[1:])
            noise[run] = sigma * rng.standard_normal(points.shape[1:])
        noisy = problem.gradient(points) + noise
        columns = []
        for K in range(1, self.most_points + 1):
            before, theta = noise[:, :K], noisy[:, :K]
            if sigma > 0.0:
                theta = denoise_windows(points[:, :K], theta, L=problem.L)
            moved = theta - noisy[:, :K]
            shift = np.linalg.norm(moved.mean(axis=1), axis=1)
            oracle, coco = (np.sum(e**2, axis=(1, 2)) / K for e in (before, before + moved))
            averaged = np.sum(before.mean(axis=1) ** 2, axis=1)
            centroid = shift / np.linalg.norm(noisy[:, :K], axis=(1, 2))
            columns.append((oracle, coco, averaged, centroid))
        return dict(zip(_ERRORS, np.stack(columns, axis=-1), strict=True))

    def gather(self, units: Sequence[Unit]) -> Curves:
        oracle, coco, averaged, centroid = (  # (variances, runs, K)
            np.stack([unit[name] for unit in units]) for name in _ERRORS
        )
        sigma2 = np.array(self.variances)
        numbers = np.arange(1, self.most_points + 1)
        curves = Curves()
        slopes = {}
        for panel, series, errors in (("oracle", "Oracle", oracle), ("coco", "COCO", coco)):
            # Least squares through the origin, for run r of every variance together.
            slopes[panel] = np.tensordot(sigma2, errors, axes=(0, 0)) / np.sum(sigma2**2)
            curves.add("slope", series, numbers, slopes[panel])
            for K in numbers:
                curves.add(panel, f"K={K}", sigma2, errors[:, :, K - 1].T)
                fitted = sigma2 * slopes[panel][:, K - 1].mean()
                curves.exact(panel, f"K={K}, {_FIT}", sigma2, fitted)
            # p of C = K^-p, from batches of runs whose slopes are averaged first.
            batches = np.array_split(slopes[panel], min(_BATCHES, self.runs))
            means = np.stack([batch.mean(axis=0) for batch in batches])
            powers = np.polyfit(np.log(numbers), np.log(means).T, 1)[0]
            curves.add("exponent", series, 1, powers[:, None])
        curves.exact("slope", "d/K (averaging)", numbers, self.dimension / numbers)
        # COCO's error is that of the averaged noise, whose mean is known, and an excess that varies
        # little: so means are known better than from the errors themselves.
        excess = coco - averaged
        for K in numbers:
            share = excess[:, :, K - 1].T * (K / self.dimension)
            whole = np.where(sigma2 > 0, sigma2, 1.0)
            curves.add("excess over averaging", f"K={K}", sigma2, share / whole)
        slope = np.tensordot(sigma2, excess, axes=(0, 0)) / np.sum(sigma2**2)
        curves.add("slope excess over averaging", "COCO", numbers, slope * numbers / self.dimension)
        curves.add("slope drop", "COCO", numbers[1:], -np.diff(slopes["coco"], axis=1))
        # Both are theorems about every single run, not about the mean.
        noise = np.where(oracle > 0, oracle, 1.0)
        curves.exact(
            "worst run", "total error over the oracle's", numbers, (coco / noise).max((0, 1))
        )
        curves.exact("worst run", "shift of the centroid", numbers, centroid.max((0, 1)))
        return curves

    def panels(self, _: Curves) -> list[Panel]:
        series = tuple(f"K={K}" for K in range(1, self.most_points + 1))
        fits = tuple(f"{name}, {_FIT}" for name in series)
        x, y = "noise variance σ²", "total squared error / K"
        errors = Panel("", "", x, y, (*series, *fits), references=frozenset(fits))
        averaging, points = "d/K (averaging)", "number of points K"
        slopes = Panel(
            *("slope", "", points, "slope", ("COCO", "Oracle", averaging)),
            references=frozenset({averaging}),
            kind=Kind.MARKERS,
        )
        return [
            replace(errors, name="oracle", title="Oracle", figure="2, left"),
            replace(errors, name="coco", title="COCO", figure="2, centre"),
            replace(slopes, title="Slopes", figure="2, right", new_row=True),
            replace(slopes, title="The same, on logarithmic axes", log="xy"),
        ]

    def _bends(self, curves: Curves) -> list[Curve]:
        """Return how far errors are from the regression line, over its height at the right end."""
        more = curves["slope excess over averaging", "COCO"]
        bends = []
        for K in range(1, self.most_points + 1):
            # K times the error over d σ² is 1 + excess, and on the line 1 + its mean excess; at the
            # right end the line is 1 high.
            seen = curves["excess over averaging", f"K={K}"]
            height = seen.x / max(float(seen.x.max()), 1e-300)
            bends.append(seen.shifted(-more.mean[K - 1]).times(height))
        return bends

    def claims(self, curves: Curves) -> list[Claim]:
        worst = curves["worst run", "total error over the oracle's"].mean
        shift = curves["worst run", "shift of the centroid"].mean
        power = curves["exponent", "COCO"]
        paper, of_batches = (
            Judge(runs, figure=2) for runs in (self.runs, min(_BATCHES, self.runs))
        )
        more = curves["slope excess over averaging", "COCO"]
        falls = paper.increases(
            "COCO's error falls monotonically with the number of points K.",
            [curves["slope drop", "COCO"]],
        )
        return [
            paper.at_most(
                "The denoised gradients have the centroid of the observed ones (Theorem 4.1).",
                float(shift.max()),
                1e-9,
                measure="largest shift of a run, relative to its gradients; threshold: the "
                "solver's tolerance",
                theory=True,
                provided=falls,
            ),
            paper.at_most(
                "The total error after denoising is at most the oracle's (Theorem 4.2).",
                float(worst.max()),
                1 + 1e-6,
                measure="largest ratio of a run; threshold: 1, up to the solver's tolerance",
                theory=True,
                provided=falls,
            ),
            of_batches.equivalent(
                "The oracle's error is C σ² with the same C for every K.",
                [curves["exponent", "Oracle"]],
                measure="largest deviation of the exponent of K from 0 that the runs leave "
                "possible",
                theory=True,
            ),
            falls,
            paper.equivalent(
                "COCO's error is C σ², a straight line through the origin, for every K.",
                self._bends(curves),
                measure="largest distance from the regression line that the runs leave possible, "
                "as a share of its height at the right end",
                provided=falls,
            ),
            of_batches.equivalent(
                f"C falls as 1/K (here as K^{power.mean[0]:.3f}).",
                [power.shifted(1)],
                measure="largest deviation of the exponent from −1 that the runs leave possible",
            ),
            paper.equivalent(
                "COCO's error is that of averaging K gradients at one point, d σ²/K, though the "
                f"points differ (K C/d = {1 + more.mean[-1]:.3f} at K = {self.most_points}).",
                [more],
            ),
        ]
