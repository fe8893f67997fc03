"""Units are never lost, never stale, and the same wherever they are computed."""

import os
import signal
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_denoiser.paper.experiments import units
from coco_denoiser.paper.experiments.experiment import Experiment, Unit
from coco_denoiser.paper.files import RefusedError
from tests.paper.experiments.conftest import small

NAME = "warm-start"
EXPERIMENT = replace(small(NAME), runs=4)
HERE = units.Here()


def complete(
    folder: Path,
    executor: Executor = HERE,
    experiment: Experiment = EXPERIMENT,
    then: Callable[[float], object] = lambda _: None,
) -> list[Unit]:
    store = units.Store(experiment, folder)
    for _, index, unit, seconds in units.answers(deque(store.missing()), executor, 8):
        store.save(index, unit)
        then(seconds)
    return store.everything()


def _bytes(found: Sequence[Unit], experiment: Experiment = EXPERIMENT) -> bytes:
    return experiment.gather(found).to_csv()


def test_a_call_that_is_added_is_made_too_and_a_worker_that_is_killed_is_reported() -> None:
    calls: deque[units.Call] = deque([partial(str, 1)])
    done = []
    with units.workers(2) as executor:
        for answer in units.answers(calls, executor, 1):
            done.append(answer)
            if len(done) == 1:
                calls.append(partial(str, 2))
    assert done == ["1", "2"]
    with units.workers(2) as executor, pytest.raises(RefusedError, match="was killed"):
        list(units.answers(deque([partial(os._exit, 1)]), executor, 1))


def test_another_configuration_finds_nothing_and_neither_does_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(tmp_path)
    changes: list[dict[str, Any]] = [{"seed": 1}, {"sigma": 9.0}, {"runs": 3}]
    for change in changes:
        assert units.Store(replace(EXPERIMENT, **change), tmp_path).load(0) is None
    monkeypatch.setattr(units, "_code", lambda: "edited")
    assert units.Store(EXPERIMENT, tmp_path).load(0) is None


def test_a_damaged_unit_and_one_that_is_another_are_computed_again(tmp_path: Path) -> None:
    good = _bytes(complete(tmp_path / "a"))
    first, second, *_ = sorted((tmp_path / "a").rglob("*.npz"))
    complete(tmp_path / "b", experiment=replace(EXPERIMENT, seed=1))
    (same_number, *_) = sorted((tmp_path / "b").rglob("*.npz"))
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    others = [path.read_bytes() for path in (second, same_number, tmp_path / "other.npz")]
    for content in (b"", b"no archive", first.read_bytes()[:-100], *others):
        first.write_bytes(content)
        assert units.Store(EXPERIMENT, tmp_path / "a").load(0) is None
        assert _bytes(complete(tmp_path / "a")) == good


def test_units_are_plain_arrays_computed_once_and_then_read(tmp_path: Path) -> None:
    first = complete(tmp_path)
    # This executor carries out nothing.
    assert _bytes(complete(tmp_path, Executor())) == _bytes(first)
    for path in tmp_path.rglob("*.npz"):
        with np.load(path, allow_pickle=False) as content:
            kinds = {content[name].dtype.kind for name in content.files}
            assert kinds == {"f", "U"}  # numbers, and the name of the unit


def test_no_scheduler_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(units, "_PATIENCE", 0.5)
    nobody = "tcp://127.0.0.1:1"
    with (
        pytest.raises(RefusedError, match=f"no Dask scheduler answers at {nobody}"),
        units.cluster(nobody),
    ):
        pass


# Dask and Tornado have warnings of their own when a process of theirs is killed.
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_of_a_cluster_costs_time_but_no_byte(tmp_path: Path) -> None:
    from distributed import LocalCluster

    experiment = replace(EXPERIMENT, runs=40)
    some = {"threads_per_worker": 1, "dashboard_address": None}
    done: list[float] = []
    with (
        LocalCluster(n_workers=2, processes=True, **some) as cluster,  # type: ignore[no-untyped-call]
        units.cluster(cluster.scheduler_address) as executor,
    ):
        victim = next(iter(cluster.workers.values())).pid

        def kill(seconds: float) -> None:
            done.append(seconds)
            if len(done) == 3:
                os.kill(victim, signal.SIGKILL)

        found = complete(tmp_path, executor, experiment, kill)
    here = [experiment.unit(index) for index in range(experiment.count())]
    assert len(here) == len(done) > 4
    assert _bytes(found, experiment) == _bytes(here, experiment)
