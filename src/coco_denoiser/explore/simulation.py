"""What the page shows, as a pure function: settings -> three paths on the same noise."""

import math
import time
import warnings
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

import numpy as np

from coco_denoiser import ConvergenceWarning, Denoiser, Solution, solve
from coco_denoiser.explore.objectives import OBJECTIVES
from coco_denoiser.optimizers import SGD, Adam
from coco_denoiser.problems.base import Problem
from coco_denoiser.typing import Array

START = (-9.0, 5.0)
TOLERANCE = 1e-6  # far below what a picture can show
FAR = 100.0  # a run is stopped where a coordinate is that large, ten times that of the start
METHODS: dict[str, type[SGD] | type[Adam]] = {"SGD": SGD, "Adam": Adam}


@dataclass(frozen=True)
class Settings:
    """What one can set.

    Attributes:
        objective: a name of `OBJECTIVES`.
        method: "SGD" or "Adam".
        window: K, how many gradients COCO looks at.
        L: the bound COCO is given, as a multiple of the true one.
        mu: its lower bound, as a multiple of that L.
        noise: standard deviation of the oracle's noise in each coordinate.
        step: step size, as a multiple of 1 / (true L).
        steps: how many steps are taken.
        seed: of the noise.
    """

    objective: str = "quadratic"
    method: str = "SGD"
    window: int = 16
    L: float = 1.0
    mu: float = 0.0
    noise: float = 3.0
    step: float = 0.7
    steps: int = 60
    seed: int = 1


class Ended(Enum):
    """Why a run is over."""

    COMPLETE = "all steps were taken"
    DIVERGED = "it left the picture"
    PATIENCE = "it took too long"


@dataclass
class Path:
    """One run: points x_0 .. x_n, and at all but the last of them the gradients.

    Attributes:
        points: (n + 1, d).
        observed: (n, d), what the oracle returned.
        used: (n, d), what the optimizer was given.
        exact: (n, d), the true gradients.
        distances: (n + 1,), how far the points are from the minimum.
        ended: why it has no more points.
    """

    points: Array
    observed: Array
    used: Array
    exact: Array
    distances: Array
    ended: Ended

    @property
    def errors(self) -> Array:
        """How far each gradient that was used is from the true one."""
        return np.asarray(np.linalg.norm(self.used - self.exact, axis=1))


@dataclass(frozen=True)
class Simulation:
    """The runs, and what they were run on: the method alone, with COCO, with the other model."""

    settings: Settings
    problem: Problem
    plain: Path
    coco: Path
    gaussian: Path

    @property
    def common(self) -> int:
        """The number of steps that all runs took: one of them may have been stopped."""
        return min(len(path.observed) for path in self.paths.values())

    @property
    def last(self) -> int:
        """The number of steps of the longest run."""
        return max(len(path.observed) for path in self.paths.values())

    @property
    def paths(self) -> dict[str, Path]:
        """The runs by name."""
        return {"plain": self.plain, "coco": self.coco, "gaussian": self.gaussian}

    def window(self, k: int) -> tuple[slice, Solution]:
        """Return which points of its path COCO looked at in step k = 1, 2, ..., and what it found.

        A stream keeps no more than it needs, so the window is solved once more, as a batch.
        """
        chosen = slice(max(0, k - self.settings.window), k)
        L = self.settings.L * self.problem.L
        return chosen, solve(
            self.coco.points[chosen],
            self.coco.observed[chosen],
            L=L,
            mu=self.settings.mu * L,
            tol=TOLERANCE,
            throw=False,
        )


@dataclass
class _Recorder:
    """Takes the place of a denoiser, and records what goes in and what comes out."""

    denoiser: Denoiser | None
    observed: list[Array] = field(default_factory=list)
    used: list[Array] = field(default_factory=list)

    def __call__(self, point: Array, gradient: Array) -> Array:
        used = gradient if self.denoiser is None else self.denoiser(point, gradient)
        self.observed.append(gradient)
        self.used.append(used)
        return used


def simulate(settings: Settings, *, patience: float = math.inf) -> Simulation:
    """Run the method alone and denoised, from the same start and on the same noise.

    COCO_K is given the bounds of the settings; the Gaussian model learns from a window of the same
    K.

    Args:
        settings: what was set.
        patience: seconds after which a run is cut short, so that a page never hangs: some large
            windows without noise have nearly parallel bounds, and take a second a step.
    """
    problem = OBJECTIVES[settings.objective].problem(settings.noise)
    L = settings.L * problem.L
    bounded = Denoiser(L, settings.window, mu=settings.mu * L, tol=TOLERANCE)
    return Simulation(
        settings,
        problem,
        _unbounded(replace(settings, L=1.0, mu=0.0, window=1)),
        _path(settings, problem, bounded, patience),
        _unbounded(replace(settings, L=1.0, mu=0.0), denoised=True),
    )


@lru_cache(maxsize=64)
def _unbounded(settings: Settings, *, denoised: bool = False) -> Path:
    """Run what needs no bounds, which stays the same while these are changed."""
    problem = OBJECTIVES[settings.objective].problem(settings.noise)
    denoiser = Denoiser(model="gaussian", window=settings.window) if denoised else None
    return _path(settings, problem, denoiser, math.inf)


def _path(settings: Settings, problem: Problem, denoiser: Denoiser | None, patience: float) -> Path:
    recorder = _Recorder(denoiser)
    optimizer = METHODS[settings.method](settings.step / problem.L, denoiser=recorder)
    rng = np.random.default_rng(settings.seed)
    # Further coordinates, if there are any, begin at the distance of the second.
    visited = [np.append(START, np.full(problem.dimension - 2, START[1]))]
    ended = Ended.COMPLETE
    deadline = time.monotonic() + patience
    with warnings.catch_warnings():
        # The page shows the status of the step it shows, which says the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        while len(visited) <= settings.steps and ended is Ended.COMPLETE:
            visited.append(optimizer.advance(problem, visited[-1], rng))
            if np.abs(visited[-1]).max() > FAR:
                ended = Ended.DIVERGED
            elif time.monotonic() > deadline:
                ended = Ended.PATIENCE
    points = np.array(visited)
    return Path(
        points=points,
        observed=np.array(recorder.observed),
        used=np.array(recorder.used),
        exact=problem.gradient(points[:-1]),
        distances=np.linalg.norm(points - problem.minimizer, axis=1),
        ended=ended,
    )
