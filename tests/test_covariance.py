"""Noise with a covariance: the laws of the estimator of the paper's appendix."""

from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from tests.families import Case, box, full, path
from tests.fuzz import judge
from tests.windows import windows

cp: Any = cvxpy  # its names are built at run time, out of sight of type checkers


@pytest.mark.parametrize("mu", [-0.5, 0.0, 1.0 / 3.0])
@pytest.mark.parametrize("coloured", [False, True])
def test_everything_at_once_agrees_with_cvxpy(coloured: bool, mu: float) -> None:
    rng = np.random.default_rng(4)
    for points, gradients in (box(rng, 5, 3), path(rng, 5, 3), box(rng, 4, 12, 100.0)):
        K, d = points.shape
        variance = np.asarray(rng.uniform(0.5, 2.0, K))
        covariance = full(rng, np.geomspace(0.25, 4.0, d)) if coloured else None
        case = Case(points, gradients, 1.0, mu, variance, covariance)
        theta, c, r = cp.Variable((K, d)), (1.0 + mu) / 2, (1.0 - mu) / 2
        constraints = []
        for i, j in zip(*np.tril_indices(K, -1), strict=True):
            dx = points[i] - points[j]
            constraints.append(cp.norm(theta[i] - theta[j] - c * dx) <= r * np.linalg.norm(dx))
        root = np.linalg.inv(np.linalg.cholesky(np.eye(d) if covariance is None else covariance)).T
        white = cp.multiply(theta - gradients, variance[:, None] ** -0.5) @ root
        problem = cp.Problem(cp.Minimize(cp.sum_squares(white)), constraints)
        value = problem.solve(solver=cp.CLARABEL)
        for method in ("newton", "barrier", "fdpg") if coloured else ("newton",):
            ours = case.solve(method=method, tol=1e-7)
            assert ours.method == method
            away = (ours.gradients - gradients) @ root
            assert np.sum(away**2 / variance[:, None]) == pytest.approx(value, rel=1e-6)
            np.testing.assert_allclose(ours.gradients, theta.value, atol=2e-2)
            assert not judge(case, ours, 1e-7).wrong  # and so are the multipliers
            unchanged = ours.status is coco.Status.UNCHANGED
            assert unchanged or np.isnan(ours.weights).all() == coloured


@given(case=windows(max_points=6), s=st.floats(0.01, 100.0))
@settings(max_examples=30)
def test_a_multiple_of_the_identity_changes_nothing(case: Case, s: float) -> None:
    without, d = case.solve(), case.points.shape[1]
    for covariance in (np.full(d, s), s * np.eye(d)):
        same = case.solve(covariance=covariance)
        assert np.abs(same.gradients - without.gradients).max() <= 3e-4 * case.size
        np.testing.assert_allclose(same.weights, without.weights, atol=1e-4)


@pytest.mark.parametrize("shift", [2.0**27, 2.0**40])
def test_a_common_shift_of_the_points_changes_no_digit(shift: float) -> None:
    """Points near 1e8 and 1e12, on a grid that float64 holds: rotated first, they would lose it."""
    rng = np.random.default_rng(5)
    points, gradients = rng.integers(-80, 80, (6, 4)) / 8.0, 10.0 * rng.normal(size=(6, 4))
    given: Any = {"L": 1.0, "covariance": full(rng, np.geomspace(0.25, 4.0, 4))}
    here, there = (coco.denoise(x, gradients, **given) for x in (points, points + shift))
    np.testing.assert_array_equal(here, there)


def test_two_points_solve_a_scalar_equation() -> None:
    rng = np.random.default_rng(6)
    for span in (1.0, 3.0, 6.0):
        points, gradients = rng.normal(size=(2, 5)), 10.0 * rng.normal(size=(2, 5))
        variance, covariance = rng.uniform(0.1, 1.0, 2), 10.0 ** rng.uniform(-span, span, 5)
        case = Case(points, gradients, 1.0, 0.0, variance, covariance)
        closed = case.solve()
        assert closed.method == "closed-form"
        assert closed.iterations <= 50
        assert closed.gap <= 1e-9
        other = case.solve(method="barrier")
        np.testing.assert_allclose(closed.gradients, other.gradients, atol=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_many_clusters_of_near_points_are_solved(seed: int) -> None:
    """Their multipliers differ by six decades, and so did the entries of the Newton system."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((8, 50))[rng.integers(0, 8, 40)]
    points = points + 1e-6 * rng.standard_normal(points.shape)
    gradients = points + rng.standard_normal(points.shape)
    case = Case(points, gradients, covariance=full(rng, np.geomspace(0.1, 4.0, 50)))
    answer = case.solve(throw=False)
    assert answer.status.success
    assert answer.method == "newton"
