"""Run experiments, save what came out, and put it on one page.

For each experiment, in `OUT/<name>/`: the units as they are computed, then `curves.csv`, the
figure and `claims.json`. The page is made from these files alone.
"""

import difflib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from joblib import cpu_count

from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments import ExperimentError, summary, units
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.experiment import Config, Entry, Experiment, Result
from coco_denoiser.paper.experiments.page import page
from coco_denoiser.paper.experiments.results import load, save_curves, save_run, save_the_rest
from coco_denoiser.paper.files import prepare_folder, write_bytes
from coco_denoiser.paper.problems import DatasetError

PAGE = "index.html"


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
            raise ExperimentError(
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
    jobs = options.jobs or int(cpu_count())
    figures = {number for experiment in selected for number in experiment.numbers}
    beyond = sum(not experiment.numbers for experiment in selected)
    size = "quick" if options.quick else "full"
    print(
        f"coco-denoiser {__version__}: {len(figures)} figures of the paper and {beyond} "
        f"experiments of our own, at {size} size, on {jobs} cores."
    )
    begun = time.perf_counter()
    try:
        path, missing = _run(selected, options, jobs)
    except KeyboardInterrupt:
        kept = sum(1 for e in selected for _ in (options.out / e.name).rglob("*.npz"))
        units_kept = f"{kept} units of work are" if kept != 1 else "1 unit of work is"
        print(
            f"\nStopped. {units_kept} kept in {options.out}; the same command resumes from there."
        )
        raise
    entries = [entry for e in selected if (entry := load(e, options.out)) is not None]
    lines = summary.every_claim(entries) if options.verbose else []
    lines += ["", *summary.lines(entries)]
    lines += [f"Missing: {reason}" for reason in dict.fromkeys(missing.values())]
    print("\n".join(lines))
    print(f"Page: {path}  ({time.perf_counter() - begun:.0f} s)")
    return path


def _run(
    selected: Sequence[Experiment], options: Options, jobs: int
) -> tuple[Path, dict[str, str]]:
    """Compute and draw; return the page and what is missing, with the reason."""
    missing: dict[str, str] = {}
    computed: dict[str, Config] = {}
    with ExitStack() as stack:
        cluster = stack.enter_context(units.cluster(options.dask)) if options.dask else None
        runner = units.runner(jobs, cluster)
        for experiment in selected:
            config = configuration(experiment, quick=options.quick, seed=options.seed)
            try:
                experiment.check(config)
                _compute(experiment, config, options, runner)
                computed[experiment.name] = config
            except DatasetError as error:
                missing[experiment.name] = str(error)
    if not computed:
        raise ExperimentError(next(iter(missing.values())))
    with _stage("drawing", len(computed)) as advance:
        calls = [(name, config, options.out / name) for name, config in computed.items()]
        for done, _ in enumerate(units.spread(save_the_rest, calls, jobs), 1):
            advance(done)
        path = write_page(options.out, missing)
    return path, missing


def _compute(
    experiment: Experiment,
    config: Config,
    options: Options,
    runner: units.Runner,
) -> None:
    """Complete the units of an experiment and save its curves, and how long that took."""
    begun = time.perf_counter()
    folder = options.out / experiment.name
    store = units.Store(folder / "units", experiment.name, config)
    label = f"computing {experiment.name}"
    with _stage(label, experiment.count(config)) as advance:
        found = units.complete(experiment, config, store, runner, advance)
    save_curves(Result(config, experiment.gather(config, found)), folder)
    save_run(folder, time.perf_counter() - begun)


def write_page(out: Path, missing: dict[str, str]) -> Path:
    """Write the page of everything that lies in `out`, and of what is missing."""
    entries: list[Entry | tuple[Experiment, str]] = []
    for name, experiment in EXPERIMENTS.items():
        entry = load(experiment, out)
        if entry is not None:
            entries.append(entry)
        elif name in missing:
            entries.append((experiment, missing[name]))
    path = out / PAGE
    write_bytes(path, page(entries).encode())
    return path


@contextmanager
def _stage(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Say what is being done and how long it took; yield what shows the progress on a terminal."""
    begun, terminal = time.perf_counter(), sys.stdout.isatty()
    print(f"{name} …", end="", flush=True)

    def advance(done: int) -> None:
        if terminal and done:
            left = (time.perf_counter() - begun) * (total - done) / done
            print(f"\r{name} … {done} of {total}, {left:.0f} s left   ", end="", flush=True)

    yield advance
    start = f"\r{name} …" if terminal else ""
    print(f"{start} {time.perf_counter() - begun:.1f} s{' ' * 20 * terminal}")
