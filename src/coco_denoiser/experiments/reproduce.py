"""Run experiments, save what came out, and put it on one page.

For each experiment, in `OUT/<name>/`: the units as they are computed, then `curves.csv`, the
figure and `claims.json`. The page is made from these files alone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coco_denoiser._storage import prepare_folder, write_bytes
from coco_denoiser.experiments import ExperimentError, compilation, units
from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.claims import Verdict
from coco_denoiser.experiments.experiment import Config, Experiment, Result
from coco_denoiser.experiments.page import Entry, page
from coco_denoiser.experiments.results import load, save_curves, save_the_rest
from coco_denoiser.problems import DatasetError

if TYPE_CHECKING:
    from rich.console import Console

PAGE = "index.html"


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    names: Sequence[str]
    out: Path
    quick: bool = False
    jobs: int | None = None
    seed: int = 0
    fresh: bool = False
    dask: str | None = None


def configuration(experiment: Experiment, *, quick: bool, seed: int) -> Config:
    """Return the paper's configuration, or the quick one, with a seed."""
    return replace(experiment.paper, seed=seed, **(experiment.quick if quick else {}))


def select(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments of these names, or all, in the catalogue's order.

    The first words of several names stand for all of them, as `rivals` for `rivals-quadratic`
    and the others.
    """
    meant = {
        name: [known for known in EXPERIMENTS if f"{known}-".startswith(f"{name}-")]
        for name in names
    }
    unknown = [name for name, found in meant.items() if not found]
    if unknown:
        raise ExperimentError(
            f"there is no experiment {unknown[0]!r}; coco-denoiser list names them all"
        )
    chosen = {known for found in meant.values() for known in found}
    return [e for name, e in EXPERIMENTS.items() if name in chosen or not names]


def reproduce(options: Options) -> Path:
    """Run the experiments, and return the path of the page."""
    require_libraries()
    from rich.console import Console

    selected = select(options.names)
    for experiment in selected:
        prepare_folder(options.out / experiment.name)
    # A pipe has no width: wide enough for the table.
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    missing: dict[str, str] = {}
    computed: dict[str, tuple[Config, float]] = {}
    jobs = options.jobs or units.cores()
    with ExitStack() as stack:
        runner = units.processes(jobs)
        if options.dask is not None:
            runner = stack.enter_context(units.cluster(options.dask))
        begun = time.perf_counter()
        if jobs > 1:
            units.spread(compilation.compile_part, [(part,) for part in compilation.PARTS], jobs)
        for experiment in selected:
            config = configuration(experiment, quick=options.quick, seed=options.seed)
            try:
                experiment.check(config)
                computed[experiment.name] = _compute(experiment, config, options, runner, console)
            except DatasetError as error:
                missing[experiment.name] = str(error)
                console.print(f"{experiment.name:24} missing: {error}", soft_wrap=True)
    if len(missing) == len(selected):
        raise ExperimentError("no experiment could be run: its data are missing")
    units.spread(
        save_the_rest,
        [(name, config, options.out / name, took) for name, (config, took) in computed.items()],
        jobs,
    )
    _table(console, options.out, computed)
    path = write_page(options.out, missing)
    console.print(f"\n{time.perf_counter() - begun:.0f} s in all. Page: {path}", soft_wrap=True)
    return path


def _compute(
    experiment: Experiment,
    config: Config,
    options: Options,
    runner: units.Runner,
    console: "Console",
) -> tuple[Config, float]:
    """Complete the units of an experiment and save its curves; return what made them, and when."""
    begun = time.perf_counter()
    folder = options.out / experiment.name
    if options.fresh:
        units.forget(folder / "units")
    store = units.Store(folder / "units", experiment.name, config)
    found = 0
    with _bar(console, experiment.name, experiment.count(config)) as advance:

        def progress(done: int, on_disk: int) -> None:
            nonlocal found
            found = on_disk
            advance(done)

        found_all = units.complete(experiment, config, store, runner, progress)
    save_curves(Result(config, experiment.gather(config, found_all)), folder)
    took = time.perf_counter() - begun
    note = f"  ({found} of {len(found_all)} units were there)" if found else ""
    console.print(f"{experiment.name:24}{took:7.1f} s{note}")
    return config, took


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


def require_libraries() -> None:
    """Say which extra is missing, rather than which module."""
    try:
        import joblib  # noqa: F401
        import matplotlib.figure  # noqa: F401
        import plotly  # noqa: F401
        import rich  # noqa: F401
    except ImportError as error:
        raise ExperimentError(
            f"{error.name} is missing: pip install 'coco-denoiser[experiments]'"
        ) from error


def _table(console: "Console", out: Path, names: Iterable[str]) -> None:
    from rich.table import Table

    table = Table(title="What the paper claims, and what came out", title_justify="left")
    table.add_column("claim", ratio=1)
    table.add_column("number", justify="right")
    table.add_column("threshold", justify="right")
    table.add_column("verdict")
    colours = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.OPEN: "yellow"}
    counts = dict.fromkeys(Verdict, 0)
    for name in names:
        entry = load(EXPERIMENTS[name], out)
        if entry is None:
            continue
        table.add_section()
        table.add_row(f"[bold]{name}[/bold]", "", "", "")
        for claim in entry.claims:
            counts[claim.verdict] += 1
            verdict = f"[{colours[claim.verdict]}]{claim.verdict.value}[/]"
            note = f"\n[dim]{claim.note}[/dim]" if claim.note else ""
            table.add_row(
                claim.sentence + note,
                f"{claim.number:.3g}",
                f"{claim.relation} {claim.threshold:.3g}",
                verdict,
            )
    console.print(table)
    console.print("  ".join(f"{verdict.value}: {count}" for verdict, count in counts.items()))


@contextmanager
def _bar(console: "Console", name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left; yield what moves it."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description:24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(name, total=total)
        yield lambda done: bar.update(task, completed=done)
