"""minimize() untuned against SGD's tail average at 1/L, and against the best tuned method.

The settings of `coco_denoiser.descent` were chosen on the first two lists of problems; the others
played no part in that. Most are those of the experiments `rivals` and `gaussian`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from sklearn.datasets import load_digits, load_wine

from benchmarks.measure import save, table
from coco_denoiser import minimize
from coco_denoiser.experiments import logistic
from coco_denoiser.experiments.gaussian_problems import CHOSEN, HELD_OUT, Scenario, scenario
from coco_denoiser.optimizers import IGT, Adam, HeavyBall, Optimizer, TailAverage
from coco_denoiser.problems import LogisticRegression, Quadratic
from coco_denoiser.problems.base import Problem
from coco_denoiser.typing import Array

RUNS = 16
STEPS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)  # of the tuning, in textbook steps
METHODS = (  # with their second parameter: momentum, or IGT's tail
    *(("heavy ball", beta) for beta in (0.0, 0.5, 0.9)),
    *(("Adam", beta) for beta in (0.5, 0.9)),
    *(("IGT", share) for share in (0.5, 1.0)),
)
TARGETS = (0.7, 1.2)  # the geometric mean, and the worst, with L given
_MOVING = ("optimum drifts", "optimum jumps")


def chosen() -> Iterator[Scenario]:
    """Problems on which the settings were chosen."""
    quadratic = Quadratic.spaced(10, noise_std=10.0)
    yield _problem("quadratic, 100 calls", quadratic, quadratic.oracle, 100.0, 100)
    for name, calls in (("fourclass", 400), ("mushrooms", 300), ("breast-cancer", 300)):
        problem = logistic.regression(name, regularized=name != "fourclass")
        yield _problem(f"{name}, as in rivals", problem, problem.oracle, 1.0, calls)
    yield from map(scenario, CHOSEN)


def chosen_moving() -> Iterator[Scenario]:
    """Problems whose minimum moves, on which the settings were chosen."""
    rng = np.random.default_rng(5)
    few, many = rng.standard_normal(6), rng.standard_normal(20)
    flat, round_ = np.geomspace(1, 0.1, 6), np.linspace(2, 0.4, 20)
    yield _moving("drifts", flat, 5.0, 30.0, 300, lambda k: -0.3 * k * few)
    yield _moving("drifts slowly", flat, 5.0, 30.0, 300, lambda k: 0.03 * k * few)
    yield _moving("swings", round_, 20.0, 50.0, 400, lambda k: 40 * np.sin(k / 60) * many)
    yield _moving("jumps early", flat, 5.0, 30.0, 300, lambda k: 30.0 * (k >= 100) * few)
    yield _moving("jumps late", round_, 20.0, 50.0, 300, lambda k: 30.0 * (k >= 240) * many)


def kept_aside() -> Iterator[Scenario]:
    """Problems that played no part in choosing."""
    rng = np.random.default_rng(11)
    C = rng.normal(size=(500, 1)) + 0.5 * rng.normal(size=(500, 15))
    odds = 1 / (1 + np.exp(-C @ rng.normal(size=15)))
    labels = np.where(rng.random(500) < odds, 1.0, -1.0)
    yield _batches("correlated features, 2", C, labels, 1e-3, batch=2, calls=400)
    curved = Quadratic(np.geomspace(1, 0.01, 50), noise_std=1.0)
    yield _problem("50 curvatures, 1 to 0.01", curved, curved.oracle, 10.0, 300)
    A, classes = load_wine(return_X_y=True)
    A = (A - A.mean(axis=0)) / A.std(axis=0)
    yield _batches("wine, single", A, np.where(classes == 0, 1.0, -1.0), 1e-2, batch=1, calls=300)
    A, classes = load_digits(return_X_y=True)
    labels = np.where(classes < 5, 1.0, -1.0)
    yield _batches("digits, 4", A / 16, labels, 1e-3, batch=4, calls=400, start=0.1)
    yield from (scenario(name) for name in HELD_OUT if name not in _MOVING)


def moving() -> Iterator[Scenario]:
    """Problems whose minimum moves, and that played no part in choosing."""
    return map(scenario, _MOVING)


def _moving(
    name: str,
    curvature: Array,
    noise: float,
    start: float,
    calls: int,
    minimum: Callable[[int], Array],
) -> Scenario:
    problem = Quadratic(curvature, noise_std=noise)
    return Scenario(
        name=name,
        L=problem.L,
        start=np.full(problem.dimension, start),
        calls=calls,
        reach=start,
        oracle=lambda x, k, rng: problem.oracle(x - minimum(k), rng),
        excess=lambda x, k: np.asarray(problem.value(x - minimum(k))),
    )


def _problem(
    name: str,
    problem: Problem,
    oracle: Callable[[Array, np.random.Generator], Array],
    start: float,
    calls: int,
) -> Scenario:
    x0 = np.full(problem.dimension, start)
    least = float(problem.value(problem.minimizer))
    return Scenario(
        name=name,
        L=problem.L,
        start=x0,
        calls=calls,
        reach=float(np.sqrt(np.mean((x0 - problem.minimizer) ** 2))),
        oracle=lambda x, _, rng: oracle(x, rng),
        excess=lambda x, _: np.asarray(problem.value(x) - least),
    )


def _batches(
    name: str,
    A: Array,
    labels: Array,
    weight: float,
    *,
    batch: int,
    calls: int,
    start: float = 1.0,
) -> Scenario:
    problem = LogisticRegression(A, labels, regularization=weight)

    def oracle(x: Array, rng: np.random.Generator) -> Array:
        drawn = rng.integers(problem.size, size=(len(x), batch))
        means = [problem.example_gradient(p, i).mean(axis=0) for p, i in zip(x, drawn, strict=True)]
        return np.stack(means)

    return _problem(name, problem, oracle, start, calls)


def _mean(excess: Array) -> float:
    found = float(np.mean(excess))
    return found if np.isfinite(found) else np.inf


def _walk(case: Scenario, optimizer: Optimizer, seed: int, *, average: bool = True) -> float:
    """Mean excess of a method's tail average, or of its last point, over RUNS runs."""
    rng, tail = np.random.default_rng(seed), TailAverage(case.calls // 2)
    x, far = np.tile(case.start, (RUNS, 1)), 1e6 * case.reach
    with np.errstate(all="ignore"):
        for k in range(case.calls):
            x = optimizer.step(x, case.oracle(x, k, rng))
            if not np.abs(x).max() < far:  # it has diverged
                return np.inf
            found = optimizer.answer(x)
            found = tail(found) if average else found
        return _mean(case.excess(found, case.calls - 1))


def _ours(case: Scenario, L: float | None, seed: int) -> float:
    rng, ends = np.random.default_rng(seed), []
    for _ in range(RUNS):
        count = itertools.count()

        def gradient(x: Array, rng: np.random.Generator, count: Iterator[int] = count) -> Array:
            return np.asarray(case.oracle(x[None], next(count), rng)[0])

        ends.append(minimize(gradient, case.start, case.calls, L=L, rng=rng).x)
    return _mean(case.excess(np.stack(ends), case.calls - 1))


def _tuned(case: Scenario) -> float:
    """The best of three methods, tuned on other noise: what no one gets without many runs."""

    def walk(setting: tuple[float, str, float], seed: int) -> float:
        step, method, second = setting
        if method == "Adam":
            return _walk(case, Adam(0.1 * case.reach * step, beta1=second), seed)
        if method == "IGT":
            return _walk(case, IGT(step / case.L, tail=second), seed, average=False)
        return _walk(case, HeavyBall(step / case.L, beta=second), seed)

    settings = [(step, *method) for step in STEPS for method in METHODS]
    return walk(min(settings, key=lambda setting: walk(setting, 1)), 0)


def measure(case: Scenario) -> dict[str, float | str]:
    """Compare on one problem; tuning has noise of its own."""
    sgd = _walk(case, HeavyBall(1 / case.L, beta=0.0), 0)
    return {
        "name": case.name,
        "with L": _ours(case, case.L, 0) / sgd,
        "without L": _ours(case, None, 0) / sgd,
        "tuned": _tuned(case) / sgd,
    }


def main() -> None:
    columns, results = ("with L", "without L", "tuned"), {}
    lists = {
        "chosen on": chosen(),
        "chosen on, moving": chosen_moving(),
        "kept aside": kept_aside(),
        "kept aside, moving": moving(),
    }
    for title, cases in lists.items():
        rows = [measure(case) for case in cases]
        results[title] = rows
        body = [[str(row["name"]), *(f"{row[name]:.2f}" for name in columns)] for row in rows]
        for what, function in (("geometric mean", _geometric), ("worst", max)):
            body.append(
                [what, *(f"{function([float(row[name]) for row in rows]):.2f}" for name in columns)]
            )
        print(table((f"{title}: excess over SGD's", *columns), body), "\n", flush=True)
    save("minimize", results)
    names = {case.name for case in chosen()} | set(HELD_OUT)
    both = [row for rows in results.values() for row in rows if row["name"] in names]
    for title, rows in {**results, f"all {len(both)} of rivals and gaussian": both}.items():
        ratios = [float(row["with L"]) for row in rows]
        for name, value, target in zip(
            ("geometric mean", "worst"), (_geometric(ratios), max(ratios)), TARGETS, strict=True
        ):
            verdict = "met" if value <= target else "MISSED"
            print(f"with L, {title}, {name}: {value:.2f}, target {target}: {verdict}")
    print("SGD's: the tail average at 1/L. Tuned: the best of the tail averages of heavy ball and")
    print(f"Adam, and of IGT, over {len(METHODS) * len(STEPS)} settings. Means over {RUNS} runs.")


def _geometric(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))
