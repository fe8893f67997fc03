"""Units of work: computed anywhere, kept on disk, never lost and never stale.

A unit is saved as soon as it is computed, whole or not at all. Its folder is named after
everything that determines it (the configuration with its seed, this package's source and compiled
core, and the version of NumPy), so that what was computed otherwise is not found, rather than
reused.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments import ExperimentError
from coco_denoiser.paper.experiments.experiment import Config, Experiment, Unit
from coco_denoiser.paper.files import RefusedError, prepare_folder, read_arrays, write_whole

# Takes the name of an experiment, its configuration and the units wanted; yields each of them
# as it is ready.
Runner: TypeAlias = Callable[[str, Config, Sequence[int]], Iterator[tuple[int, Unit]]]
_T = TypeVar("_T")


# No number of a unit depends on these.
_SHOWING = ("claims", "drawing", "page", "palette", "panels", "summary")
_APART = (
    *("torch/", "optax/", "paper/explore/", "paper/cli"),
    *(f"paper/experiments/{name}.py" for name in _SHOWING),
)


_NAME = "name of the unit"
_PATIENCE = 10.0  # seconds to wait for a Dask scheduler


class Store:
    """The units of one experiment and configuration, in a folder of their own."""

    def __init__(self, folder: Path, name: str, config: Config) -> None:
        self._configuration = fingerprint(name, config)
        self._folder = folder / self._configuration

    def prepare(self) -> None:
        """Make the folder."""
        prepare_folder(self._folder)

    def load(self, index: int) -> Unit | None:
        """Return a unit, or None if it is not there, not readable or not this one."""
        try:
            arrays = read_arrays(self._path(index))
        except RefusedError:
            return None
        name = arrays.pop(_NAME, None)
        return arrays if name is not None and np.array_equal(name, self._name(index)) else None

    def save(self, index: int, unit: Unit) -> None:
        """Save a unit under a name that is also inside it: files get copied."""
        arrays = {**unit, _NAME: np.array(self._name(index))}
        write_whole(self._path(index), lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]

    def _name(self, index: int) -> str:
        return f"{self._configuration}/{index:05d}"

    def _path(self, index: int) -> Path:
        return self._folder / f"{index:05d}.npz"


def complete(
    experiment: Experiment,
    config: Config,
    store: Store,
    runner: Runner,
    progress: Callable[[int], object],
) -> list[Unit]:
    """Return all units in order, computing and saving those that are missing.

    `progress` is told how many units are there.
    """
    store.prepare()
    total = experiment.count(config)
    units = {i: unit for i in range(total) if (unit := store.load(i)) is not None}
    progress(len(units))
    for index, unit in runner(experiment.name, config, [i for i in range(total) if i not in units]):
        store.save(index, unit)
        units[index] = unit
        progress(len(units))
    return [units[i] for i in range(total)]


def compute(name: str, config: Config, index: int) -> tuple[int, Unit]:
    """Compute one unit; on one thread, so that sums have one order wherever it runs."""
    from threadpoolctl import threadpool_limits

    from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS

    with threadpool_limits(1):
        return index, EXPERIMENTS[name].unit(config, index)


def runner(jobs: int, backend: Mapping[str, Any] | None = None) -> Runner:
    """Return a runner that spreads units over processes, or over joblib's backend of a cluster."""

    def run(name: str, config: Config, indices: Sequence[int]) -> Iterator[tuple[int, Unit]]:
        return spread(compute, [(name, config, i) for i in indices], jobs, backend)

    return run


def spread(
    function: Callable[..., _T],
    calls: Sequence[tuple[Any, ...]],
    jobs: int,
    backend: Mapping[str, Any] | None = None,
) -> Iterator[_T]:
    """Call a function once for each tuple of arguments, and yield what it returns as it is ready.

    Here, one after the other, for a single job; otherwise by joblib, over processes of this
    machine unless a backend is given.
    """
    if jobs == 1 and backend is None:
        yield from (function(*call) for call in calls)
        return
    from joblib import Parallel, delayed, parallel_config

    local = {"backend": "loky", "initializer": _end_with, "initargs": (os.getpid(),)}
    with parallel_config(**(backend or local), n_jobs=-1 if backend else jobs):
        pool = Parallel(return_as="generator_unordered", batch_size=1)
    yield from pool(delayed(function)(*call) for call in calls)


def _end_with(owner: int) -> None:
    """Make this process end within a second of the one that started it.

    A process that is killed cannot tell its children; they would work on for nobody.
    """

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def cluster(address: str) -> Iterator[dict[str, Any]]:
    """Connect to a Dask scheduler, and yield joblib's backend for its workers.

    A worker that dies is not the end: Dask gives its units to the others.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ExperimentError("--dask needs: pip install 'coco-denoiser[dask]'") from error
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ExperimentError(f"no Dask scheduler answers at {address}") from error
    with client:
        yield {"backend": "dask", "client": client, "retries": 5}


def fingerprint(name: str, config: Config) -> str:
    """Return a short name of everything that the units of a configuration depend on."""
    content = {
        "experiment": name,
        "config": config.parameters(),
        "version": __version__,
        "code": _code(),
        "libraries": [metadata.version("numpy")],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    """Return a digest of the package's source, without the plug-ins and what only shows results."""
    package = Path(str(resources.files("coco_denoiser")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith(_APART):
            digest.update(name.encode())
            digest.update(path.read_bytes())
    digest.update(Path(kernels.__file__).read_bytes())  # the compiled core
    return digest.hexdigest()
