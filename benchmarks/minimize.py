"""minimize() untuned against SGD's tail average at 1/L, and against the best tuned method.

The settings of `coco_denoiser.descent` were chosen on the first list of problems, those of the
experiments `rivals` and `gaussian`; the second list played no part in that.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits, load_wine

from benchmarks.measure import save, table
from coco_denoiser import minimize
from coco_denoiser.experiments import logistic
from coco_denoiser.problems import LogisticRegression, Quadratic
from coco_denoiser.problems.datasets import breast_cancer, fourclass, mushrooms
from coco_denoiser.typing import Float64

RUNS = 8
STEPS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)  # of the tuning, in multiples of 1/L
MOMENTA = (0.0, 0.5, 0.9)
TARGETS = (0.7, 1.2)  # the geometric mean, and the worst, with L given, over both lists

Oracle = Callable[[Float64, np.random.Generator], Float64]


class Case(NamedTuple):
    """A problem, its noisy gradient, where to start and how many calls there are."""

    name: str
    L: float
    excess: Callable[[Float64], Float64]
    oracle: Oracle
    start: Float64
    calls: int


def chosen() -> Iterator[Case]:
    """Problems on which the settings were chosen."""
    yield _quadratic(
        "paper's quadratic", np.asarray(Quadratic.spaced(10).hessian), 10.0, 100.0, 100
    )
    yield _quadratic(
        "the same, 150 calls", np.asarray(Quadratic.spaced(10).hessian), 10.0, 100.0, 150
    )
    Q = np.linalg.qr(np.random.default_rng(5).normal(size=(10, 10)))[0]
    yield _quadratic(
        "curvatures 1 to 0.001", (Q * np.geomspace(1, 1e-3, 10)) @ Q.T, 10.0, 100.0, 150
    )
    for name, calls in (("fourclass", 400), ("mushrooms", 300), ("breast-cancer", 300)):
        problem = logistic.regression(name, regularized=name != "fourclass")
        yield _examples(f"{name}, as in rivals", problem, 1, 1.0, calls)
    for name, load, start, calls in (
        ("breast-cancer", breast_cancer, 1.0, 300),
        ("fourclass", fourclass, 1.0, 400),
        ("mushrooms", mushrooms, 0.5, 300),
    ):
        data = load()
        A = np.asarray(data.features, np.float64)
        if name == "breast-cancer":
            A = _standardised(A)
        if name == "fourclass":
            A = A / np.abs(A).max(axis=0)
        problem = LogisticRegression(A, data.labels, regularization=1e-3)
        for batch in (1, 16):
            yield _examples(f"{name}, batches of {batch}", problem, batch, start, calls)


def kept_aside() -> Iterator[Case]:
    """Problems that played no part in choosing."""
    rng = np.random.default_rng(11)
    C = rng.normal(size=(500, 1)) + 0.5 * rng.normal(size=(500, 15))
    odds = 1 / (1 + np.exp(-C @ rng.normal(size=15)))
    labels = np.where(rng.random(500) < odds, 1.0, -1.0)
    correlated = LogisticRegression(C, labels, regularization=1e-3)
    yield _examples("correlated features, batches of 2", correlated, 2, 1.0, 400)
    yield _quadratic("50 curvatures, 1 to 0.01", np.geomspace(1, 0.01, 50), 1.0, 10.0, 300)
    features, classes = load_wine(return_X_y=True)
    wine = LogisticRegression(
        _standardised(features), np.where(classes == 0, 1.0, -1.0), regularization=1e-2
    )
    yield _examples("wine, single examples", wine, 1, 1.0, 300)
    features, classes = load_digits(return_X_y=True)
    digits = LogisticRegression(
        features / 16, np.where(classes < 5, 1.0, -1.0), regularization=1e-3
    )
    yield _examples("digits, batches of 4", digits, 4, 0.1, 400)


def _quadratic(name: str, hessian: Float64, noise: float, start: float, calls: int) -> Case:
    problem = Quadratic(hessian, noise_std=noise)
    x0 = np.full(problem.dimension, start)
    return Case(name, problem.L, problem.value, problem.oracle, x0, calls)  # type: ignore[arg-type]


def _examples(name: str, problem: LogisticRegression, batch: int, start: float, calls: int) -> Case:
    least = problem.value(problem.minimizer)

    def oracle(x: Float64, rng: np.random.Generator) -> Float64:
        if x.ndim == 2:
            return np.stack([oracle(row, rng) for row in x])
        index = rng.integers(problem.size, size=batch)
        return np.asarray(problem.example_gradient(x, index).mean(axis=0))

    x0 = np.full(problem.dimension, start)
    return Case(name, problem.L, lambda x: np.asarray(problem.value(x) - least), oracle, x0, calls)


def _standardised(A: Float64) -> Float64:
    spread = A.std(axis=0)
    return np.asarray((A - A.mean(axis=0)) / np.where(spread == 0, 1, spread))


def _tail(case: Case, step: float, beta: float, seed: int) -> float:
    """Mean excess of the tail average of SGD, or of the heavy ball, over RUNS runs."""
    rng = np.random.default_rng(seed)
    x = np.tile(case.start, (RUNS, 1))
    velocity, total = np.zeros_like(x), np.zeros_like(x)
    with np.errstate(all="ignore"):
        for k in range(1, case.calls + 1):
            velocity = beta * velocity + case.oracle(x, rng)
            x = x - step / case.L * velocity
            if 2 * k >= case.calls:
                total += (x - total) / (k - (case.calls + 1) // 2 + 1)
        found = float(np.mean(case.excess(total)))
    return found if np.isfinite(found) else np.inf


def _ours(case: Case, L: float | None, seed: int) -> float:
    rng = np.random.default_rng(seed)
    ends = [minimize(case.oracle, case.start, case.calls, L=L, rng=rng).x for _ in range(RUNS)]
    return float(np.mean([case.excess(x) for x in ends]))


def measure(case: Case) -> dict[str, float | str]:
    """Compare on one problem; tuning has noise of its own."""
    settings = [(step, beta) for step in STEPS for beta in MOMENTA]
    best = min(settings, key=lambda setting: _tail(case, setting[0], setting[1], 1))
    sgd = _tail(case, 1.0, 0.0, 0)
    return {
        "name": case.name,
        "with L": _ours(case, case.L, 0) / sgd,
        "without L": _ours(case, None, 0) / sgd,
        "tuned": _tail(case, best[0], best[1], 0) / sgd,
    }


def main() -> None:
    columns, results = ("with L", "without L", "tuned"), {}
    for title, cases in (("chosen on", chosen()), ("kept aside", kept_aside())):
        rows = [measure(case) for case in cases]
        results[title] = rows
        body = [[str(row["name"]), *(f"{row[name]:.2f}" for name in columns)] for row in rows]
        for what, function in (("geometric mean", _geometric), ("worst", max)):
            body.append(
                [what, *(f"{function([float(row[name]) for row in rows]):.2f}" for name in columns)]
            )
        print(table((f"{title}: excess over SGD's tail average at 1/L", *columns), body), "\n")
    save("minimize", results)
    every = [float(row["with L"]) for rows in results.values() for row in rows]
    for name, value, target in zip(
        ("geometric mean", "worst"), (_geometric(every), max(every)), TARGETS, strict=True
    ):
        verdict = "met" if value <= target else "MISSED"
        print(f"with L, {name} over all problems: {value:.2f}, target {target}: {verdict}")
    print("tuned: the best of SGD and the heavy ball, tail average, over 24 settings")


def _geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))
