"""Solve many windows of every family, and check each answer by a dual bound of our own.

    python -m tests.fuzz --windows 100000 --seed 1

prints, family by family, how many windows were solved, given up, wrong and slow. An answer is
wrong if it says that it is solved, and extended precision says that it is not: nothing of the
package's own certificate is used. A window is slow if it takes more than SLOW times the median
of its K. `--only FAMILY NUMBER` solves a single one of them again, and shows it.
"""

# ruff: noqa: T201
import argparse
import sys
import time
import warnings
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import coco_denoiser as coco
from tests.families import FAMILIES, Case

TOL = 1e-9
SLOW = 100.0
SIZES, DIMENSIONS = (3, 4, 6, 8, 12, 16, 24, 32, 48), (1, 2, 3, 5, 10, 40)
EPS = float(np.finfo(np.float64).eps)


class Verdict(NamedTuple):
    """Gap and violation, each as a multiple of what is allowed."""

    gap: float
    violation: float

    @property
    def wrong(self) -> bool:
        return not max(self.gap, self.violation) <= 1.0


def draw(name: str, seed: int, number: int) -> Case:
    """Return one window of a family; the same arguments give the same window."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(name), number])
    return FAMILIES[name](rng, int(rng.choice(SIZES)), int(rng.choice(DIMENSIONS)))


def judge(case: Case, solution: coco.Solution, tol: float = TOL) -> Verdict:
    """Recompute gap and violation in extended precision, from the observations alone.

    Allowed are tol, twice over for the gap, and rounding to float64: for the gap that of the two
    points of a pair, for the violation that of the largest of all, which everything is an
    average with.
    """
    x, g, theta = (
        a.astype(np.longdouble) for a in (case.points, case.gradients, solution.gradients)
    )
    c, r = (np.longdouble(case.L) + case.mu) / 2, (np.longdouble(case.L) - case.mu) / 2
    K = len(x)
    variance = np.ones(K) if case.noise_variance is None else case.noise_variance
    n = 1 / variance.astype(np.longdouble)
    first, second = np.triu_indices(K, 1)
    h, phi = g - c * x, theta - c * x
    v, rho = phi[first] - phi[second], r * _norms(x[first] - x[second])
    size = _norms(g) + _norms(theta) + abs(c) * _norms(x)
    rounding = 16 * EPS * (size[first] + size[second])
    excess = (_norms(v) - rho) / (tol * rho + 32 * EPS * size.max())
    y = _forces(h, n, solution.multipliers.astype(np.longdouble))
    unbalanced = n[:, None] * (h - phi)
    np.subtract.at(unbalanced, first, y)
    np.add.at(unbalanced, second, y)
    gap = 0.5 * np.sum(unbalanced**2 / n[:, None]) + np.sum(rho * _norms(y) - np.sum(y * v, axis=1))
    value = 0.5 * np.sum(n[:, None] * (h - phi) ** 2)
    allowed = 2 * tol * value + np.sum(rounding * _norms(y)) + 0.5 * np.sum(n * (EPS * size) ** 2)
    return Verdict(float(gap / allowed) if allowed > 0 else 0.0, float(excess.max(initial=0.0)))


def _norms(a: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    return np.asarray(np.sqrt(np.sum(a * a, axis=1)))


def _forces(
    h: NDArray[np.longdouble], n: NDArray[np.longdouble], lam: NDArray[np.longdouble]
) -> NDArray[np.longdouble]:
    """Return forces on the pairs, (pairs, d), that are in balance where the multipliers say.

    Points with infinite multipliers between them move as one.
    """
    K = len(h)
    together = np.isinf(lam) | np.eye(K, dtype=bool)
    leader = together.argmax(axis=1)
    groups, label = np.unique(leader, return_inverse=True)
    finite = np.where(np.isinf(lam), 0, lam)
    pull = np.zeros((len(groups),) * 2, np.longdouble)
    np.add.at(pull, (label[:, None], label), finite)
    weight, mean = (
        np.zeros(len(groups), np.longdouble),
        np.zeros((len(groups), h.shape[1]), np.longdouble),
    )
    np.add.at(weight, label, n)
    np.add.at(mean, label, n[:, None] * h)
    hat = _stationary(pull, weight, mean)[label]
    first, second = np.triu_indices(K, 1)
    y = finite[first, second][:, None] * (hat[first] - hat[second])
    rest = n[:, None] * (h - hat)
    np.subtract.at(rest, first, y)
    np.add.at(rest, second, y)
    inside = together[first, second]
    members = together.sum(axis=1)[first]
    return np.asarray(np.where(inside[:, None], (rest[first] - rest[second]) / members[:, None], y))


def _stationary(
    pull: NDArray[np.longdouble], weight: NDArray[np.longdouble], b: NDArray[np.longdouble]
) -> NDArray[np.longdouble]:
    """Return (diag(weight) + Laplacian(pull))^-1 b, by eliminating one point after another.

    The first of those left is replaced by pulls between the others: nothing is subtracted.
    """
    pull, weight, b = pull.copy(), weight.copy(), b.copy()
    K = len(weight)
    total = np.empty(K, np.longdouble)
    for k in range(K):
        rest = slice(k + 1, None)
        total[k] = weight[k] + pull[k, rest].sum()
        share = pull[k, rest] / total[k]
        pull[rest, rest] += share[:, None] * pull[k, rest]
        weight[rest] += share * weight[k]
        b[rest] += share[:, None] * b[k]
    for k in reversed(range(K)):
        b[k] = (b[k] + pull[k, k + 1 :] @ b[k + 1 :]) / total[k]
    return b


def attempt(case: Case) -> tuple[coco.Solution, float]:
    """Solve a window, and say how many seconds of processor time that took."""
    start = time.process_time()
    solution = coco.solve(
        case.points,
        case.gradients,
        L=case.L,
        mu=case.mu,
        noise_variance=case.noise_variance,
        tol=TOL,
        throw=False,
    )
    return solution, time.process_time() - start


class Run:
    """What became of the windows of every family."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.seconds: defaultdict[int, list[tuple[float, str, int]]] = defaultdict(list)
        self.failures: list[tuple[str, str, int, str]] = []

    def add(self, name: str, number: int) -> None:
        """Solve one window and judge the answer."""
        case = draw(name, self.seed, number)
        solution, seconds = attempt(case)
        self.seconds[len(case.points)].append((seconds, name, number))
        self.counts[name]["windows"] += 1
        if not solution.status.success:
            self.counts[name]["given up"] += 1
            self.failures.append(("given up", name, number, f"gap {solution.gap:.1e}"))
            return
        verdict = judge(case, solution)
        self.counts[name]["wrong" if verdict.wrong else "solved"] += 1
        if verdict.wrong:
            self.failures.append(("wrong", name, number, str(verdict)))

    def slow(self) -> list[tuple[float, str, int]]:
        """Return how many times the median of its K each slow window took, and which it is."""
        found = []
        for times in self.seconds.values():
            median = float(np.median([seconds for seconds, _, _ in times]))
            found += [(t / median, name, number) for t, name, number in times if t > SLOW * median]
        return sorted(found, reverse=True)

    def table(self) -> str:
        """Return a line of Markdown for every family, and one for all."""
        columns = ("windows", "solved", "given up", "wrong", "slow")
        slow = Counter(name for _, name, _ in self.slow())
        lines = ["| family | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
        every: Counter[str] = Counter()
        for name, counts in self.counts.items():
            counts["slow"] = slow[name]
            every.update(counts)
            lines.append(_line(name, [counts[column] for column in columns]))
        lines.append(_line("all", [every[column] for column in columns]))
        return "\n".join(lines)


def _line(name: str, numbers: list[int]) -> str:
    return f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def _show(name: str, seed: int, number: int) -> None:
    case = draw(name, seed, number)
    solution, seconds = attempt(case)
    print(f"{name} {number}: K, d = {case.points.shape}, {seconds:.4f} s, {judge(case, solution)}")
    print(solution)


def main(arguments: list[str] | None = None) -> int:
    """Run the windows, print the table, and return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--windows", type=int, default=2000, help="how many, in all")
    parser.add_argument("--seed", type=int, default=1, help="of the windows")
    parser.add_argument("--only", nargs=2, metavar=("FAMILY", "NUMBER"), help="show this one")
    options: Any = parser.parse_args(arguments)
    if options.only:
        _show(options.only[0], options.seed, int(options.only[1]))
        return 0
    warnings.simplefilter("error")
    run, start, told = Run(options.seed), time.monotonic(), 0.0
    attempt(draw("grid", 0, 0))  # compiled before anything is timed
    with suppress(KeyboardInterrupt):  # what has been solved by then is counted
        for i in range(options.windows):
            run.add(list(FAMILIES)[i % len(FAMILIES)], i // len(FAMILIES))
            now = time.monotonic() - start
            if now - told > (1.0 if sys.stderr.isatty() else 30.0) or i == 0:
                told = now
                end = "\r" if sys.stderr.isatty() else "\n"
                print(
                    f"{i + 1:,} of {options.windows:,} windows, {now:.0f} s ",
                    end=end,
                    file=sys.stderr,
                )
    for kind, name, number, what in run.failures[:200]:
        print(f"{kind}: --seed {options.seed} --only {name!r} {number}: {what}")
    for times, name, number in run.slow()[:20]:
        print(f"slow: --seed {options.seed} --only {name!r} {number}: {times:.0f} times the median")
    print(run.table())
    return int(any(counts["wrong"] for counts in run.counts.values()))


if __name__ == "__main__":
    sys.exit(main())
