"""A run of an optimizer: its step sizes, what is recorded of it, and what it may be run on."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.paper.optimizers import SGD, Adam, run, tail_average
from coco_denoiser.paper.problems import Quadratic


@pytest.mark.parametrize("optimizer", [SGD(0.5), Adam(0.5)])
def test_a_batch_of_runs_is_as_many_single_runs(optimizer: Any) -> None:
    problem = Quadratic.spaced(3)
    starts = np.random.default_rng(1).standard_normal((5, 3))
    batch = run(optimizer, problem, starts, steps=10, rng=rng())
    for j, start in enumerate(starts):
        assert np.allclose(run(optimizer, problem, start, steps=10, rng=rng()), batch[:, j])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_function_gets_a_generator_where_it_can_take_one() -> None:
    noise = rng()

    def optional(x: Any, rng: Any = None) -> Any:
        return x if rng is None else x + rng.normal(size=x.shape)

    def unrelated(x: Any, scale: float = 2.0) -> Any:
        return scale * x

    path = run(SGD(1.0), optional, [0.0], steps=1, rng=noise)
    assert path[1, 0] == -rng().normal()
    assert run(SGD(0.5), unrelated, [5.0], steps=1)[1, 0] == 0.0


def test_a_function_cannot_change_the_iterate() -> None:
    def spoil(x: Any) -> Any:
        g = x.copy()
        x[:] = np.nan
        return g

    assert run(SGD(0.5), spoil, [4.0], steps=2).tolist() == [[4.0], [2.0], [1.0]]


@given(seed=st.integers(0, 10**6), start=st.integers(0, 30))
def test_tail_average_is_the_mean_from_its_start_on(seed: int, start: int) -> None:
    iterates = np.random.default_rng(seed).standard_normal((25, 3))
    found = tail_average(iterates, start)
    for k, x in enumerate(iterates):
        expected = x if k < start else iterates[start : k + 1].mean(axis=0)
        assert np.allclose(found[k], expected, atol=1e-14)
