"""Fewer constraints: what stays a law, and what becomes one, if only near points are compared."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.problem import nearest
from coco_denoiser.typing import Float64
from tests.families import box, hard
from tests.windows import Window, near, reduced, windows


def objective(theta: Float64, gradients: Float64) -> float:
    return float(np.sum((theta - gradients) ** 2))


@given(window=windows(), more=st.integers(0, 3))
def test_as_many_neighbors_as_there_are_is_the_whole_problem(window: Window, more: int) -> None:
    points, gradients, L, mu = window
    whole = coco.denoise(points, gradients, L=L, mu=mu)
    m = max(len(points) - 1, 1) + more
    same = coco.denoise(points, gradients, L=L, mu=mu, neighbors=m)
    np.testing.assert_array_equal(whole, same)


@given(window=windows())
@settings(max_examples=50)
def test_every_further_neighbor_costs_and_none_more_than_the_whole(window: Window) -> None:
    points, gradients, L, mu = window
    values = [
        objective(coco.denoise(points, gradients, L=L, mu=mu, neighbors=m), gradients)
        for m in range(1, len(points))
    ]
    for fewer, more in pairwise(values):
        assert fewer <= more * (1.0 + 1e-8) + 1e-9 * objective(gradients, gradients.mean(axis=0))


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 3])
def test_the_pairs_that_stay_are_those_of_the_definition(d: int, m: int) -> None:
    points, gradients = box(np.random.default_rng([d, m]), 12, d)
    points[7:9] = points[6]
    window = reduced(points, gradients)
    expected = near(points, m)
    np.testing.assert_array_equal(np.isfinite(nearest(window, m).bounds), expected)
    solution = coco.solve(points, gradients, L=1.0, neighbors=m)
    assert solution.status.success
    assert not solution.multipliers[~expected].any()
    phi = solution.gradients - 0.5 * points
    apart = np.linalg.norm(phi[:, None] - phi, axis=2)
    bound = 0.5 * np.linalg.norm(points[:, None] - points, axis=2)
    assert (apart <= bound * (1.0 + 1e-8) + 1e-9)[expected].all()


@pytest.mark.parametrize("method", ["interior-point", "barrier"])
@pytest.mark.parametrize("d", [1, 2, 10])
def test_hard_cases_are_solved_with_few_neighbors(method: str, d: int) -> None:
    for case in hard(np.random.default_rng(d), 12, d):
        solution = coco.solve(
            case.points, case.gradients, L=case.L, neighbors=2, method=method, throw=False
        )
        assert solution.status.success, (case.name, solution.gap)
