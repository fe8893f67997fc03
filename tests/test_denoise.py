"""The laws of the projection, on windows of every kind."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.typing import Float64
from tests.families import Case
from tests.test_streaming import follow
from tests.windows import windows


def moved(case: Case, **options: Any) -> Float64:
    return case.solve(**options).gradients - case.gradients


def assert_close(a: Float64, b: Float64, scale: float, tol: float = 2e-5) -> None:
    # A gap of 1e-9 leaves sqrt(2e-9) = 4e-5 of the distance moved; most answers are far better.
    assert np.abs(a - b).max() <= tol * scale


@given(case=windows())
def test_weights_are_an_average_and_come_from_the_multipliers(case: Case) -> None:
    solution, v = case.solve(), case.variances
    W, shift = solution.weights, 0.5 * (case.L + case.mu) * case.points
    assert W.min() >= 0.0
    np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(W * v, (W * v).T, atol=1e-9 * v.max())
    assert_close(solution.gradients, shift + W @ (case.gradients - shift), case.size, 1e-9)
    lam = np.minimum(solution.multipliers, 1e13)  # points that coincide have infinite ones
    np.testing.assert_array_equal(lam, lam.T)
    assert lam.min() >= 0.0
    if lam.max() < 1e6:
        inverse = np.linalg.inv(np.diag(1.0 / v) + np.diag(lam.sum(axis=1)) - lam)
        np.testing.assert_allclose(W, inverse / v, atol=1e-6)


@given(case=windows(), seed=st.integers(0, 2**32))
def test_order_shifts_and_rotations_do_not_matter(case: Case, seed: int) -> None:
    rng, (K, d) = np.random.default_rng(seed), case.points.shape
    order, Q = rng.permutation(K), np.linalg.qr(rng.normal(size=(d, d)))[0]
    x = case.points[order] @ Q + case.size / case.L * rng.normal(size=d)
    g = case.gradients[order] @ Q + case.size * rng.normal(size=d)
    other = case._replace(points=x, gradients=g, noise_variance=case.variances[order])
    assert_close(moved(other), moved(case)[order] @ Q, case.size)


@given(case=windows(), a=st.integers(-440, 440), b=st.integers(-440, 440), c=st.integers(-99, 99))
def test_scaling_by_powers_of_two_carries_over_to_the_last_bit(
    case: Case, a: int, b: int, c: int
) -> None:
    x, g, L, mu, *_ = case
    unit, found = 2.0 ** (b - a), case.solve()
    scaled = Case(x * 2.0**a, g * 2.0**b, L * unit, mu * unit, case.variances * 2.0**c).solve()
    np.testing.assert_array_equal(scaled.gradients, found.gradients * 2.0**b)
    np.testing.assert_array_equal(scaled.weights, found.weights)
    np.testing.assert_array_equal(scaled.multipliers * 2.0**c, found.multipliers)


@given(case=windows(), slope=st.floats(-5, 5))
def test_adding_a_quadratic_shifts_the_curvature_bounds(case: Case, slope: float) -> None:
    x, g, L, mu, *_ = case
    shift = slope * L if L + slope * L > 0.0 else 0.0
    other = Case(x, g + shift * x, L + shift, mu + shift, case.noise_variance)
    assert_close(moved(other), moved(case), case.size + abs(shift) * np.ptp(x))


@given(case=windows())
def test_denoising_twice_is_denoising_once(case: Case) -> None:
    once = case.solve().gradients
    assert_close(case.solve(gradients=once).gradients, once, case.size, 1e-9)


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
    case = Case(np.ones((4, 3)), gradients, noise_variance=variance, covariance=covariance)
    solution = case.solve(method=method)
    mean = (gradients / variance[:, None]).sum(axis=0) / (1.0 / variance).sum()
    np.testing.assert_allclose(solution.gradients, np.tile(mean, (4, 1)), atol=1e-12)
    assert np.isinf(solution.multipliers[0, 1])
    assert solution.gap <= 1e-12


def test_auto_tells_which_method_answered() -> None:
    rng = np.random.default_rng(0)
    for d, (K, distinct) in product(
        (1, 3), ((1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (9, 2), (16, 16), (150, 150))
    ):
        points = rng.normal(size=(distinct, d))[np.arange(K) % distinct]
        gradients, v = 10.0 * rng.normal(size=(K, d)), rng.uniform(0.5, 2.0, K)
        case, denoiser = Case(points, gradients, noise_variance=v), coco.Denoiser(1.0, window=K)
        follow(denoiser, points, gradients, v)
        solution = case.solve()
        for found in (solution, denoiser.solution):
            several = "line" if d == 1 else "newton"
            assert found.method == (several if distinct > 2 else "closed-form")
            assert found.gap <= 1e-9
            assert bool(found.iterations) == (found.method == "newton")
        if distinct < 3:  # what computed it is what its name says
            named = case.solve(method="closed-form")
            np.testing.assert_allclose(named.gradients, solution.gradients, rtol=1e-12)
