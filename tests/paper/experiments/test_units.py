"""Units are never lost, never stale, and the same wherever they are computed."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_denoiser.paper.experiments import ExperimentError, units
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.experiment import Config, Unit
from tests.paper.experiments.conftest import small

NAME = "synthetic-sgd"
EXPERIMENT, CONFIG = EXPERIMENTS[NAME], replace(small(NAME), runs=4)
HERE = units.runner(1)


def _complete(folder: Path, runner: units.Runner = HERE, config: Config = CONFIG) -> list[Unit]:
    store = units.Store(folder, NAME, config)
    return units.complete(EXPERIMENT, config, store, runner, lambda *_: None)


def _bytes(found: Sequence[Unit]) -> bytes:
    return EXPERIMENT.gather(CONFIG, found).to_csv()


def _never(name: str, config: Config, indices: Sequence[int]) -> Iterator[tuple[int, Unit]]:
    assert not indices, f"{name} with {config} is computed again"
    return iter(())


def test_an_interruption_loses_the_unit_under_way_and_no_other(tmp_path: Path) -> None:
    def interrupted(
        name: str, config: Config, indices: Sequence[int]
    ) -> Iterator[tuple[int, Unit]]:
        # Out of order, as from many processes.
        yield units.compute(name, config, indices[2])
        yield units.compute(name, config, indices[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _complete(tmp_path, interrupted)
    wanted: list[int] = []

    def rest(name: str, config: Config, indices: Sequence[int]) -> Iterator[tuple[int, Unit]]:
        wanted.extend(indices)
        return HERE(name, config, indices)

    resumed = _complete(tmp_path, rest)
    assert wanted == [1, 3]
    assert _bytes(resumed) == _bytes([EXPERIMENT.unit(CONFIG, i) for i in range(4)])


def test_another_configuration_finds_nothing_and_neither_does_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _complete(tmp_path)
    changes: list[dict[str, Any]] = [{"seed": 1}, {"sigma": 9.0}, {"runs": 3}]
    for change in changes:
        assert units.Store(tmp_path, NAME, replace(CONFIG, **change)).load(0) is None
    monkeypatch.setattr(units, "_code", lambda: "edited")
    assert units.Store(tmp_path, NAME, CONFIG).load(0) is None


def test_a_damaged_unit_and_one_that_is_another_are_computed_again(tmp_path: Path) -> None:
    good = _bytes(_complete(tmp_path / "a"))
    first, second, *_ = sorted((tmp_path / "a").rglob("*.npz"))
    _complete(tmp_path / "b", config=replace(CONFIG, seed=1))
    (same_number, *_) = sorted((tmp_path / "b").rglob("*.npz"))
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    others = [path.read_bytes() for path in (second, same_number, tmp_path / "other.npz")]
    for content in (b"", b"no archive", first.read_bytes()[:-100], *others):
        first.write_bytes(content)
        assert units.Store(tmp_path / "a", NAME, CONFIG).load(0) is None
        assert _bytes(_complete(tmp_path / "a")) == good


def test_units_are_plain_arrays_computed_once_and_then_read(tmp_path: Path) -> None:
    first = _complete(tmp_path)
    assert _bytes(_complete(tmp_path, _never)) == _bytes(first)
    for path in tmp_path.rglob("*.npz"):
        with np.load(path, allow_pickle=False) as content:
            kinds = {content[name].dtype.kind for name in content.files}
            assert kinds == {"f", "U"}  # numbers, and the name of the unit


def test_no_scheduler_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(units, "_PATIENCE", 0.5)
    nobody = "tcp://127.0.0.1:1"
    with (
        pytest.raises(ExperimentError, match=f"no Dask scheduler answers at {nobody}"),
        units.cluster(nobody),
    ):
        pass


# Dask and Tornado have warnings of their own when a process of theirs is killed.
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_of_a_cluster_costs_time_but_no_byte(tmp_path: Path) -> None:
    from distributed import LocalCluster

    config, some = replace(CONFIG, runs=40), {"threads_per_worker": 1, "dashboard_address": None}
    with (
        LocalCluster(n_workers=2, processes=True, **some) as cluster,  # type: ignore[no-untyped-call]
        units.cluster(cluster.scheduler_address) as backend,
    ):
        victim, runner = next(iter(cluster.workers.values())).pid, units.runner(1, backend)

        def killing(
            name: str, config: Config, indices: Sequence[int]
        ) -> Iterator[tuple[int, Unit]]:
            for count, found in enumerate(runner(name, config, indices)):
                yield found
                if count == 3:
                    os.kill(victim, signal.SIGKILL)

        found = _complete(tmp_path, killing, config)
    here = [EXPERIMENT.unit(config, index) for index in range(EXPERIMENT.count(config))]
    assert len(here) > 4
    assert EXPERIMENT.gather(config, found).to_csv() == EXPERIMENT.gather(config, here).to_csv()
