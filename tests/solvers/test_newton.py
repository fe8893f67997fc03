"""Newton's method: fast on ordinary windows, honest on all others."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser._core import kernels
from coco_denoiser.certificate import certify
from coco_denoiser.problem import Problem, average
from coco_denoiser.solvers import barrier, interior_point, large, newton
from coco_denoiser.typing import Float64
from tests.families import FAMILIES, Case, noisy, sgd
from tests.windows import distances, plain


def path(K: int, d: int, step: float, seed: int) -> Problem:
    """K points along SGD with noise 10 on a quadratic, of unequal variances."""
    rng = np.random.default_rng(seed)
    points, gradients = sgd(rng, K, d, step, start=100.0)
    return Case(points, gradients, noise_variance=rng.uniform(0.5, 2.0, K)).reduced()


def verdict(window: Problem, lam: Float64) -> float:
    _, phi = average(lam, window)
    return max(certify(window, phi, lam))


@pytest.mark.parametrize("step", [0.7, 0.05, 0.001])
@pytest.mark.parametrize(("K", "d"), [(3, 1), (8, 10), (16, 112), (32, 10)])
def test_an_ordinary_window_takes_a_few_steps(K: int, d: int, step: float) -> None:
    for seed in range(5):
        window = path(K, d, step, seed)
        lam, steps = newton.solve(window, tol=1e-9, max_iter=100)
        assert verdict(window, lam) <= 1e-9
        assert steps <= 7
        slow = barrier.solve(window, tol=1e-9, max_iter=100)[0]
        np.testing.assert_allclose(average(lam, window)[1], average(slow, window)[1], atol=1e-4)


def test_one_pair_at_its_bound_takes_one_step() -> None:
    """The reason for 1 / w = 1 / rho: it is linear in the multiplier of a single pair."""
    rng = np.random.default_rng(0)
    for excess in (1.5, 10.0, 1e3):
        residuals, bounds = rng.normal(size=(3, 4)), np.full((3, 3), np.inf)
        bounds[0, 1] = bounds[1, 0] = np.linalg.norm(residuals[0] - residuals[1]) / excess
        window = plain(residuals, bounds, rng.uniform(0.5, 1.0, 3))
        lam, steps = newton.solve(window, tol=1e-9, max_iter=100)
        assert steps == 1
        assert verdict(window, lam) <= 1e-9


@pytest.mark.parametrize(
    "name",
    [
        *("box of 10.0", "near-duplicates at 1e-06", "L off by 0.1", "far gradients"),
        "rotated tight, variances 1e±6",
    ],
)
def test_hard_windows_are_solved_without_another_method(name: str) -> None:
    """In the plane the multipliers are not unique: without ridge and line search, half fail, and
    so they do next to near points with multipliers from the model alone. Others need multipliers
    that stay above zero, the rounding of each pair, and the first guess."""
    rng, solved = np.random.default_rng(1), 0
    for K, d in ((8, 2), (16, 2), (16, 3), (16, 10), (24, 2)):
        for _ in range(20):
            window = FAMILIES[name](rng, K, d).reduced()
            given = window.residuals, window.bounds, window.precisions
            *_, gap, violation, _ = kernels.solve(*given, 1e-9, -1, 1e-10, "newton")
            solved += max(gap, violation) <= 1e-9
    assert solved >= 95


@pytest.mark.parametrize("method", [newton, barrier, interior_point, large])
def test_multipliers_are_of_pairs_at_their_bounds_only(method: Any) -> None:
    window = path(12, 10, 0.7, 0)
    lam, _ = method.solve(window, tol=1e-9, max_iter=100)
    _, phi = average(lam, window)
    active = lam > 0.0
    assert 0 < np.count_nonzero(active) < active.size - len(active)
    np.testing.assert_allclose(distances(phi)[active], window.bounds[active], rtol=1e-6)
    assert (lam >= 0.0).all()
    np.testing.assert_array_equal(lam, lam.T)


def test_the_best_step_is_kept_where_the_next_is_worse() -> None:
    window = path(12, 2, 0.7, 2)
    gaps = [
        verdict(window, newton.solve(window, tol=1e-14, max_iter=limit)[0]) for limit in range(9)
    ]
    assert (np.diff(gaps) <= 0.0).all()
    assert gaps[0] == gaps[1] > 1e3 * gaps[-1]


def test_more_pairs_than_it_may_cost_are_left_to_others() -> None:
    """L is far too small: nearly all pairs are at their bounds, and the system is too large."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(100, 200))
    window = Case(points, 1e3 * rng.normal(size=points.shape)).reduced()
    assert newton.solve(window, tol=1e-9, max_iter=100)[1] <= 2


@pytest.mark.parametrize("method", [newton, barrier, interior_point, large])
@pytest.mark.parametrize("K", [9, 30])
def test_points_on_a_line_need_only_their_neighbours(method: Any, K: int) -> None:
    rng = np.random.default_rng(1)
    points = rng.permutation(10.0 * np.arange(K))[:, None]
    window = Case(points, noisy(points, rng)).reduced()
    lam, _ = method.solve(window, tol=1e-10, max_iter=100)
    order = np.argsort(points[:, 0])
    pulled = lam[np.ix_(order, order)] > 0.0
    assert not np.triu(pulled, 2).any()
    assert pulled.any()


def test_coinciding_points_are_held_by_their_smallest_bound() -> None:
    """The first two are one point; what pulls at it must act on the one with the smaller bound."""
    residuals = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.5]])
    bounds = np.full((4, 4), 10.0)
    np.fill_diagonal(bounds, 0.0)
    bounds[0, 1] = bounds[1, 0] = 0.0
    bounds[1, 2] = bounds[2, 1] = 1.0 - 1e-5
    bounds[0, 2] = bounds[2, 0] = bounds[1, 2] - 5e-12
    *_, lam, _, _, gap, violation, _ = kernels.solve(
        residuals, bounds, np.ones(4), 1e-9, -1, 1e-10, "newton"
    )
    assert max(gap, violation) <= 1e-9
    assert lam[0, 2] > lam[1, 2] == 0.0
