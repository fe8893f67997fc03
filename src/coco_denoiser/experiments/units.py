"""Units of work: computed anywhere, kept on disk, never lost and never stale.

A unit is saved as soon as it is computed, whole or not at all. Its folder is named after
everything that determines it (the configuration with its seed, the code and the versions of
NumPy and Numba), so that what was computed otherwise is not found, rather than reused.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from coco_denoiser._storage import RefusedError, prepare_folder, read_arrays, write_whole
from coco_denoiser._version import __version__
from coco_denoiser.experiments import ExperimentError
from coco_denoiser.experiments.experiment import Config, Experiment, Unit

# Takes the name of an experiment, its configuration and the units wanted; yields each of them
# as it is ready.
Runner: TypeAlias = Callable[[str, Config, Sequence[int]], Iterator[tuple[int, Unit]]]


class Store:
    """The units of one experiment and configuration, in a folder of their own."""

    def __init__(self, folder: Path, name: str, config: Config) -> None:
        self._folder = folder / fingerprint(name, config)

    def prepare(self) -> None:
        """Make the folder."""
        prepare_folder(self._folder)

    def load(self, index: int) -> Unit | None:
        """Return a unit, or None if it is not there or not readable."""
        try:
            return read_arrays(self._path(index)) or None
        except RefusedError:
            return None

    def save(self, index: int, unit: Unit) -> None:
        """Save a unit."""
        write_whole(self._path(index), lambda file: np.savez(file, **unit))  # type: ignore[arg-type]

    def _path(self, index: int) -> Path:
        return self._folder / f"{index:05d}.npz"


def forget(folder: Path) -> None:
    """Remove the units of every configuration in a folder."""
    if folder.is_symlink() or folder.is_file():
        raise ExperimentError(f"{folder} should be a folder of units, and is not")
    shutil.rmtree(folder, ignore_errors=True)


def complete(
    experiment: Experiment,
    config: Config,
    store: Store,
    runner: Runner,
    progress: Callable[[int, int], None],
) -> list[Unit]:
    """Return all units in order, computing and saving those that are missing.

    `progress` is told how many units are there, and how many of them were found on disk.
    """
    store.prepare()
    total = experiment.count(config)
    units = {i: unit for i in range(total) if (unit := store.load(i)) is not None}
    found = len(units)
    progress(found, found)
    for index, unit in runner(experiment.name, config, [i for i in range(total) if i not in units]):
        store.save(index, unit)
        units[index] = unit
        progress(len(units), found)
    return [units[i] for i in range(total)]


def compute(name: str, config: Config, index: int) -> tuple[int, Unit]:
    """Compute one unit; on one thread, so that sums have one order wherever it runs."""
    from threadpoolctl import threadpool_limits

    from coco_denoiser.experiments.catalogue import EXPERIMENTS

    with threadpool_limits(1):
        return index, EXPERIMENTS[name].unit(config, index)


def here(name: str, config: Config, indices: Sequence[int]) -> Iterator[tuple[int, Unit]]:
    """Compute the units one after the other in this process."""
    for index in indices:
        yield compute(name, config, index)


def cores() -> int:
    """Return how many cores this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


def processes(jobs: int) -> Runner:
    """Return a runner that spreads units over processes with joblib."""

    def run(name: str, config: Config, indices: Sequence[int]) -> Iterator[tuple[int, Unit]]:
        from joblib import Parallel, delayed

        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from pool(delayed(compute)(name, config, index) for index in indices)

    return here if jobs == 1 else run


def spread(function: Callable[..., None], calls: Sequence[tuple[Any, ...]], jobs: int) -> None:
    """Call a function once for each tuple of arguments, over processes if there are several."""
    from joblib import Parallel, delayed

    Parallel(n_jobs=min(jobs, len(calls)))(delayed(function)(*call) for call in calls)


@contextmanager
def cluster(address: str) -> Iterator[Runner]:
    """Connect to a Dask scheduler, and yield a runner that spreads units over its workers.

    A worker that dies is not the end: Dask gives its units to the others.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise ExperimentError("--dask needs: pip install 'coco-denoiser[dask]'") from error
    try:
        client = Client(address, timeout=10, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ExperimentError(f"no Dask scheduler answers at {address}") from error

    def run(name: str, config: Config, indices: Sequence[int]) -> Iterator[tuple[int, Unit]]:
        tasks = [
            client.submit(compute, name, config, index, pure=False, retries=5) for index in indices
        ]
        for task in as_completed(tasks, loop=client.loop):  # type: ignore[no-untyped-call]
            yield task.result()

    with client:
        yield run


def fingerprint(name: str, config: Config) -> str:
    """Return a short name of everything that the units of a configuration depend on."""
    content = {
        "experiment": name,
        "config": config.parameters(),
        "version": __version__,
        "code": _code(),
        "libraries": [metadata.version(package) for package in ("numpy", "numba")],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    """Return a digest of the package's source, so that a change of a line is a change."""
    digest = hashlib.sha256()
    root = Path(str(resources.files("coco_denoiser")))
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
