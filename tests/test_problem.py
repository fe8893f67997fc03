"""The reduction of observations to residuals and bounds, and the way back."""

import numpy as np

import coco_denoiser as coco
from coco_denoiser.problem import from_observations, mend
from coco_denoiser.solvers import solve
from tests.windows import plain


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


def test_feasible_is_what_obeys_its_bounds_up_to_rounding() -> None:
    residuals, ones = np.array([[0.0], [1.0]]), 1.0 - np.eye(2)
    for excess, feasible in ((0.0, True), (1e-15, True), (1e-9, False), (1e-4, False)):
        assert plain(residuals, ones / (1.0 + excess)).is_feasible() == feasible
