"""Units of work: computed anywhere, kept on disk, never lost and never stale.

A unit is saved as soon as it is computed, whole or not at all. Its folder is named after
everything that determines it (the configuration with its seed, this package's source and compiled
core, and the version of NumPy), so that what was computed otherwise is not found, rather than
reused.
"""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from functools import cache, partial
from importlib import metadata, resources
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments.experiment import Experiment, Unit
from coco_denoiser.paper.files import RefusedError, prepare_folder, read_arrays, write_whole

Call: TypeAlias = Callable[[], Any]  # what another process can do
_NAME = "name of the unit"
_PATIENCE = 10.0  # seconds to wait for a Dask scheduler


class Store:
    """The units of one experiment, as it is configured, in a folder of their own."""

    def __init__(self, experiment: Experiment, out: Path) -> None:
        depends_on = {
            "experiment": experiment.name,
            "config": experiment.parameters(),
            "version": __version__,
            "code": _code(),
            "libraries": [metadata.version("numpy")],
        }
        digest = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode())
        self._configuration = digest.hexdigest()[:16]
        self._folder = out / experiment.name / "units" / self._configuration
        self._experiment = experiment

    def missing(self) -> list[Call]:
        """Return a call of `compute` for every unit that is not there."""
        prepare_folder(self._folder)
        wanted = [index for index in range(self._experiment.count()) if self.load(index) is None]
        return [partial(compute, self._experiment, index) for index in wanted]

    def load(self, index: int) -> Unit | None:
        """Return a unit, or None if it is not there, not readable or not this one."""
        try:
            arrays = read_arrays(self._path(index))
        except RefusedError:
            return None
        name = arrays.pop(_NAME, None)
        return arrays if name is not None and np.array_equal(name, self._label(index)) else None

    def everything(self) -> list[Unit]:
        """Return all units in order."""
        found = [self.load(index) for index in range(self._experiment.count())]
        return [unit for unit in found if unit is not None]

    def save(self, index: int, unit: Unit) -> None:
        """Save a unit under a name that is also inside it: files get copied."""
        arrays = {**unit, _NAME: np.array(self._label(index))}
        write_whole(self._path(index), lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]  # no name is an option

    def _label(self, index: int) -> str:
        return f"{self._configuration}/{index:05d}"

    def _path(self, index: int) -> Path:
        return self._folder / f"{index:05d}.npz"


def compute(experiment: Experiment, index: int) -> tuple[str, int, Unit, float]:
    """Compute one unit; on one thread, so that sums have one order wherever it runs.

    Returns:
        The name of the experiment, the number of the unit, the unit, and the seconds it took.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        begun = time.process_time()
        unit = experiment.unit(index)
        return experiment.name, index, unit, time.process_time() - begun


def answers(calls: deque[Call], executor: Executor, room: int) -> Iterator[Any]:
    """Make calls, several at a time, and yield what they return; more may be added meanwhile."""
    running: set[Future[Any]] = set()
    try:
        while calls or running:
            while calls and len(running) < room:
                running.add(executor.submit(calls.popleft()))
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                running.remove(future)
                yield future.result()
    except BrokenExecutor as error:
        raise RefusedError(
            "a worker process was killed, perhaps for lack of memory: the same command resumes"
        ) from error


class Here(Executor):
    """Makes a call in this process, while it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return a future that is done."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def workers(jobs: int) -> Iterator[Executor]:
    """Yield processes of this machine, or this process for a single job."""
    if jobs == 1:
        yield Here()
        return
    # A forked process has imported everything already.
    context = get_context("fork" if sys.platform == "linux" else None)
    pool = ProcessPoolExecutor(jobs, context, _begin, (os.getpid(),))
    try:
        yield pool
    except BaseException:
        for child in active_children():  # which would finish what they are at
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(owner: int) -> None:
    """Make this process end without a word when it is interrupted, or when its owner has ended.

    A process that is killed cannot tell its children; they would work on for nobody.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """Connect to a Dask scheduler, and yield its workers.

    A worker that dies is not the end: Dask gives its units to the others.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise RefusedError("--dask needs: pip install 'coco-denoiser[dask]'") from error
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]  # Dask's
    except (OSError, ValueError) as error:
        raise RefusedError(f"no Dask scheduler answers at {address}") from error
    with client:
        yield client.get_executor(pure=False, retries=5)  # type: ignore[no-untyped-call]  # Dask's


@cache
def _code() -> str:
    """Return a digest of the package's source and of the compiled core."""
    package = Path(str(resources.files("coco_denoiser")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    digest.update(Path(kernels.__file__).read_bytes())
    return digest.hexdigest()
