"""A Dask cluster computes the same bytes, even if a worker is killed at work."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coco_denoiser.experiments import units
from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.experiment import Config, Unit
from tests.experiments.conftest import small

NAME = "synthetic-sgd"


@pytest.fixture
def dask_cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


# Dask and Tornado have warnings of their own when a process of theirs is killed.
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_costs_time_but_no_byte(tmp_path: Path, dask_cluster: Any) -> None:
    experiment, config = EXPERIMENTS[NAME], replace(small(NAME), runs=40)
    victim = next(iter(dask_cluster.workers.values())).pid
    killed = False

    with units.cluster(dask_cluster.scheduler_address) as backend:
        runner = units.runner(1, backend)

        def killing(
            name: str, config: Config, indices: Sequence[int]
        ) -> Iterator[tuple[int, Unit]]:
            nonlocal killed
            for count, found in enumerate(runner(name, config, indices)):
                yield found
                if count == 3:
                    os.kill(victim, signal.SIGKILL)
                    killed = True

        store = units.Store(tmp_path, NAME, config)
        found = units.complete(experiment, config, store, killing, lambda *_: None)
    assert killed
    here = [experiment.unit(config, index) for index in range(experiment.count(config))]
    assert experiment.gather(config, found).to_csv() == experiment.gather(config, here).to_csv()
