import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.optimizers import SGD, PolyakRuppert, TailAverage, run
from coco_denoiser.problems import Quadratic


@given(seed=st.integers(0, 10**6), steps=st.integers(0, 40))
def test_polyak_ruppert_is_the_mean_of_all_iterates_with_the_first(seed: int, steps: int) -> None:
    iterates = np.random.default_rng(seed).standard_normal((steps + 1, 3))
    average = PolyakRuppert()
    for k, x in enumerate(iterates):
        assert np.allclose(average(x), iterates[: k + 1].mean(axis=0), atol=1e-14)


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


def test_averaging_calms_the_noise_as_theory_says() -> None:
    # On f = x^2 / 2 from x* with a fixed step, the average's variance tends to sigma^2 / k,
    # while an iterate's stays at gamma sigma^2 / (2 - gamma).
    problem, runs, steps = Quadratic([1.0], noise_std=1), 4000, 400
    rng = np.random.default_rng(1)
    averaged = run(
        SGD(0.5), problem, np.zeros((runs, 1)), steps=steps, rng=rng, average=PolyakRuppert()
    )
    plain = run(SGD(0.5), problem, np.zeros((runs, 1)), steps=steps, rng=rng)
    tolerance = 5 * np.sqrt(2 / runs)
    assert averaged.iterates[-1].var() * steps == pytest.approx(1, rel=tolerance + 0.02)
    assert plain.iterates[-1].var() == pytest.approx(0.5 / 1.5, rel=tolerance)


def test_a_negative_start_is_named() -> None:
    with pytest.raises(ValueError, match="start"):
        TailAverage(-1)
