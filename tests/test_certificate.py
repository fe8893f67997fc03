"""The reduced problem, the certificate, and what multipliers mean, each from its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64
from tests.families import Case, box, path
from tests.windows import average, distances, plain, windows

SPREAD = np.array([0.5, 3.0, 7.0, 1.0])


def noisy(seed: int, covariance: Float64 | None = None) -> Case:
    rng = np.random.default_rng(seed)
    points, gradients = (box, path)[seed % 2](rng, 6, 4)
    return Case(points, gradients, 3.0, 0.0, 10.0 ** rng.uniform(-1, 1, 6), covariance)


def by_definition(problem: Problem, phi: Float64, lam: Float64) -> float:
    """The gap that the certificate's docstring defines, with the forces it defines."""
    K, q = phi.shape
    n = problem.precisions[:, None] * problem.coordinate_precisions
    h, gap = problem.residuals, 0.0
    laplacian = np.diag(lam.sum(axis=1)) - lam
    rest = n * (h - phi) - laplacian @ phi
    u = np.column_stack(
        [np.linalg.solve(np.diag(n[:, c]) + laplacian, rest[:, c]) for c in range(q)]
    )
    f = n * (h - phi) - laplacian @ (phi + u)
    gap += 0.5 * float(np.sum(f * f / n))
    for i in range(K):
        for j in range(i):
            y = lam[i, j] * (phi[i] - phi[j] + u[i] - u[j])
            gap += abs(problem.bounds[i, j] * np.linalg.norm(y) - y @ (phi[i] - phi[j]))
    return gap / (0.5 * float(np.sum(n * (phi - h) ** 2)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spread", [None, SPREAD])
def test_the_certificate_is_its_definition(seed: int, spread: Float64 | None) -> None:
    problem, rng = noisy(seed, spread).reduced(), np.random.default_rng(seed)
    phi = problem.residuals + 0.3 * rng.normal(size=problem.residuals.shape)
    lam = rng.uniform(0.0, 2.0, (6, 6))
    lam = np.triu(lam, 1) + np.triu(lam, 1).T
    gap, violation = kernels.certify(problem, phi, lam)
    assert gap == pytest.approx(by_definition(problem, phi, lam), rel=1e-9)
    over = distances(phi) / np.where(problem.bounds > 0.0, problem.bounds, np.inf)
    assert violation == pytest.approx(over.max() - 1.0, rel=1e-9)
    just = phi * (1.0 + 1e-7) / over.max()
    assert kernels.certify(problem, just, lam)[1] == pytest.approx(1e-7, rel=1e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("held", [False, True])
def test_next_to_a_residual_far_away_the_others_keep_their_certificate(
    seed: int, held: bool
) -> None:
    alone = noisy(seed).reduced()
    rng, scale = np.random.default_rng(seed), 1e-10
    phi = alone.residuals + 0.3 * rng.normal(size=alone.residuals.shape)
    lam, bounds = np.zeros((7, 7)), np.full((7, 7), 2.0)
    lam[:6, :6] = np.triu(rng.uniform(0.0, 2.0, (6, 6)), 1)
    lam[0, 1] = np.inf if held else lam[0, 1]
    lam, bounds[:6, :6], far = lam + lam.T, scale * alone.bounds, np.eye(1, 4)
    beside = plain(
        np.vstack((scale * alone.residuals, far)), bounds, np.append(alone.precisions, 1.0)
    )
    found = kernels.certify(beside, np.vstack((scale * phi, far)), lam)
    np.testing.assert_allclose(found, kernels.certify(alone, phi, lam[:6, :6]), rtol=1e-9)


def test_points_apart_that_move_as_one_are_held_by_forces_between_every_two() -> None:
    """A third of the difference of what pulls at two, each: the rest is the same for all."""
    h = np.array([[3.0, 0.0], [0.0, 1.0], [-1.0, 2.0]])
    n, phi = np.array([1.0, 0.5, 0.25]), np.array([[0.5, 0.25], [0.25, 0.5], [0.125, 0.0]])
    bounds = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    gap, _ = kernels.certify(plain(h, bounds, n), phi, np.where(np.eye(3), 0.0, np.inf))
    f = n[:, None] * (h - phi)
    left = f.sum(axis=0) / 3.0
    expected = 0.5 * (left @ left) * (1.0 / n).sum()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        y = (f[i] - f[j]) / 3.0
        expected += bounds[i, j] * np.linalg.norm(y) - y @ (phi[i] - phi[j])
    value = 0.5 * float(np.sum(n[:, None] * (h - phi) ** 2))
    assert gap == pytest.approx(expected / value, rel=1e-12)


def test_any_multipliers_average_to_something_feasible() -> None:
    """Too weak ones leave bounds broken: W h is drawn to the centroid."""
    problem = noisy(0).reduced()
    lam = np.full((6, 6), 1e-3)
    np.fill_diagonal(lam, 0.0)
    W, phi = average(lam, problem)
    np.testing.assert_allclose(phi, W @ problem.residuals, atol=1e-12)
    np.testing.assert_allclose(W.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(problem.precisions @ W, problem.precisions, atol=1e-12)
    assert kernels.certify(problem, phi, lam)[1] <= 1e-9


@given(case=windows(max_points=5), seed=st.integers(0, 2**32))
def test_the_gap_bounds_the_error_of_any_weights(case: Case, seed: int) -> None:
    """Feasible answers that are worse than the optimum have a gap of at least the difference."""
    rng, observed, best = np.random.default_rng(seed), case.reduced(), case.solve()
    # Any mixture of the optimum with the centroid is feasible.
    mix = rng.uniform()
    W = mix * best.weights + (1.0 - mix) / len(best.weights)
    lam = best.multipliers * case.variances.min() * rng.uniform(0.5, 1.5)
    gap, violation = kernels.certify(observed, W @ observed.residuals, lam)
    h, n = observed.residuals, observed.precisions
    value, least = (0.5 * n @ np.sum((w @ h - h) ** 2, axis=1) for w in (W, best.weights))
    assert violation <= 1e-9
    if value > 0.0:
        assert gap * value >= (value - least) - 1e-8 * least - 1e-14


@given(case=windows())
@settings(max_examples=50)
def test_the_answer_is_co_coercive(case: Case) -> None:
    """The paper's own inequality, for mu = 0, on the gradients as they are returned."""
    points, gradients, L, *_ = case
    theta = coco.denoise(points, gradients, L=L)
    for i in range(len(points)):
        for j in range(i):
            dx, dt = points[i] - points[j], theta[i] - theta[j]
            scale = np.sum(gradients**2) + L**2 * np.sum(points**2)
            assert dt @ dt <= L * (dt @ dx) + 1e-9 * scale


@pytest.mark.parametrize("multiplier", [0.0, np.nan])
def test_an_answer_that_is_not_a_number_has_an_infinite_gap(multiplier: float) -> None:
    window = Case(*box(np.random.default_rng(0), 4, 3)).reduced()
    phi = window.residuals.copy()
    phi[1, 2] = np.nan
    assert kernels.certify(window, phi, np.full((4, 4), multiplier))[0] == np.inf


def test_a_pair_outside_its_bound_is_mended_and_the_weighted_centroid_kept() -> None:
    x, v = np.array([[0.0], [1.0], [50.0]]), np.array([1.0, 3.0, 1.0])
    g = np.array([[1.0], [0.5], [25.0]])  # the first two disagree: their bound is 0 to 1
    theta = g.copy()
    moved, worst = kernels.repair(kernels.Batch(x, g, v, 0.5, 0.5), theta, 1e-9)
    assert moved
    assert worst == 0.0
    assert abs(theta[1, 0] - theta[0, 0] - 0.5) <= 0.5 * (1.0 + 1e-9)
    assert theta[2, 0] == 25.0
    np.testing.assert_allclose(np.sum((theta - g) / v[:, None]), 0.0, atol=1e-14)


def test_feasible_is_what_obeys_its_bounds_up_to_rounding() -> None:
    residuals, ones = np.array([[0.0], [1.0]]), 1.0 - np.eye(2)
    for excess, feasible in ((0.0, True), (1e-15, True), (1e-9, False), (1e-4, False)):
        found = solvers.solve(plain(residuals, ones / (1.0 + excess)), tol=1e-12)
        assert (found.status is coco.Status.UNCHANGED) == feasible
