"""Noise with a covariance: the laws of the estimator of the paper's appendix."""

from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.typing import Float64
from tests.families import box, hard, path
from tests.windows import pairwise, windows

cp: Any = cvxpy  # its names are built at run time, out of sight of type checkers
Window = tuple[Float64, Float64, float, float]
METHODS = ("fdpg", "conic")


def spread(rng: np.random.Generator, d: int) -> Float64:
    """A covariance with eigenvalues from 1/4 to 4, in random directions."""
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    covariance = (Q * np.geomspace(0.25, 4.0, d)) @ Q.T
    return np.asarray(0.5 * (covariance + covariance.T))


def cost(theta: Float64, gradients: Float64, covariance: Float64, variance: Float64) -> float:
    away = theta - gradients
    return float(np.sum(away * np.linalg.solve(covariance, away.T).T / variance[:, None]))


def size(points: Float64, gradients: Float64, L: float) -> float:
    """The scale that rounding is relative to: the spread of g and of L x."""
    return float(np.ptp(gradients, axis=0).max() + L * np.ptp(points, axis=0).max()) + 1e-300


@pytest.mark.parametrize("mu", [-1.0, 0.0, 1.0 / 3.0])
@pytest.mark.parametrize("method", METHODS)
def test_agrees_with_cvxpy(mu: float, method: str) -> None:
    rng = np.random.default_rng(4)
    for points, gradients in (box(rng, 5, 3), path(rng, 5, 3), box(rng, 4, 12, 100.0)):
        K, d = points.shape
        variance, covariance = np.asarray(rng.uniform(0.5, 2.0, K)), spread(rng, d)
        theta = cp.Variable((K, d))
        root = np.linalg.inv(np.linalg.cholesky(covariance)).T
        white = cp.multiply(theta - gradients, variance[:, None] ** -0.5) @ root
        problem = cp.Problem(cp.Minimize(cp.sum_squares(white)), pairwise(theta, points, mu))
        value = problem.solve(solver=cp.CLARABEL)
        ours = coco.solve(
            points,
            gradients,
            L=1.0,
            mu=mu,
            noise_variance=variance,
            covariance=covariance,
            method=method,
            tol=1e-7,
        )
        assert ours.method == method
        assert cost(ours.gradients, gradients, covariance, variance) == pytest.approx(
            value, rel=1e-6
        )
        np.testing.assert_allclose(ours.gradients, theta.value, atol=2e-2)


@given(window=windows(max_points=5), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_both_methods_agree_and_are_certified(window: Window, seed: int) -> None:
    points, gradients, L, mu = window
    covariance = spread(np.random.default_rng(seed), points.shape[1])
    auto = coco.solve(points, gradients, L=L, mu=mu, covariance=covariance)
    assert auto.gap <= 1e-9
    assert auto.violation <= 1e-9
    conic = coco.solve(
        points, gradients, L=L, mu=mu, covariance=covariance, method="conic", throw=False
    )
    assert conic.violation <= 1e-9
    assert conic.status.success == (conic.gap <= 1e-9)
    moved = np.linalg.norm(auto.gradients - gradients)
    floor = 1e-6 * np.linalg.norm(gradients - gradients.mean(axis=0))
    reach = np.sqrt(auto.gap) + np.sqrt(conic.gap) + 1e-9
    # As in the contract of the solvers, with the ratio of the largest to the least eigenvalue.
    assert np.linalg.norm(auto.gradients - conic.gradients) <= 8.0 * reach * max(moved, floor)


@given(window=windows(max_points=6), s=st.floats(0.01, 100.0), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_a_multiple_of_the_identity_changes_nothing(window: Window, s: float, seed: int) -> None:
    points, gradients, L, mu = window
    d = points.shape[1]
    variance = np.random.default_rng(seed).uniform(0.1, 10.0, len(points))
    without = coco.solve(points, gradients, L=L, mu=mu, noise_variance=variance)
    for covariance in (np.full(d, s), s * np.eye(d)):
        same = coco.solve(
            points, gradients, L=L, mu=mu, noise_variance=variance, covariance=covariance
        )
        gap = np.abs(same.gradients - without.gradients).max()
        assert gap <= 3e-4 * size(points, gradients, L)
        np.testing.assert_allclose(same.weights, without.weights, atol=1e-4)


@given(window=windows(max_points=5), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_rotations_carry_over(window: Window, seed: int) -> None:
    points, gradients, L, mu = window
    rng, d = np.random.default_rng(seed), points.shape[1]
    variances = np.geomspace(0.25, 4.0, d)
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    turned = (Q.T * variances) @ Q
    plain = coco.denoise(points, gradients, L=L, mu=mu, covariance=variances)
    rotated = coco.denoise(
        points @ Q, gradients @ Q, L=L, mu=mu, covariance=0.5 * (turned + turned.T)
    )
    assert np.abs(plain @ Q - rotated).max() <= 3e-4 * size(points, gradients, L)


@given(window=windows(max_points=6), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_the_weighted_centroid_is_kept_for_any_covariance(window: Window, seed: int) -> None:
    """Theorem 4.1, which the appendix proves for a general covariance."""
    points, gradients, L, mu = window
    rng = np.random.default_rng(seed)
    variance, covariance = rng.uniform(0.1, 10.0, len(points)), spread(rng, points.shape[1])
    theta = coco.denoise(
        points, gradients, L=L, mu=mu, noise_variance=variance, covariance=covariance
    )
    drift = ((theta - gradients) / variance[:, None]).sum(axis=0)
    assert np.abs(drift).max() <= 1e-8 * size(points, gradients, L)


def test_what_is_drawn_in_keeps_its_centroid() -> None:
    """Two points, for which an answer of the paper's method is a little outside."""
    points = np.array([[-0.06734983, 0.04546343], [-0.3430548, 0.23157366]])
    gradients = np.array([[0.06305018, 0.10986257], [-0.41342832, -0.04935093]])
    rng = np.random.default_rng(0)
    variance, covariance = rng.uniform(0.1, 10.0, 2), spread(rng, 2)
    theta = coco.denoise(
        points, gradients, L=1.0, mu=-1.0, noise_variance=variance, covariance=covariance
    )
    drift = ((theta - gradients) / variance[:, None]).sum(axis=0)
    assert np.abs(drift).max() <= 1e-12


def test_there_are_no_weights_and_it_says_why() -> None:
    points, gradients = path(np.random.default_rng(1), 6, 4)
    solution = coco.solve(points, gradients, L=1.0, covariance=[1.0, 2.0, 3.0, 4.0])
    assert solution.weights is None
    assert "every direction" in str(solution.no_weights)


def test_points_that_coincide_get_the_weighted_mean() -> None:
    rng = np.random.default_rng(2)
    gradients, variance = rng.normal(size=(4, 3)), np.array([1.0, 2.0, 5.0, 0.5])
    solution = coco.solve(
        np.ones((4, 3)), gradients, L=1.0, noise_variance=variance, covariance=[1.0, 2.0, 3.0]
    )
    mean = (gradients / variance[:, None]).sum(axis=0) / (1.0 / variance).sum()
    np.testing.assert_allclose(solution.gradients, np.tile(mean, (4, 1)), atol=1e-12)
    assert np.isinf(solution.multipliers[0, 1])


def test_what_is_feasible_is_unchanged() -> None:
    points = np.random.default_rng(0).normal(size=(5, 3))
    solution = coco.solve(points, 0.5 * points, L=1.0, covariance=[1.0, 2.0, 3.0])
    np.testing.assert_array_equal(solution.gradients, 0.5 * points)
    assert solution.status is coco.Status.UNCHANGED


def test_hard_cases_are_feasible_and_say_how_good_they_are() -> None:
    rng = np.random.default_rng(9)
    for case in hard(rng, 4, 3):
        solution = coco.solve(
            case.points,
            case.gradients,
            L=case.L,
            covariance=[0.25, 1.0, 4.0],
            max_iter=20_000,
            throw=False,
        )
        assert solution.violation <= 1e-9, case.name
        assert solution.status.success == (solution.gap <= 1e-9), case.name


def test_knowing_the_covariance_lowers_the_error() -> None:
    """Paired runs on an oracle whose noise is far stronger in some directions."""
    rng = np.random.default_rng(3)
    d, K = 4, 6
    variances = np.geomspace(1.0, 400.0, d)
    gains = []
    for _ in range(60):
        points = rng.normal(size=(K, d)) * 5.0
        exact = points * np.linspace(1.0, 1.0 / 3.0, d)
        gradients = exact + np.sqrt(variances) * rng.normal(size=(K, d))
        known = coco.denoise(points, gradients, L=1.0, covariance=variances)
        ignored = coco.denoise(points, gradients, L=1.0)
        gains.append(np.sum((ignored - exact) ** 2) - np.sum((known - exact) ** 2))
    assert np.mean(gains) > 4.0 * np.std(gains) / np.sqrt(len(gains))
