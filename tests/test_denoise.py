"""The laws of the projection, on windows of every kind."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.typing import Float64
from tests.windows import Window, size, windows


def moved(points: Float64, gradients: Float64, L: float, mu: float) -> Float64:
    return coco.denoise(points, gradients, L=L, mu=mu) - gradients


def assert_close(a: Float64, b: Float64, scale: float, tol: float = 2e-5) -> None:
    # A gap of 1e-9 leaves sqrt(2e-9) = 4e-5 of the distance moved; most answers are far better.
    assert np.abs(a - b).max() <= tol * scale


@given(window=windows())
def test_weights_are_a_symmetric_average_and_come_from_the_multipliers(window: Window) -> None:
    points, gradients, L, mu = window
    solution = coco.solve(points, gradients, L=L, mu=mu)
    W = solution.weights
    assert W.min() >= 0.0
    np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(W, W.T, atol=1e-9)
    residuals = gradients - 0.5 * (L + mu) * points
    expected = 0.5 * (L + mu) * points + W @ residuals
    assert_close(solution.gradients, expected, size(points, gradients, L), 1e-9)
    lam = np.minimum(solution.multipliers, 1e13)  # points that coincide have infinite ones
    np.testing.assert_array_equal(lam, lam.T)
    assert lam.min() >= 0.0
    inverse = np.linalg.inv(np.eye(len(points)) + np.diag(lam.sum(axis=1)) - lam)
    if lam.max() < 1e6:
        np.testing.assert_allclose(W, inverse, atol=1e-6)


@given(window=windows(), seed=st.integers(0, 2**32))
def test_unequal_variances_are_optimal_too(window: Window, seed: int) -> None:
    points, gradients, L, mu = window
    variance = np.random.default_rng(seed).uniform(0.1, 10.0, len(points))
    solution = coco.solve(points, gradients, L=L, mu=mu, noise_variance=variance)
    assert solution.gap <= 1e-9
    rescaled = coco.solve(points, gradients, L=L, mu=mu, noise_variance=1e3 * variance)
    np.testing.assert_allclose(rescaled.weights, solution.weights, atol=1e-8)
    finite = np.isfinite(solution.multipliers)
    top = solution.multipliers[finite].max()
    np.testing.assert_allclose(
        1e3 * rescaled.multipliers[finite], solution.multipliers[finite], atol=1e-6 * top
    )


@given(window=windows(), seed=st.integers(0, 2**32))
def test_order_shifts_and_rotations_do_not_matter(window: Window, seed: int) -> None:
    points, gradients, L, mu = window
    rng, d, scale = np.random.default_rng(seed), points.shape[1], size(points, gradients, L)
    order, Q = rng.permutation(len(points)), np.linalg.qr(rng.normal(size=(d, d)))[0]
    x = points[order] @ Q + scale / L * rng.normal(size=d)
    g = gradients[order] @ Q + scale * rng.normal(size=d)
    assert_close(moved(x, g, L, mu), moved(points, gradients, L, mu)[order] @ Q, scale)


@given(window=windows(), a=st.integers(-440, 440), b=st.integers(-440, 440))
def test_scaling_by_powers_of_two_carries_over_to_the_last_bit(
    window: Window, a: int, b: int
) -> None:
    points, gradients, L, mu = window
    theta = coco.denoise(points, gradients, L=L, mu=mu)
    unit = 2.0 ** (b - a)
    scaled = coco.denoise(points * 2.0**a, gradients * 2.0**b, L=L * unit, mu=mu * unit)
    np.testing.assert_array_equal(scaled, theta * 2.0**b)


@given(window=windows(), slope=st.floats(-5, 5))
def test_adding_a_quadratic_shifts_the_curvature_bounds(window: Window, slope: float) -> None:
    points, gradients, L, mu = window
    shift = slope * L
    if L + shift <= 0.0:
        shift = 0.0
    assert_close(
        moved(points, gradients + shift * points, L + shift, mu + shift),
        moved(points, gradients, L, mu),
        size(points, gradients, L) + abs(shift) * np.ptp(points),
    )


@given(window=windows())
def test_denoising_twice_is_denoising_once(window: Window) -> None:
    points, gradients, L, mu = window
    once = coco.denoise(points, gradients, L=L, mu=mu)
    twice = coco.denoise(points, once, L=L, mu=mu)
    assert_close(twice, once, size(points, gradients, L), 1e-9)


@given(window=windows())
def test_tighter_curvature_bounds_move_further(window: Window) -> None:
    """Each set contains the next: merely smooth, convex, strongly convex."""
    points, gradients, L, _ = window
    distances = [np.linalg.norm(moved(points, gradients, L, mu)) for mu in (-L, 0.0, L / 3)]
    scale = 1e-4 * size(points, gradients, L)
    assert distances[0] <= distances[1] + scale
    assert distances[1] <= distances[2] + scale


def test_closed_form_of_theorem_3_1() -> None:
    rng = np.random.default_rng(1)
    for L in (0.3, 1.0, 7.0):
        x = rng.normal(size=(2, 5))
        g = 3.0 * rng.normal(size=(2, 5))
        apart = g[0] - g[1] - L / 2 * (x[0] - x[1])
        reach = L / 4 * np.linalg.norm(x[0] - x[1]) * apart / np.linalg.norm(apart)
        middle = (g[0] + g[1]) / 2
        lean = L / 4 * (x[0] - x[1])
        expected = np.array([middle + lean + reach, middle - lean - reach])
        np.testing.assert_allclose(coco.denoise(x, g, L=L), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "covariance"),
    [("auto", None), ("auto", [1.0, 2.0, 3.0]), ("barrier", None), ("fdpg", None)],
)
def test_coinciding_points_get_the_mean_weighted_by_precision(method: str, covariance: Any) -> None:
    gradients = np.random.default_rng(2).normal(size=(4, 3))
    variance = np.array([1.0, 2.0, 5.0, 0.5])
    options: dict[str, Any] = {
        "noise_variance": variance,
        "covariance": covariance,
        "method": method,
    }
    solution = coco.solve(np.ones((4, 3)), gradients, L=1.0, **options)
    mean = (gradients / variance[:, None]).sum(axis=0) / (1.0 / variance).sum()
    np.testing.assert_allclose(solution.gradients, np.tile(mean, (4, 1)), atol=1e-12)
    assert np.isinf(solution.multipliers[0, 1])
    assert solution.gap <= 1e-12


def test_auto_tells_which_method_answered() -> None:
    rng = np.random.default_rng(0)
    for K, distinct in ((1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (9, 2), (150, 150)):
        points = rng.normal(size=(distinct, 3))[np.arange(K) % distinct]
        gradients = 10.0 * rng.normal(size=(K, 3))
        solution, denoiser = coco.solve(points, gradients, L=1.0), coco.Denoiser(1.0, window=K)
        for x, g in zip(points, gradients, strict=True):
            denoiser(x, g)
        for found in (solution, denoiser.solution):
            assert found.method == ("newton" if distinct > 2 else "closed-form")
            assert found.gap <= 1e-9
            assert bool(found.iterations) == (distinct > 2)
        if distinct < 3:  # what computed it is what its name says
            named = coco.solve(points, gradients, L=1.0, method="closed-form")
            np.testing.assert_allclose(named.gradients, solution.gradients, rtol=1e-12)
