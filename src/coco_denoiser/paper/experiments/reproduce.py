"""Run experiments, save what came out, and put it on one page.

For each experiment, in `OUT/<name>/`: the units as they are computed, then `curves.csv`, the
figure and `claims.json`. The page is made from these files alone.
"""

import difflib
import os
import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments import results, summary, units
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.experiment import Entry, Experiment
from coco_denoiser.paper.experiments.page import page
from coco_denoiser.paper.files import RefusedError, prepare_folder, write_bytes
from coco_denoiser.paper.problems import DatasetError

PAGE = "index.html"
_DRAWING = 1.0  # seconds that a figure takes
_TOO_EARLY = 0.02  # share of the work from which no time is foretold


def configured(experiment: Experiment, *, quick: bool, seed: int) -> Experiment:
    """Return an experiment of the paper's size, or quick, with a seed."""
    return replace(experiment, seed=seed, **(experiment.quick if quick else {}))


def select(names: Sequence[str], *, everything: bool = False) -> list[Experiment]:
    """Return the experiments of these names in the catalogue's order; the paper's without names.

    The first words of several names stand for all of them, as `rivals` for `rivals-quadratic`
    and the others.
    """
    chosen: set[str] = set()
    for name in names:
        family = [known for known in EXPERIMENTS if known.startswith(f"{name}-")]
        found = [name] if name in EXPERIMENTS else family
        if not found:
            near = difflib.get_close_matches(name, EXPERIMENTS, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise RefusedError(
                f"there is no experiment {name!r}: {hint}coco-denoiser list shows them all"
            )
        chosen.update(found)
    if not names:
        chosen = {known for known, e in EXPERIMENTS.items() if everything or e.numbers}
    return [e for name, e in EXPERIMENTS.items() if name in chosen]


def describe(experiment: Experiment) -> str:
    """Return its name, its figure in the paper and its size, in three lines."""
    where = summary.name(experiment.numbers) or "beyond the paper"
    quick = experiment.quick.get("runs")
    runs = f"{experiment.runs} runs; --quick: {quick}" if quick else "a formula"
    return f"{experiment.name}  ({where})\n    {experiment.summary}\n    {runs}"


def reproduce(options: Namespace) -> Path:
    """Run the experiments that the command line asks for, and return the path of the page."""
    selected = select(options.names, everything=options.everything)
    for folder in (options.out, *(options.out / experiment.name for experiment in selected)):
        prepare_folder(folder)
    jobs = options.jobs or _cores()
    figures = {number for experiment in selected for number in experiment.numbers}
    beyond = sum(not experiment.numbers for experiment in selected)
    size = "quick" if options.quick else "full"
    print(
        f"coco-denoiser {__version__}: {len(figures)} figures of the paper and {beyond} "
        f"experiments of our own, at {size} size, on {jobs} cores."
    )
    begun = time.perf_counter()
    try:
        path, absent = _run(selected, options, jobs)
    except KeyboardInterrupt:
        kept = sum(1 for e in selected for _ in (options.out / e.name).rglob("*.npz"))
        units_kept = f"{kept} units of work are" if kept != 1 else "1 unit of work is"
        print(
            f"\nStopped. {units_kept} kept in {options.out}; the same command resumes from there."
        )
        raise
    entries = [entry for e in selected if (entry := results.load(e, options.out)) is not None]
    lines = summary.every_claim(entries) if options.verbose else []
    lines += ["", *summary.lines(entries)]
    lines += [f"Missing: {reason}" for reason in dict.fromkeys(absent.values())]
    print("\n".join(lines))
    print(f"Page: {path}  ({time.perf_counter() - begun:.0f} s)")
    return path


def _run(
    selected: Sequence[Experiment], options: Namespace, jobs: int
) -> tuple[Path, dict[str, str]]:
    """Compute and draw; return the page and what is missing, with the reason."""
    absent: dict[str, str] = {}
    ready: dict[str, Experiment] = {}
    for chosen in selected:
        experiment = configured(chosen, quick=options.quick, seed=options.seed)
        try:
            experiment.check()
            ready[experiment.name] = experiment
        except DatasetError as error:
            absent[experiment.name] = str(error)
    if not ready:
        raise RefusedError(next(iter(absent.values())))
    # The longest first, so that none is left for one core in the end.
    order = sorted(ready, key=lambda name: -ready[name].seconds)
    stores = {name: units.Store(ready[name], options.out) for name in order}
    missing = {name: store.missing() for name, store in stores.items()}
    weights = {name: ready[name].seconds / ready[name].count() for name in order}
    left = {name: len(calls) for name, calls in missing.items()}
    spent = dict.fromkeys(order, 0.0)
    progress = _Progress(len(order), sum(_DRAWING + left[n] * weights[n] for n in order))

    def last(name: str) -> units.Call:
        return partial(results.finish, ready[name], options.out, spent[name])

    calls = deque(call for name in order for call in missing[name] or [last(name)])
    room = sys.maxsize if options.dask else 2 * jobs
    with units.cluster(options.dask) if options.dask else units.workers(jobs) as executor:
        for answer in units.answers(calls, executor, room):
            if isinstance(answer, str):
                progress.say(f"{answer}: computed in {spent[answer]:.1f} s, and drawn")
                continue
            name, index, unit, seconds = answer
            stores[name].save(index, unit)
            spent[name] += seconds
            left[name] -= 1
            if not left[name]:
                calls.appendleft(last(name))
            progress.advance(weights[name])
    return write_page(options.out, absent), absent


class _Progress:
    """Tells what is done, line by line, and on a terminal how much is left."""

    def __init__(self, count: int, seconds: float) -> None:
        self._count, self._total = count, seconds
        self._said, self._done = 0, 0.0
        self._begun, self._terminal = time.perf_counter(), sys.stdout.isatty()
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        """Take it that so much more is done, and show on a terminal how much is left."""
        self._done += seconds
        if self._terminal:
            share = self._done / self._total
            passed = time.perf_counter() - self._begun
            left = f", {passed / share - passed:.0f} s left" if share > _TOO_EARLY else ""
            print(f"\rcomputing and drawing … {share:.0%}{left}   ", end="", flush=True)

    def say(self, line: str) -> None:
        """Print a line, which stays, for an experiment that is drawn."""
        self._said += 1
        start, end = ("\r", " " * 20) if self._terminal else ("", "")
        print(f"{start}{self._said} of {self._count}: {line}{end}", flush=True)
        self.advance(_DRAWING)


def _cores() -> int:
    """Return how many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def write_page(out: Path, absent: dict[str, str]) -> Path:
    """Write the page of everything that lies in `out`, and of what is missing."""
    entries: list[Entry | tuple[Experiment, str]] = []
    for name, experiment in EXPERIMENTS.items():
        entry = results.load(experiment, out)
        if entry is not None:
            entries.append(entry)
        elif name in absent:
            entries.append((experiment, absent[name]))
    path = out / PAGE
    write_bytes(path, page(entries).encode())
    return path
