"""Solve many windows of every family, and check each answer by a dual bound of our own.

    python -m tests.fuzz --windows 100000 --seed 1

prints, family by family, how many windows were solved, given up, wrong, slow and raised. An answer
is wrong if it says that it is solved, and extended precision says that it is not: nothing of the
package's own certificate is used. A window is slow if it takes more than SLOW times the median
of its K, and raises if it ends with an exception or a warning. `--only FAMILY NUMBER` solves a
single one of them again, and shows it.
"""

# ruff: noqa: T201
import argparse
import multiprocessing
import sys
import time
import warnings
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import coco_denoiser as coco
from tests.families import FAMILIES, Case

TOL = 1e-9
SLOW = 100.0
SIZES, DIMENSIONS = (3, 4, 6, 8, 12, 16, 24, 32, 48), (1, 2, 3, 5, 10, 40)
_SHARES = (0.16, 0.16, 0.16, 0.16, 0.12, 0.12, 0.06, 0.04, 0.02)  # large ones take most of the time
_PIECE = 25  # windows that a process is given at once
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
    return FAMILIES[name](rng, int(rng.choice(SIZES, p=_SHARES)), int(rng.choice(DIMENSIONS)))


def judge(case: Case, solution: coco.Solution, tol: float = TOL) -> Verdict:
    """Recompute gap and violation in extended precision, from the observations alone.

    Allowed are tol, twice over for the gap, and the rounding to float64 of the two points of a
    pair: of their gradients, and of c times where they are.
    """
    x, g, theta = (
        a.astype(np.longdouble) for a in (case.points, case.gradients, solution.gradients)
    )
    c, r = (np.longdouble(case.L) + case.mu) / 2, (np.longdouble(case.L) - case.mu) / 2
    D, n = _differences(len(x)), 1 / case.variances.astype(np.longdouble)[:, None]
    S, P = _covariance(np.eye(x.shape[1]) if case.covariance is None else case.covariance)
    h, phi = g - c * x, theta - c * x
    v, rho = D @ phi, r * _norms(D @ x)
    size = _norms(g) + _norms(theta) + abs(c) * _norms(x)
    rounding = 16 * EPS * (abs(D) @ size)
    excess = (_norms(v) - rho) / np.maximum(tol * rho + rounding, np.finfo(float).tiny)
    y = _forces(h, n, S, P, solution.multipliers.astype(np.longdouble))
    unbalanced = n * ((h - phi) @ P) - D.T @ y
    gap = np.sum(rho * _norms(y) - np.sum(y * v, axis=1))
    gap += 0.5 * np.sum(unbalanced * (unbalanced @ S) / n)
    value = 0.5 * np.sum(n * (h - phi) * ((h - phi) @ P))
    allowed = 2 * tol * value + np.sum(rounding * _norms(y))
    allowed += 0.5 * np.sum(n * np.abs(P).max() * (EPS * size[:, None]) ** 2)
    return Verdict(float(gap / allowed) if allowed > 0 else 0.0, float(excess.max(initial=0.0)))


def _differences(K: int) -> NDArray[np.longdouble]:
    """Return the matrix, (pairs, K), that makes differences of rows."""
    first, second = np.triu_indices(K, 1)
    one = np.eye(K, dtype=np.longdouble)
    return np.asarray(one[first] - one[second])


def _covariance(covariance: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a covariance and its inverse, (d, d), the latter refined by Newton's method."""
    S = (np.diag(covariance) if covariance.ndim == 1 else covariance).astype(np.longdouble)
    P = np.linalg.inv(S.astype(np.float64)).astype(np.longdouble)
    for _ in range(3):
        P = P @ (2 * np.eye(len(S)) - S @ P)
    return S, P


def _norms(a: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    return np.asarray(np.sqrt(np.sum(a * a, axis=1)))


def _forces(
    h: NDArray[np.longdouble],
    n: NDArray[np.longdouble],
    S: NDArray[np.longdouble],
    P: NDArray[np.longdouble],
    lam: NDArray[np.longdouble],
) -> NDArray[np.longdouble]:
    """Return forces on the pairs, (pairs, d), that are in balance where the multipliers say.

    Points with infinite multipliers between them move as one.
    """
    together = np.isinf(lam) | np.eye(len(h), dtype=bool)
    G, D = np.unique(together, axis=0).astype(np.longdouble), _differences(len(h))
    finite = np.where(np.isinf(lam), 0, lam)
    pull, weight, pulls = G @ finite @ G.T, (G @ n)[:, 0], finite[np.triu_indices(len(h), 1)]
    spread, axes = np.linalg.eigh(S.astype(np.float64))
    if np.ptp(spread) == 0:
        axes = np.eye(len(S))
    hat, y = 0 * h, 0 * D @ h
    for _ in range(3):  # strong pulls magnify the rounding of what they pull: again, on the rest
        total = G @ (n * ((h - hat) @ P) - D.T @ y) @ axes
        for share in np.unique(spread):
            here = spread == share
            total[:, here] = _stationary(pull, weight / share, total[:, here])
        move = G.T @ total @ axes.T
        hat += move
        y += pulls[:, None] * (D @ move)
    inside = D @ (n * ((h - hat) @ P) - D.T @ y) / (abs(D) @ together.sum(axis=1) / 2)[:, None]
    return np.asarray(np.where(together[np.triu_indices(len(h), 1)][:, None], inside, y))


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


def attempt(case: Case, method: str = "auto") -> tuple[coco.Solution, float]:
    """Solve a window, and say how many seconds of processor time that took."""
    start = time.process_time()
    solution = case.solve(method=method, tol=TOL, throw=False)
    return solution, time.process_time() - start


class Outcome(NamedTuple):
    """What became of one window."""

    name: str
    number: int
    K: int
    seconds: float
    verdict: str
    detail: str


def examine(window: tuple[str, int, int]) -> Outcome:
    """Solve one window, (family, seed, number), and judge the answer."""
    case = draw(*window)
    try:
        solution, seconds = attempt(case)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other windows are tried too
        return Outcome(window[0], window[2], len(case.points), 0.0, "raised", repr(error))
    if not solution.status.success:
        verdict, detail = "given up", f"gap {solution.gap:.1e}"
    else:
        found = judge(case, solution)
        verdict, detail = ("wrong", str(found)) if found.wrong else ("solved", "")
    return Outcome(window[0], window[2], len(case.points), seconds, verdict, detail)


def _prepare() -> None:
    """Make warnings errors, and solve a few windows before anything is timed."""
    warnings.simplefilter("error")
    for K in SIZES:
        attempt(FAMILIES["grid"](np.random.default_rng(0), K, 3))


def report(outcomes: list[Outcome], seed: int) -> str:
    """Return the windows to look at, then a table with a line for every family and one for all."""
    times = defaultdict(list)
    for outcome in outcomes:
        times[outcome.K].append(outcome.seconds)
    limits = {K: SLOW * float(np.median(seconds)) for K, seconds in times.items()}
    counts, lines = {name: Counter[str]() for name in (*FAMILIES, "all")}, []
    for name, number, K, seconds, verdict, detail in outcomes:
        found = [verdict, *["slow"] * (seconds > limits[K])]
        for row in (name, "all"):
            counts[row].update(["windows", *found])
        if found != ["solved"]:
            again = f"--seed {seed} --only {name!r} {number}"
            lines.append(f"{', '.join(found)}: {again}: K = {K}, {seconds:.2f} s, {detail}")
    columns = ("windows", "solved", "given up", "wrong", "slow", "raised")
    lines += ["| family | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for name, count in counts.items():
        if count:
            lines.append(f"| {name} | " + " | ".join(f"{count[c]:,}" for c in columns) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the windows, print the table, and return 1 if an answer was wrong or one raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--windows", type=int, default=2000, help="how many, in all")
    parser.add_argument("--seed", type=int, default=1, help="of the windows")
    parser.add_argument("--only", nargs=2, metavar=("FAMILY", "NUMBER"), help="show this one")
    options: Any = parser.parse_args(arguments)
    if options.only:
        case = draw(options.only[0], options.seed, int(options.only[1]))
        solution, seconds = attempt(case)
        print(f"K, d = {case.points.shape}, {seconds:.4f} s, {judge(case, solution)}\n{solution}")
        return 0
    names, outcomes = list(FAMILIES), list[Outcome]()
    todo = [(names[i % len(names)], options.seed, i // len(names)) for i in range(options.windows)]
    with multiprocessing.get_context("spawn").Pool(None, _prepare) as pool:
        for outcome in pool.imap_unordered(examine, todo, _PIECE):
            outcomes.append(outcome)
            if len(outcomes) % 1000 == 0:
                print(f"{len(outcomes):,} of {len(todo):,} windows", file=sys.stderr, flush=True)
    print(report(outcomes, options.seed))
    return int(any(outcome.verdict in ("wrong", "raised") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
