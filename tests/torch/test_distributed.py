"""Several processes: what one process would do, on every rank, with 3K + 2 numbers sent a step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.torch import workers

# PyTorch's own remarks about its checkpoint formats and about gloo.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


Two = tuple[Path, list[dict[str, Any]]]  # a folder, and what each of two ranks found


@pytest.fixture(scope="module")
def alone() -> list[torch.Tensor]:
    """Return where one process ends up."""
    module = workers.model()
    optimizer = workers.wrapped(module)
    workers.train(module, optimizer, range(workers.STEPS))
    assert optimizer.diagnostics().weights[-1] < 0.9
    return workers.whole(module)


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    folder = tmp_path_factory.mktemp("two")
    return folder, workers.run(workers.two_ranks, 2, folder)


def test_data_parallel_ranks_are_bit_equal_and_equal_one_process(
    two: Two, alone: list[torch.Tensor]
) -> None:
    for first, second in zip(*(found["replicated"] for found in two[1]), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert_close(first, alone)


def test_what_would_average_each_shard_by_itself_is_refused(two: Two) -> None:
    assert [found["flattened"] for found in two[1]] == [[], []]


def test_shards_equal_one_process_and_send_3k_plus_2_numbers_a_step(
    two: Two, alone: list[torch.Tensor]
) -> None:
    for found in two[1]:
        assert_close(found["parameters"], alone)
        assert found["numbers"] == [3 * 4 + 2]


def test_ranks_may_differ_in_gradients_that_are_none_or_not_finite(two: Two) -> None:
    first, second = (found["uneven"] for found in two[1])
    assert first["weights"] == second["weights"]
    # One step was refused in the count of traffic, one here; on both ranks, whoever caused it.
    assert first["skipped"] == second["skipped"] == 2
    assert first["kept"]
    assert second["kept"]


def test_saved_on_two_ranks_resumed_on_one(two: Two) -> None:
    folder, found = two
    parameters, weights = workers.resume(folder / "checkpoint")
    np.testing.assert_allclose(weights, found[0]["weights"], rtol=1e-6)
    assert_close(parameters, found[0]["resumed"])


def test_grid_with_ignored_parameters_equals_one_process(
    tmp_path: Path, alone: list[torch.Tensor]
) -> None:
    ranks = workers.run(workers.grid, 4, tmp_path)
    for found in ranks:
        assert found["weights"] == ranks[0]["weights"]
        assert_close(found["parameters"], alone)
