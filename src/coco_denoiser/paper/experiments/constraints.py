"""Denoise before the projection: COCO and its baselines under constraints and penalties.

A cell is a problem of `constraint_problems.py` at a step size, in multiples of 1/L, or under
Frank-Wolfe, which has none. The methods meet the same noise. What counts is the suboptimality of
a run, divided by that of the *best baseline* on the same noise, in the geometric mean of the runs.

A setting is a step, a second parameter for families that have one, and an answer: the last
twentieth of the iterates, or the average of their second half. A method's setting is the best of
all on one half of the runs, and is measured on the other half; so is the best baseline, of all
methods without a denoiser in all settings. Chosen and measured on the same runs, the best of many
would look better than it is, and no interval would hold.

A mean over problems is taken run by run. The runs are independent, and their spread gives its
standard error.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from coco_denoiser.paper.experiments.claims import Claim, Judge
from coco_denoiser.paper.experiments.constraint_methods import (
    BASELINE_FAMILIES,
    BASELINES,
    CHOICE,
    FAMILIES,
    FW_BASELINES,
    FW_CHOICE,
    FW_FAMILIES,
    FW_METHODS,
    METHODS,
    SHOWN,
    SLOW,
    optimizer,
)
from coco_denoiser.paper.experiments.constraint_problems import (
    FRANK_WOLFE,
    FREE,
    HELD_OUT,
    SEEN,
    Composite,
    problem,
)
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import Experiment, Unit, generator
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.paper.experiments.paths import short_windows
from coco_denoiser.paper.optimizers import run
from coco_denoiser.typing import Array, Float64

_KINDS = {
    "seen": ("Problems seen before", SEEN),
    "held out": ("Problems held out", HELD_OUT),
    "free": ("Without constraints", FREE),
    "constrained": ("With constraints", SEEN | HELD_OUT),
}
_FAR = 1e6  # where coordinates stop, in distances of the start: such a run has diverged
_USABLE = math.log(3.0)  # above the best baseline
_MOST = math.log(1e6)  # a ratio beyond a million counts as a million
Table: TypeAlias = Mapping[str, Float64]  # by method: numbers (steps, ..., runs)
SHARES = tuple(2.0**-k for k in range(6))  # of the calls, after which suboptimality is recorded


def _ends(of: Composite, path: Array) -> tuple[Array, Array]:
    """Return the suboptimality of a path's last twentieth, and of its second half's average."""
    calls = len(path) - 1
    late = path[-max(calls // 20, 1) :]
    each = of.excess(late.reshape(-1, of.dimension)).reshape(len(late), -1)
    return each.mean(axis=0), of.excess(path[calls // 2 + 1 :].mean(axis=0)).astype(float)


def _details(
    curves: Curves, panel: str, x: Sequence[float], cells: Sequence[Unit], methods: Sequence[str]
) -> Table:
    """Add the suboptimality on one problem by step, for every method; return its logarithms."""
    for method in methods:
        for i, share in enumerate(SHARES):
            title = f"{panel}: excess" + f" after {share:g} of the calls" * (i > 0)
            each = [tuned(cell) for cell in _log_excess(cells, method, i)]
            curves.ratios(title, method, x, np.stack(each, axis=1))
    return {method: _log_excess(cells, method) for method in methods}


def _by_run(cells: Sequence[Unit], key: str, share: int = 0) -> Float64:
    """Return numbers (cells, runs); NaN in cells where the method was not run."""
    found = [np.atleast_2d(unit[key])[share] if key in unit else None for unit in cells]
    runs = next(len(values) for values in found if values is not None)
    return np.stack([np.full(runs, np.nan) if values is None else values for values in found])


def _log_excess(cells: Sequence[Unit], method: str, share: int = 0) -> Float64:
    """Return the logarithms (cells, 2, runs) of the suboptimality of last iterates and averages."""
    both = [_by_run(cells, f"{method} {what}", share) for what in ("last", "average")]
    return np.log(np.clip(np.stack(both, axis=1), 1e-300, 1e300))


def tuned(table: Float64) -> Float64:
    """Return for each half of the runs the row of (settings, runs) that is best on the other."""
    first = np.arange(table.shape[1]) < table.shape[1] // 2
    means = (table[:, half].mean(axis=1) for half in (~first, first))
    early, late = (int(np.nan_to_num(mean, nan=np.inf).argmin()) for mean in means)
    return np.asarray(np.where(first, table[early], table[late]))


def _settings(of: Table, methods: Iterable[str], steps: slice = slice(None)) -> Float64:
    """Return (settings, runs): every method at every step, last iterates and averages."""
    tables = [of[method][steps] for method in methods]
    return np.concatenate([table.reshape(-1, table.shape[-1]) for table in tables])


def _over(mine: Float64, theirs: Float64) -> Float64:
    """Return logarithms of ratios run by run, of as many runs as both have."""
    runs = min(len(mine), len(theirs))
    return np.clip(mine[:runs] - theirs[:runs], -_MOST, _MOST)


def _compare(
    curves: Curves,
    kind: str,
    problems: Sequence[Table],
    families: Mapping[str, Sequence[str]],
    baselines: Sequence[str],
) -> None:
    """Add the families at their best over the best baseline, by problem and in the mean."""
    plain = next(iter(families))
    best, base = (
        [tuned(_settings(of, m)) for of in problems] for m in (baselines, families[plain])
    )
    for family, methods in families.items():
        mine = [tuned(_settings(of, methods)) for of in problems]
        ratios, gains = (
            np.stack([_over(*pair) for pair in zip(mine, theirs, strict=True)], axis=1)
            for theirs in (best, base)
        )
        curves.ratios(f"{kind}: by problem", family, np.arange(1, len(mine) + 1), ratios)
        curves.ratios(f"{kind}: tuned", family, 1.0, ratios.mean(axis=1)[:, None])
        curves.ratios(f"{kind}: over {plain}", family, 1.0, gains.mean(axis=1)[:, None])


def _by_step(curves: Curves, kind: str, steps: Float64, problems: Sequence[Table]) -> None:
    """Add by step, and over all from 1/L on: ratios to the best baseline; how many are usable.

    Add our choice over each baseline too, from 1/L on.
    """
    best, far = [tuned(_settings(of, BASELINES)) for of in problems], steps >= 1.0
    long: dict[str, Float64] = {}
    for family, methods in FAMILIES.items():
        each = [
            [
                _over(tuned(_settings(of, methods, slice(i, i + 1))), theirs)
                for i in range(len(steps))
            ]
            for of, theirs in zip(problems, best, strict=True)
        ]
        ratios = np.array(each).transpose(2, 1, 0)  # (runs, steps, problems)
        usable = np.where(np.isnan(ratios), np.nan, ratios <= _USABLE).mean(axis=2)
        long[family] = ratios[:, far].mean(axis=(1, 2))
        curves.ratios(kind, family, steps, ratios.mean(axis=2))
        curves.add(f"{kind}: usable", family, steps, usable)
        curves.ratios(f"{kind}: from 1/L", family, 1.0, long[family][:, None])
        curves.add(f"{kind}: usable from 1/L", family, 1.0, usable[:, far].mean(axis=1)[:, None])
    for family in BASELINE_FAMILIES:
        gains = (long[CHOICE] - long[family])[:, None]
        curves.ratios(f"{kind}: from 1/L, {CHOICE} over", family, 1.0, gains)


def _supports(curves: Curves, kind: str, steps: Sequence[float], problems: Sequence[Table]) -> None:
    """Add the F1 of the last point's support, by step; and 1 - F1 at the step best for this."""
    for family, methods in FAMILIES.items():
        missed = {method: np.mean([of[method] for of in problems], axis=0) for method in methods}
        each = [tuned(_settings(missed, methods, slice(i, i + 1))) for i in range(len(steps))]
        curves.add(f"{kind}: F1", family, steps, 1.0 - np.stack(each, axis=1))
        curves.add(f"{kind}: 1 - F1", family, 1.0, tuned(_settings(missed, methods))[:, None])


def _list(curves: Curves, panel: str) -> str:
    """Return every series of a panel with its first number and standard error."""
    return "; ".join(_number(name, curves[panel, name]) for name in curves.series(panel))


def _number(name: str, curve: Curve, at: int = 0) -> str:
    return f"{name} {curve.mean[at]:.3g} ± {curve.sem[at]:.2g}"


@dataclass(frozen=True)
class Constraints(Experiment):
    """What is run.

    Attributes:
        slow_runs: the runs of the methods that take the most time, but under Frank-Wolfe.
        steps: step sizes in multiples of 1/L; for Adam, of a tenth of the way to go. Below 0.03
            the baselines are alone, so that none is best at the end of its grid.
        calls: an upper limit on the oracle calls of a run.
        problems: the names of the problems.
    """

    name = "constraints"
    summary = (
        "Denoising before a projection, a proximal step or Frank-Wolfe's corner, against averages, "
        "dual averaging and Adam on 17 problems."
    )
    quick: ClassVar = {"runs": 2, "slow_runs": 2, "calls": 30, "steps": (0.1, 1.0, 10.0)}

    runs: int = 20
    slow_runs: int = 8
    steps: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    calls: int = 2000
    problems: tuple[str, ...] = (*SEEN, *HELD_OUT, *FREE)
    frank_wolfe: tuple[str, ...] = tuple(FRANK_WOLFE)

    def count(self) -> int:
        return len(self._cells())

    def check(self) -> None:
        for name in (*self.problems, *self.frank_wolfe):
            problem(name)

    def _cells(self) -> list[tuple[str, float]]:
        """Return (problem, step) for every cell; the step of Frank-Wolfe is NaN."""
        steps = [(name, step) for name in self.problems for step in self.steps]
        return [*steps, *((name, math.nan) for name in self.frank_wolfe)]

    def unit(self, index: int) -> Unit:
        name, step = self._cells()[index]
        of, free = problem(name), math.isnan(step)
        calls, far = min(of.calls, self.calls), _FAR * of.reach
        exact = of.map.active(of.minimizer[None])[0]
        unit: dict[str, Float64] = {}
        with short_windows() as short:
            for method in FW_METHODS if free else BASELINES if step < 0.03 else METHODS:
                slow = method in SLOW and not free
                runs = min(self.runs, self.slow_runs) if slow else self.runs
                path = run(
                    optimizer(method, of, step),
                    of,
                    np.tile(of.start, (runs, 1)),
                    steps=calls,
                    rng=generator(self, name, 0),
                    prox=None if free else lambda x, s: np.clip(of.map.prox(x, s), -far, far),
                )
                found = of.map.active(path[-1])
                hits = np.sum(found & exact, axis=1)
                ends = [_ends(of, path[: max(int(share * calls), 1) + 1]) for share in SHARES]
                unit[f"{method} last"], unit[f"{method} average"] = np.swapaxes(ends, 0, 1)
                unit[f"{method} F1"] = 2.0 * hits / np.maximum(found.sum(axis=1) + exact.sum(), 1)
            unit["short"] = np.array([float(short())])
        return unit

    def gather(self, units: Sequence[Unit]) -> Curves:
        curves, count = Curves(), len(self.steps)
        logs: dict[str, Table] = {}
        missed: dict[str, Table] = {}
        walks: dict[str, Table] = {}
        for i, name in enumerate(self.problems):
            cells = units[i * count : (i + 1) * count]
            logs[name] = _details(curves, name, self.steps, cells, METHODS)
            missed[name] = {method: 1.0 - _by_run(cells, f"{method} F1") for method in METHODS}
        for name, unit in zip(self.frank_wolfe, units[len(self.problems) * count :], strict=True):
            walks[name] = _details(curves, f"Frank-Wolfe, {name}", (1.0,), [unit], FW_METHODS)
        for kind in _KINDS:
            if names := self._of(kind):
                _compare(curves, kind, [logs[name] for name in names], FAMILIES, BASELINES)
                _by_step(curves, kind, np.array(self.steps), [logs[name] for name in names])
                _supports(curves, kind, self.steps, [missed[name] for name in names])
        if walks:
            _compare(curves, "Frank-Wolfe", list(walks.values()), FW_FAMILIES, FW_BASELINES)
        short = [float(unit["short"][0]) for unit in units]
        curves.exact("windows short of the tolerance", "all", np.arange(len(units)), short)
        return curves

    def _of(self, kind: str) -> list[str]:
        return [name for name in self.problems if name in _KINDS[kind][1]]

    def panels(self, _: Curves) -> list[Panel]:
        def panels(kinds: Sequence[str], what: str, title: str, y: str) -> list[Panel]:
            like = Panel("", "", "step, in 1/L", y, SHOWN, log="x", y_range=(0.0, 1.05))
            shown = [kind for kind in kinds if self._of(kind)]
            return [replace(like, name=k + what, title=title.format(_KINDS[k][0])) for k in shown]

        over = panels(("seen", "held out", "free"), "", "{}", "suboptimality / best baseline's")
        above = [replace(panel, log="xy", y_range=(0.5, 1e3)) for panel in over]
        usable = panels(("constrained", "free"), ": usable", "{}: usable", "share of problems")
        f1 = panels(("constrained",), ": F1", "Support of the last point", "F1")
        return [*above, replace(usable[0], new_row=True), *usable[1:], *f1]

    def claims(self, curves: Curves) -> list[Claim]:
        judge = Judge(self.runs)
        kinds = [kind for kind in ("seen", "held out", "free") if self._of(kind)]
        claims = [claim for kind in kinds for claim in self._kind_claims(curves, judge, kind)]
        if self.frank_wolfe:
            claims.append(
                judge.ratio_at_most(
                    f"Frank-Wolfe, {FW_CHOICE}: it has at most the suboptimality of each problem's "
                    f"best mean of gradients ({_list(curves, 'Frank-Wolfe: tuned')}).",
                    [curves["Frank-Wolfe: tuned", FW_CHOICE]],
                    1.0,
                )
            )
        return claims

    def _kind_claims(self, curves: Curves, judge: Judge, kind: str) -> list[Claim]:
        """Return what is claimed of one kind of problems."""
        start = f"{_KINDS[kind][0]}, {CHOICE}: "
        each = curves[f"{kind}: by problem", CHOICE]
        by_name = "; ".join(_number(name, each, i) for i, name in enumerate(self._of(kind)))
        at_1 = self.steps.index(1.0)
        near = "; ".join(_number(name, curves[kind, name], at_1) for name in FAMILIES)
        against = f"{kind}: from 1/L, {CHOICE} over"
        claims = [
            judge.ratio_at_most(
                f"{start}at its best step it has at most the suboptimality of each problem's best "
                f"baseline, every baseline at its best step ({_list(curves, f'{kind}: tuned')}; "
                f"by problem: {by_name}).",
                [curves[f"{kind}: tuned", CHOICE]],
                1.0,
            ),
            judge.ratio_at_most(
                f"{start}at its best step it has at most half of SGD's suboptimality, last or "
                f"average, at its best step ({_list(curves, f'{kind}: over SGD')}).",
                [curves[f"{kind}: over SGD", CHOICE]],
                0.5,
            ),
            judge.ratio_at_most(
                f"{start}untuned, at 1/L, it is within twice the best baseline, tuned ({near}).",
                [curves[kind, CHOICE].part(slice(at_1, at_1 + 1))],
                2.0,
            ),
            judge.ratio_at_most(
                f"{start}over all steps from 1/L on it has at most the suboptimality of every "
                f"baseline (over these: {_list(curves, against)}; over the best baseline: "
                f"{_list(curves, f'{kind}: from 1/L')}).",
                curves.panel(against),
                1.0,
            ),
        ]
        if kind == "free":  # everything is the support
            return claims
        missed = judge.no_worse(
            f"{start}at the step that is best for this, 1 - F1 of its last point's support is at "
            f"most 0.1 in the mean ({_list(curves, f'{kind}: 1 - F1')}).",
            [curves[f"{kind}: 1 - F1", CHOICE]],
            margin=0.1,
            measure="largest 1 - F1 that the runs leave possible",
        )
        return [*claims, missed]
