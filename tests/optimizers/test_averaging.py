import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.optimizers import SGD, PolyakRuppert, TailAverage, run
from coco_denoiser.problems import Quadratic


@given(seed=st.integers(0, 10**6), start=st.integers(0, 30))
def test_tail_average_is_the_mean_from_its_start_on(seed: int, start: int) -> None:
    iterates = np.random.default_rng(seed).standard_normal((25, 3))
    average = TailAverage(start)
    for k, x in enumerate(iterates):
        expected = x if k < start else iterates[start : k + 1].mean(axis=0)
        assert np.allclose(average(x), expected, atol=1e-14)


def test_averages_share_no_memory_with_iterates() -> None:
    average, x = PolyakRuppert(), np.ones(2)
    first = average(x)
    x[:] = 5
    first[:] = 9
    assert average(np.full(2, 3.0)).tolist() == [2, 2]


def test_an_average_records_another_path_and_leaves_the_first_alone() -> None:
    problem = Quadratic.spaced(3, noise_std=1)
    plain, averaged = (
        run(SGD(0.5), problem, np.ones(3), steps=30, rng=np.random.default_rng(0), average=average)
        for average in (None, PolyakRuppert())
    )
    sums = np.cumsum(plain.iterates, axis=0)
    assert np.allclose(averaged.iterates, sums / np.arange(1, 32)[:, np.newaxis], atol=1e-14)


def test_a_negative_start_is_named() -> None:
    with pytest.raises(ValueError, match="start"):
        TailAverage(-1)
