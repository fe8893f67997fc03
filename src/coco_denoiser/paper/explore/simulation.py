"""What the page shows, as a pure function: settings -> three runs on the same noise."""

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coco_denoiser import Cocoercive, ConvergenceWarning, Denoiser, Gaussian, Solution
from coco_denoiser.paper.explore.objectives import OBJECTIVES
from coco_denoiser.paper.problems.base import Problem
from coco_denoiser.typing import Array

START = (-9.0, 5.0)
SEEDS = 50
TOLERANCE = 1e-6  # far below what a picture can show
FAR = 100.0  # a run is stopped where a coordinate is that large, ten times that of the start


@dataclass(frozen=True)
class Settings:
    """What one can set.

    Attributes:
        objective: a name of `OBJECTIVES`.
        window: K, the number of gradients in the window.
        L: the bound COCO is given, as a multiple of the true one.
        mu: its lower bound, as a multiple of that L.
        noise: standard deviation of the oracle's noise in each coordinate.
        step: step size, as a multiple of 1 / (true L).
        steps: how many steps are taken.
        seed: of the noise. The default is close to the median over seeds.
    """

    objective: str = "quadratic"
    window: int = 16
    L: float = 1.0
    mu: float = 0.0
    noise: float = 3.0
    step: float = 0.7
    steps: int = 60
    seed: int = 43


PRESETS = {
    "The usual case": Settings(),
    "L too small": Settings(L=0.1, noise=1.0, step=1.0),
    "Step too long": Settings(step=1.7, seed=3),
    "Flat valley": Settings(objective="valley", step=1.0, steps=100, seed=50),
    "Not convex": Settings(objective="bumps", mu=-0.1),
    "50 dimensions": Settings(objective="many"),
}
# What a setting may be, wherever it comes from: least, largest, step; and its name on the page.
LIMITS: dict[str, tuple[float, float, float, str]] = {
    "window": (1, 32, 1, "K, gradients in the window"),
    "L": (0.1, 10.0, 0.05, "L, as a multiple of the true one"),  # the step is of its logarithm
    "mu": (-1.0, 0.9, 0.1, "mu, as a multiple of L"),
    "noise": (0.0, 10.0, 0.25, "Noise, standard deviation"),
    "step": (0.05, 1.9, 0.05, "Step size, times 1 / true L"),
    "steps": (10, 150, 5, "Steps"),
    "seed": (1, 50, 1, "Seed of the noise"),
}


def settings(asked: Mapping[str, str]) -> Settings:
    """Return the settings that an address asks for, within the limits.

    Where it makes no sense the default applies: an address is not trusted.
    """
    chosen: dict[str, Any] = {}
    if asked.get("objective") in OBJECTIVES:
        chosen["objective"] = asked["objective"]
    for name, (least, largest, *_) in LIMITS.items():
        try:
            number = float(asked.get(name, ""))
        except ValueError:
            continue
        if math.isfinite(number):
            number = min(max(number, least), largest)
            chosen[name] = round(number) if isinstance(getattr(Settings, name), int) else number
    return Settings(**chosen)


@dataclass
class Path:
    """One run: points x_0 .. x_n, fewer if it diverged, and at all but the last the gradients.

    Attributes:
        points: (n + 1, d).
        observed: (n, d), what the oracle returned.
        used: (n, d), what the optimizer was given.
        exact: (n, d), the true gradients.
        distances: (n + 1,), how far the points are from the minimum.
        solutions: of the window, after each step with COCO, if they are kept.
    """

    points: Array
    observed: Array
    used: Array
    exact: Array
    distances: Array
    solutions: list[Solution]

    @property
    def errors(self) -> Array:
        """How far each gradient that was used is from the true one."""
        return np.asarray(np.linalg.norm(self.used - self.exact, axis=1))


@dataclass(frozen=True)
class Simulation:
    """Runs by name, and what they were run on: `plain` SGD, with `coco`, with `gaussian`."""

    settings: Settings
    problem: Problem
    paths: dict[str, Path]

    @property
    def distances(self) -> dict[str, Array]:
        """Distance to the minimum, also of the average of the later half of SGD's iterates."""
        points = self.paths["plain"].points
        k, sums = np.arange(len(points)), np.cumsum(np.insert(points, 0, 0.0, axis=0), axis=0)
        means = (sums[k + 1] - sums[k // 2]) / (k + 1 - k // 2)[:, None]
        average = np.asarray(np.linalg.norm(means - self.problem.minimizer, axis=1))
        return {"average": average, **{n: path.distances for n, path in self.paths.items()}}

    @property
    def compared(self) -> slice:
        """The second half of the steps that all runs took: one of them may have been stopped."""
        common = min(len(path.observed) for path in self.paths.values())
        return slice(common // 2, common + 1)

    def changes(self) -> dict[str, float]:
        """Return by how much the mean distance differs from SGD's, as a share of that."""
        means = {n: float(np.mean(values[self.compared])) for n, values in self.distances.items()}
        plain = max(means.pop("plain"), 1e-300)
        return {name: mean / plain - 1.0 for name, mean in means.items()}


def simulate(settings: Settings, *, solved: bool = True) -> Simulation:
    """Run SGD alone and denoised, from the same start and on the same noise.

    COCO_K is given the bounds of the settings; the Gaussian model learns from a window of the same
    K. The solutions of COCO's windows are kept if `solved`.
    """
    problem = OBJECTIVES[settings.objective].problem(settings.noise)
    L = settings.L * problem.L
    model = Cocoercive(L, settings.mu * L, tol=TOLERANCE)
    denoisers = {
        "plain": None,
        "coco": Denoiser(model=model, window=settings.window),
        "gaussian": Denoiser(model=Gaussian(), window=settings.window),
    }
    paths = {
        name: _path(settings, problem, denoiser, solved=solved and name == "coco")
        for name, denoiser in denoisers.items()
    }
    return Simulation(settings, problem, paths)


def over_seeds(settings: Settings, *, patience: float = math.inf) -> dict[str, Array]:
    """Return the changes for each seed. After `patience` seconds no further seed is begun."""
    deadline = time.monotonic() + patience
    changes: list[dict[str, float]] = []
    while len(changes) < SEEDS and not (changes and time.monotonic() > deadline):
        changes.append(simulate(replace(settings, seed=len(changes) + 1), solved=False).changes())
    return {name: np.array([each[name] for each in changes]) for name in changes[0]}


def _path(settings: Settings, problem: Problem, denoiser: Denoiser | None, *, solved: bool) -> Path:
    observed: list[Array] = []
    used: list[Array] = []
    solutions: list[Solution] = []
    step, rng = settings.step / problem.L, np.random.default_rng(settings.seed)
    # Further coordinates, if there are any, begin at the distance of the second.
    x = np.append(START, np.full(problem.dimension - 2, START[1]))
    visited = [x]
    with warnings.catch_warnings():
        # The page shows the status of the step it shows, which says the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        while len(used) < settings.steps and np.abs(x).max() <= FAR:
            observed.append(problem.oracle(x, rng))
            used.append(observed[-1] if denoiser is None else denoiser(x, observed[-1]))
            if denoiser is not None and solved:
                solutions.append(denoiser.solution)
            x = x - step * used[-1]
            visited.append(x)
    points = np.array(visited)
    return Path(
        points=points,
        observed=np.array(observed),
        used=np.array(used),
        exact=problem.gradient(points[:-1]),
        distances=np.linalg.norm(points - problem.minimizer, axis=1),
        solutions=solutions,
    )
