"""Units are never lost, never stale, and the same wherever they are computed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_denoiser.experiments import ExperimentError, units
from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.experiment import Config, Unit
from tests.experiments.conftest import small

NAME = "synthetic-sgd"
EXPERIMENT, CONFIG = EXPERIMENTS[NAME], replace(small(NAME), runs=4)


def _complete(
    folder: Path, runner: units.Runner = units.here, config: Config = CONFIG
) -> list[Unit]:
    store = units.Store(folder, NAME, config)
    return units.complete(EXPERIMENT, config, store, runner, lambda *_: None)


def _bytes(found: Sequence[Unit]) -> bytes:
    return EXPERIMENT.gather(CONFIG, found).to_csv()


def _never(name: str, config: Config, indices: Sequence[int]) -> Iterator[tuple[int, Unit]]:
    assert not indices, f"{name} with {config} is computed again"
    return iter(())


def test_units_are_computed_once_and_then_read(tmp_path: Path) -> None:
    first = _complete(tmp_path)
    assert _bytes(_complete(tmp_path, _never)) == _bytes(first)


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
        return units.here(name, config, indices)

    resumed = _complete(tmp_path, rest)
    assert wanted == [1, 3]
    assert _bytes(resumed) == _bytes([EXPERIMENT.unit(CONFIG, i) for i in range(4)])


def test_processes_change_no_byte(tmp_path: Path) -> None:
    alone = _complete(tmp_path / "a")
    together = _complete(tmp_path / "b", units.processes(2))
    assert _bytes(together) == _bytes(alone)


@pytest.mark.parametrize("change", [{"seed": 1}, {"sigma": 9.0}, {"runs": 3}], ids=min)
def test_another_configuration_finds_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    _complete(tmp_path)
    other = replace(CONFIG, **change)
    assert units.Store(tmp_path, NAME, other).load(0) is None


def test_other_code_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _complete(tmp_path)
    monkeypatch.setattr(units, "_code", lambda: "edited")
    assert units.Store(tmp_path, NAME, CONFIG).load(0) is None


def test_another_version_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _complete(tmp_path)
    monkeypatch.setattr(units, "__version__", "99")
    assert units.Store(tmp_path, NAME, CONFIG).load(0) is None


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut", b"PK\5\6" + 18 * b"\0", b"no archive"])
def test_a_damaged_unit_is_computed_again(tmp_path: Path, damage: bytes) -> None:
    good = _bytes(_complete(tmp_path))
    (path, *_) = sorted(tmp_path.rglob("*.npz"))
    path.write_bytes(damage)
    assert _bytes(_complete(tmp_path)) == good


def test_units_are_plain_arrays(tmp_path: Path) -> None:
    _complete(tmp_path)
    for path in tmp_path.rglob("*.npz"):
        with np.load(path, allow_pickle=False) as content:
            assert all(content[name].dtype == np.float64 for name in content.files)


def test_what_is_not_a_folder_of_units_is_not_removed(tmp_path: Path) -> None:
    mine = tmp_path / "units"
    mine.write_text("mine")
    with pytest.raises(ExperimentError, match="units"):
        units.forget(mine)
    assert mine.read_text() == "mine"


def test_no_scheduler_is_one_clear_line() -> None:
    nobody = "tcp://127.0.0.1:1"
    with (
        pytest.raises(ExperimentError, match=f"no Dask scheduler answers at {nobody}"),
        units.cluster(nobody),
    ):
        pass
