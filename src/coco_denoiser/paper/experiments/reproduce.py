"""Run experiments, save what came out, and put it on one page.

For each experiment, in `OUT/<name>/`: the units as they are computed, then `curves.csv`, the
figure and `claims.json`. The page is made from these files alone.
"""

import difflib
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments import results, summary, units
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.experiment import Config, Entry, Experiment
from coco_denoiser.paper.experiments.page import page
from coco_denoiser.paper.files import RefusedError, prepare_folder, write_bytes
from coco_denoiser.paper.problems import DatasetError

PAGE = "index.html"
_DRAWING = 1.0  # seconds that a figure takes
_TOO_EARLY = 0.02  # share of the work from which no time is foretold


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    names: Sequence[str]
    out: Path
    quick: bool = False
    everything: bool = False
    jobs: int | None = None
    seed: int = 0
    dask: str | None = None
    verbose: bool = False


def configuration(experiment: Experiment, *, quick: bool, seed: int) -> Config:
    """Return the paper's configuration, or the quick one, with a seed."""
    return replace(experiment.paper, seed=seed, **(experiment.quick if quick else {}))


def select(names: Sequence[str], *, everything: bool = False) -> list[Experiment]:
    """Return the experiments of these names in the catalogue's order; the paper's without names.

    The first words of several names stand for all of them, as `rivals` for `rivals-quadratic`
    and the others.
    """
    meant = {
        name: [known for known in EXPERIMENTS if f"{known}-".startswith(f"{name}-")]
        if name not in EXPERIMENTS
        else [name]
        for name in names
    }
    for name, found in meant.items():
        if not found:
            near = difflib.get_close_matches(name, EXPERIMENTS, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise RefusedError(
                f"there is no experiment {name!r}: {hint}coco-denoiser list shows them all"
            )
    chosen = {known for found in meant.values() for known in found}
    if not names:
        chosen = {known for known, e in EXPERIMENTS.items() if everything or e.numbers}
    return [e for name, e in EXPERIMENTS.items() if name in chosen]


def describe(experiment: Experiment) -> str:
    """Return its name, its figure in the paper and its size, in three lines."""
    full, quick = (configuration(experiment, quick=q, seed=0).runs for q in (False, True))
    where = summary.name(experiment.numbers) if experiment.numbers else "beyond the paper"
    runs = f"{full} runs; --quick: {quick}" if experiment.quick else "a formula"
    return f"{experiment.name}  ({where})\n    {experiment.summary}\n    {runs}"


def reproduce(options: Options) -> Path:
    """Run the experiments, and return the path of the page."""
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
    selected: Sequence[Experiment], options: Options, jobs: int
) -> tuple[Path, dict[str, str]]:
    """Compute and draw; return the page and what is missing, with the reason."""
    absent: dict[str, str] = {}
    configs: dict[str, Config] = {}
    for experiment in selected:
        config = configuration(experiment, quick=options.quick, seed=options.seed)
        try:
            experiment.check(config)
            configs[experiment.name] = config
        except DatasetError as error:
            absent[experiment.name] = str(error)
    if not configs:
        raise RefusedError(next(iter(absent.values())))
    tasks: deque[units.Task] = deque()
    progress = _Progress(len(configs))
    # The longest first, so that none is left for one core in the end.
    for name in sorted(configs, key=lambda name: -EXPERIMENTS[name].seconds):
        tasks += _Schedule(name, configs[name], options.out, tasks, progress).begin()
    progress.show()
    with units.cluster(options.dask) if options.dask else units.workers(jobs) as executor:
        units.work(tasks, executor, sys.maxsize if options.dask else 2 * jobs)
    return write_page(options.out, absent), absent


class _Schedule:
    """The work of one experiment: its units, then the figure and the claims."""

    def __init__(
        self, name: str, config: Config, out: Path, tasks: deque[units.Task], progress: "_Progress"
    ) -> None:
        self._name, self._config, self._out = name, config, out
        self._tasks, self._progress = tasks, progress
        self._spent, self._left = 0.0, 0
        experiment = EXPERIMENTS[name]
        self._weight = experiment.seconds / experiment.count(config)

    def begin(self) -> list[units.Task]:
        """Return what can be done at once."""
        experiment, store = (
            EXPERIMENTS[self._name],
            results.store(self._name, self._config, self._out),
        )
        found = units.missing(experiment, self._config, store, self._computed)
        self._left = len(found)
        self._progress.expect(self._left * self._weight + _DRAWING)
        return found or [self._last()]

    def _computed(self, seconds: float) -> None:
        self._spent += seconds
        self._left -= 1
        self._progress.advance(self._weight)
        if not self._left:
            self._tasks.appendleft(self._last())

    def _last(self) -> units.Task:
        given = self._name, self._config, self._out, self._spent
        return units.Task(results.finish, given, lambda _: self._finished())

    def _finished(self) -> None:
        self._progress.advance(_DRAWING)
        self._progress.say(f"{self._name}: computed in {self._spent:.1f} s, and drawn")


class _Progress:
    """Tells what is done, line by line, and on a terminal how much is left."""

    def __init__(self, count: int) -> None:
        self._count, self._said = count, 0
        self._total = self._done = 0.0
        self._begun, self._terminal = time.perf_counter(), sys.stdout.isatty()

    def expect(self, seconds: float) -> None:
        """Add to what is to be done."""
        self._total += seconds

    def advance(self, seconds: float) -> None:
        """Take it that so much more is done, in the seconds that were expected."""
        self._done += seconds
        self.show()

    def show(self) -> None:
        """Show on a terminal how much is left."""
        if self._terminal and self._total:
            share = self._done / self._total
            passed = time.perf_counter() - self._begun
            left = f", {passed / share - passed:.0f} s left" if share > _TOO_EARLY else ""
            print(f"\rcomputing and drawing … {share:.0%}{left}   ", end="", flush=True)

    def say(self, line: str) -> None:
        """Print a line, which stays."""
        self._said += 1
        start, end = ("\r", " " * 20) if self._terminal else ("", "")
        print(f"{start}{self._said} of {self._count}: {line}{end}", flush=True)
        self.show()


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
