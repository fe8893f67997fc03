"""A run of an optimizer: its step sizes, what is recorded of it, and what it may be run on."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.optimizers import SGD, Adam, PolyakRuppert, TailAverage, decreasing, run
from coco_denoiser.problems import Quadratic


def test_exact_gradients_contract_each_coordinate_by_its_eigenvalue() -> None:
    problem = Quadratic.spaced(4)
    path = run(SGD(1 / problem.L), problem, np.full(4, 100.0), steps=32, rng=rng()).iterates
    k = np.arange(33)[:, np.newaxis]
    assert np.allclose(path, 100 * (1 - problem.hessian) ** k, rtol=1e-12)


@pytest.mark.parametrize("optimizer", [SGD(0.5), Adam(0.5)])
def test_a_batch_of_runs_is_as_many_single_runs(optimizer: Any) -> None:
    problem = Quadratic.spaced(3)
    starts = np.random.default_rng(1).standard_normal((5, 3))
    batch = run(optimizer, problem, starts, steps=10, rng=rng()).iterates
    for j, start in enumerate(starts):
        assert np.allclose(
            run(optimizer, problem, start, steps=10, rng=rng()).iterates, batch[:, j]
        )


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"x0": [1.0, 2.0]}, ValueError, "x0"),
        ({"x0": [np.nan]}, ValueError, "x0"),
        ({"steps": -1}, ValueError, "steps"),
        ({"steps": 2.5}, ValueError, "steps"),
        ({"rng": 7}, TypeError, "default_rng"),
        ({"rng": np.random}, TypeError, "rng"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], error: type[Exception], word: str) -> None:
    arguments: dict[str, Any] = {"x0": [1.0], "steps": 1, "rng": rng()} | change
    with pytest.raises(error, match=word):
        run(SGD(0.1), Quadratic([1.0]), **arguments)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("optimizer", [SGD(0.1), Adam(0.1)])
def test_a_function_that_draws_is_as_good_as_a_problem(optimizer: Any) -> None:
    problem = Quadratic.spaced(3, noise_std=1.0)
    expected = run(optimizer, problem, np.ones(3), steps=10, rng=rng()).iterates
    found = run(optimizer, problem.oracle, np.ones(3), steps=10, rng=rng()).iterates
    assert np.array_equal(found, expected)


def test_a_function_of_the_point_needs_no_generator() -> None:
    path = run(SGD(0.5), lambda x: [2 * x[0]], [1], steps=1).iterates
    assert path.tolist() == [[1.0], [0.0]]


def test_a_function_gets_a_generator_where_it_can_take_one() -> None:
    noise = rng()

    def optional(x: Any, rng: Any = None) -> Any:
        return x if rng is None else x + rng.normal(size=x.shape)

    def unrelated(x: Any, scale: float = 2.0) -> Any:
        return scale * x

    path = run(SGD(1.0), optional, [0.0], steps=1, rng=noise).iterates
    assert path[1, 0] == -rng().normal()
    assert run(SGD(0.5), unrelated, [5.0], steps=1).iterates[1, 0] == 0.0


def test_a_function_cannot_change_the_iterate() -> None:
    def spoil(x: Any) -> Any:
        g = x.copy()
        x[:] = np.nan
        return g

    assert run(SGD(0.5), spoil, [4.0], steps=2).iterates.tolist() == [[4.0], [2.0], [1.0]]


@pytest.mark.parametrize(
    ("gradient", "error", "word"),
    [
        (lambda _: [1.0, 2.0, 3.0], ValueError, r"shape of x, \(2,\), got shape \(3,\)"),
        (lambda _: None, ValueError, "real numbers"),
        (lambda x, _: x, TypeError, "rng must be"),
        (3, TypeError, "problem must have an oracle"),
    ],
)
def test_a_bad_function_is_named(gradient: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        run(SGD(0.1), gradient, [1.0, 2.0], steps=1)


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


def test_sgd_with_step_one_over_k_is_the_mean_of_the_observations() -> None:
    # On f = x^2 / 2, x_k = x_{k-1} - (x_{k-1} + noise) / k averages the noise exactly.
    problem, rng = Quadratic([1.0], noise_std=1), np.random.default_rng(0)
    x = run(SGD(decreasing(1.0)), problem, [7.0], steps=50, rng=rng).iterates[:, 0]
    noise = np.random.default_rng(0).standard_normal(50)
    assert np.allclose(x[1:], -np.cumsum(noise) / np.arange(1, 51), atol=1e-13)


def test_bad_settings_are_named() -> None:
    for value in (0.0, np.nan):
        with pytest.raises(ValueError, match=r"C must be (positive|finite)"):
            decreasing(value)
    with pytest.raises(ValueError, match="start"):
        TailAverage(-1)
