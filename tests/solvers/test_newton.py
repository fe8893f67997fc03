"""Newton's method: fast on ordinary windows, honest on all others."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64
from tests.families import FAMILIES, Case, box, noisy, sgd
from tests.families import path as sgd_path
from tests.fuzz import _stationary
from tests.windows import average, by, distances, plain


def path(K: int, d: int, step: float, seed: int) -> Problem:
    """K points along SGD with noise 10 on a quadratic, of unequal variances."""
    rng = np.random.default_rng(seed)
    points, gradients = sgd(rng, K, d, step, start=100.0)
    return Case(points, gradients, noise_variance=rng.uniform(0.5, 2.0, K)).reduced()


def verdict(window: Problem, lam: Float64) -> float:
    _, phi = average(lam, window)
    return max(kernels.certify(window, phi, lam))


@pytest.mark.parametrize("step", [0.7, 0.05, 0.001])
@pytest.mark.parametrize(("K", "d"), [(3, 1), (8, 10), (16, 112), (32, 10)])
def test_an_ordinary_window_takes_a_few_steps(K: int, d: int, step: float) -> None:
    for seed in range(5):
        window = path(K, d, step, seed)
        lam, steps = by("newton", window)
        assert verdict(window, lam) <= 1e-9
        assert steps <= 7
        slow = by("barrier", window)[0]
        np.testing.assert_allclose(average(lam, window)[1], average(slow, window)[1], atol=1e-4)


def test_one_pair_at_its_bound_takes_one_step() -> None:
    """The reason for 1 / w = 1 / rho: it is linear in the multiplier of a single pair."""
    rng = np.random.default_rng(0)
    for excess in (1.5, 10.0, 1e3):
        residuals, bounds = rng.normal(size=(3, 4)), np.full((3, 3), np.inf)
        bounds[0, 1] = bounds[1, 0] = np.linalg.norm(residuals[0] - residuals[1]) / excess
        window = plain(residuals, bounds, rng.uniform(0.5, 1.0, 3))
        lam, steps = by("newton", window)
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
            solved += solvers.solve(window, method="newton").status.success
    assert solved >= 95


@pytest.mark.parametrize("method", ["newton", "barrier"])
def test_multipliers_are_of_pairs_at_their_bounds_only(method: str) -> None:
    window = path(12, 10, 0.7, 0)
    lam, _ = by(method, window)
    _, phi = average(lam, window)
    active = lam > 0.0
    assert 0 < np.count_nonzero(active) < active.size - len(active)
    np.testing.assert_allclose(distances(phi)[active], window.bounds[active], rtol=1e-6)
    assert (lam >= 0.0).all()
    np.testing.assert_array_equal(lam, lam.T)


def test_the_best_step_is_kept_where_the_next_is_worse() -> None:
    window = path(12, 2, 0.7, 2)
    gaps = [
        verdict(window, by("newton", window, tol=1e-14, max_iter=limit)[0]) for limit in range(1, 9)
    ]
    assert (np.diff(gaps) <= 0.0).all()
    assert gaps[0] > 1e3 * gaps[-1]


@pytest.mark.parametrize("method", ["newton", "barrier"])
@pytest.mark.parametrize("K", [9, 30])
def test_points_on_a_line_need_only_their_neighbours(method: str, K: int) -> None:
    rng = np.random.default_rng(1)
    points = rng.permutation(10.0 * np.arange(K))[:, None]
    window = Case(points, noisy(points, rng)).reduced()
    lam, _ = by(method, window, tol=1e-10)
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
    found = solvers.solve(plain(residuals, bounds), method="newton")
    assert found.status.success
    lam = found.multipliers
    assert lam[0, 2] > lam[1, 2] == 0.0


@pytest.mark.parametrize(("make", "K"), [(box, 300), (sgd_path, 300), (box, 165)])
def test_a_large_window_is_solved_exactly_on_few_of_its_pairs(make: Any, K: int) -> None:
    """By conjugate gradients: the matrix of the pairs is not stored."""
    covariance = np.geomspace(0.1, 1.0, 10) if K == 165 else None
    case = Case(*make(np.random.default_rng(0), K, 10))._replace(covariance=covariance)
    solution = case.solve()
    assert solution.method == "newton"
    assert solution.iterations <= 6  # 4: each is nearly as good as with the matrix
    assert max(solution.gap, solution.violation) <= 1e-9
    # The certificate is over all pairs, by code that the solver does not share.
    phi = solution.gradients - 0.5 * case.points
    assert (distances(phi) <= 0.5 * distances(case.points) * (1.0 + 1e-8) + 1e-9).all()
    assert np.count_nonzero(solution.multipliers) <= 20 * K


@pytest.mark.parametrize("strongest", [1.0, 1e15])
def test_elimination_keeps_every_digit_however_strong_the_pulls(strongest: float) -> None:
    """Nothing is subtracted."""
    K, q = 211, 3
    rng = np.random.default_rng(3)
    a = np.triu(strongest ** rng.random((K, K)) * (rng.random((K, K)) < 0.05), 1)
    n, h = rng.uniform(0.1, 1.0, K), rng.random((K, q))
    bounds = np.full((K, K), 1e3)
    np.fill_diagonal(bounds, 0.0)
    bounds[0, 1] = bounds[1, 0] = 1e-3 * np.linalg.norm(h[0] - h[1])  # one is broken
    phi, W, *_ = kernels.average(plain(h, bounds, n), a + a.T, 1e9)
    right = np.hstack((n[:, None] * h, np.diag(n))).astype(np.longdouble)
    exact = _stationary((a + a.T).astype(np.longdouble), n.astype(np.longdouble), right)
    np.testing.assert_allclose(np.hstack((phi, W)), exact.astype(float), rtol=1e-11)
