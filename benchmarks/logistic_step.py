"""One step of SGD+COCO_8 in logistic regression: oracle, denoiser and optimizer together.

Against the same step with the denoiser as the paper describes it and its authors published it:
the matrix A is formed, its norm comes from a decomposition, the proximal step loops over pairs,
and the iteration ends when the dual objective falls by less than 1e-5.
"""

import time

import numpy as np

from benchmarks.measure import save, table
from coco_denoiser import Denoiser
from coco_denoiser.paper.optimizers import SGD, DenoiserLike
from coco_denoiser.paper.problems import Dataset, DatasetError, LogisticRegression, datasets
from coco_denoiser.typing import Array

WINDOW = 8
PUBLISHED_TOLERANCE = 1e-5
# Data set -> steps timed with ours and with the dense method.
SIZES = {"fourclass": (2000, 40), "breast_cancer": (2000, 10), "mushrooms": (1000, 2)}


class DenseFDPG:
    """The paper's Algorithm 1 on the last K observations, with A as a matrix."""

    def __init__(self, L: float, window: int, tol: float = PUBLISHED_TOLERANCE) -> None:
        self.L, self.window, self.tol = L, window, tol
        self.points: list[Array] = []
        self.gradients: list[Array] = []

    def __call__(self, x: Array, g: Array) -> Array:
        """Take an observation and return its gradient, denoised."""
        self.points = [*self.points, x][-self.window :]
        self.gradients = [*self.gradients, g][-self.window :]
        X, G = np.array(self.points), np.array(self.gradients)
        K, d = X.shape
        if K == 1:
            return g
        pairs = [(k, m) for k in range(K) for m in range(k + 1, K)]
        A, c, r = np.zeros((len(pairs) * d, K * d)), np.zeros(len(pairs) * d), []
        for e, (k, m) in enumerate(pairs):
            rows = slice(e * d, (e + 1) * d)
            A[rows, k * d : (k + 1) * d] = np.eye(d)
            A[rows, m * d : (m + 1) * d] = -np.eye(d)
            c[rows] = G[k] - self.L / 2 * X[k] - (G[m] - self.L / 2 * X[m])
            r.append(self.L / 2 * float(np.linalg.norm(X[k] - X[m])))
        s = self._minimise(A, c, r, d)
        return np.asarray(G[-1] - (A.T @ s)[-d:])

    def _minimise(self, A: Array, c: Array, r: list[float], d: int) -> Array:
        step = 1 / np.linalg.norm(A, 2) ** 2
        s = np.zeros(c.size)
        y, t, value = s, 1.0, 0.0
        while True:
            new = y - step * (A @ (A.T @ y)) + step * c
            penalty = 0.0
            for e, radius in enumerate(r):
                rows = slice(e * d, (e + 1) * d)
                length = float(np.linalg.norm(new[rows]))
                new[rows] *= 1 - step * radius / length if length > step * radius else 0.0
                penalty += radius * float(np.linalg.norm(new[rows]))
            dual = 0.5 * float(np.sum((A.T @ new) ** 2)) - float(c @ new) + penalty
            following = (1 + np.sqrt(1 + 4 * t * t)) / 2
            y = new + (t - 1) / following * (new - s)
            s, t = new, following
            if abs(value - dual) <= self.tol:
                return s
            value = dual


def main() -> None:
    """Print the table."""
    rows, results = [], {}
    for name, (ours, theirs) in SIZES.items():
        try:
            data: Dataset = getattr(datasets, name)()
        except DatasetError as error:
            print(f"{name} is left out: {error}")
            continue
        weight = 0.0 if name == "fourclass" else 1.00001 / np.sqrt(len(data.labels))
        problem = LogisticRegression(data.features, data.labels, regularization=weight)
        fast = _seconds_a_step(problem, Denoiser(problem.L, WINDOW), ours)
        slow = _seconds_a_step(problem, DenseFDPG(problem.L, WINDOW), theirs)
        results[name] = {"ours": fast, "dense": slow, "d": problem.dimension}
        cells = (f"{1e6 * fast:.0f} us", f"{1e3 * slow:.1f} ms", f"{slow / fast:.0f}")
        rows.append([f"{name} (d={problem.dimension})", *cells])
    print(table(["SGD+COCO_8 step", "Denoiser", "dense FDPG", "times faster"], rows))
    print(f"\nRaw numbers: {save('logistic-step', results)}")


def _seconds_a_step(problem: LogisticRegression, denoiser: DenoiserLike, steps: int) -> float:
    """Return the mean time of a step, once the window is full."""
    sgd = SGD(1 / problem.L, denoiser=denoiser)
    rng = np.random.default_rng(0)
    x: Array = np.ones(problem.dimension)
    for _ in range(WINDOW):
        x = sgd.advance(problem, x, rng)
    begun = time.perf_counter()
    for _ in range(steps):
        x = sgd.advance(problem, x, rng)
    return (time.perf_counter() - begun) / steps
