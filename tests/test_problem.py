"""The reduction of observations to residuals and bounds, and the way back."""

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser.problem import NONE, from_observations, from_tables, mend
from coco_denoiser.solvers import solve
from coco_denoiser.typing import Float64


def distances(v: Float64) -> Float64:
    return np.asarray(np.linalg.norm(v[:, None] - v, axis=2))


def test_tables_keep_a_direction_that_is_short_but_not_rounding() -> None:
    """A direction of 1e-5 has squares of 1e-10, far above the rounding of the table's squares."""
    h = np.random.default_rng(0).normal(size=(6, 3)) * [1.0, 1.0, 1e-5]
    h[1, :2] = h[0, :2]  # two residuals that only it tells apart
    x = np.random.default_rng(1).normal(size=(6, 3))
    problem = from_tables(distances(x), distances(h), NONE, 0.5, np.ones(6))
    unit = problem.bounds[0, 1] / (0.5 * distances(x)[0, 1])
    np.testing.assert_allclose(distances(problem.residuals), unit * distances(h), atol=1e-9)


@pytest.mark.parametrize("K", [3, 6])
def test_tables_and_vectors_give_the_same_weights(K: int) -> None:
    rng = np.random.default_rng(K)
    x, g = rng.normal(size=(K, 5)), 5.0 * rng.normal(size=(K, 5))
    h, v = g - 0.5 * x, np.linspace(1.0, 2.0, K)
    answers = [
        solve(from_tables(distances(x), table, vectors, 0.5, v))
        for table, vectors in ((NONE, h), (distances(h), NONE))
    ]
    np.testing.assert_allclose(answers[0].weights, answers[1].weights, atol=1e-6)
    assert np.count_nonzero(answers[0].multipliers) > 0


def test_the_way_back_keeps_what_is_feasible_to_the_last_bit() -> None:
    x = np.random.default_rng(0).normal(size=(5, 3))
    problem, units = from_observations(x, 0.5 * x, L=1.0, mu=0.0, variances=np.ones(5))
    answer = solve(problem)
    assert answer.status is coco.Status.UNCHANGED
    np.testing.assert_array_equal(units.restore(answer, problem, 1e-9).gradients, 0.5 * x)


def test_a_pair_outside_its_bound_is_mended_and_the_weighted_centroid_kept() -> None:
    x, v = np.array([[0.0], [1.0], [50.0]]), np.array([1.0, 3.0, 1.0])
    g = np.array([[1.0], [0.5], [25.0]])  # the first two disagree: their bound is 0 to 1
    theta, bounds = g.copy(), np.ones((3, 3))
    moved, worst = mend(theta, x, g, bounds, v, 0.5, 0.5, 1e-9)
    assert moved
    assert worst == 0.0
    assert abs(theta[1, 0] - theta[0, 0] - 0.5) <= 0.5 * (1.0 + 1e-9)
    assert theta[2, 0] == 25.0
    np.testing.assert_allclose(np.sum((theta - g) / v[:, None]), 0.0, atol=1e-14)
