"""The gradients of one function: the laws of the tight set, and its certificate by hand."""

from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.certificate import balanced
from coco_denoiser.typing import Float64
from tests.families import box, hard, path
from tests.windows import windows

cp: Any = cvxpy  # its names are built at run time, out of sight of type checkers
Window = tuple[Float64, Float64, float, float]
METHODS = ("one-function", "conic")


def solve(points: Float64, gradients: Float64, **options: Any) -> coco.Solution:
    return coco.solve(points, gradients, constraints="interpolation", **options)


def slacks(points: Float64, theta: Float64, f: Float64, L: float, mu: float) -> Float64:
    """By how much each ordered pair obeys the inequality as it is printed, (K, K).

    Taylor, Hendrickx and Glineur (2017), Theorem 4, which has no centre and no scale.
    """
    x = points - points[0]
    dx, dt = x[:, None] - x[None], theta[:, None] - theta[None]
    squared = np.sum(dt**2, axis=2) / L + mu * np.sum(dx**2, axis=2)
    squared = squared - 2.0 * mu / L * np.sum(dt * dx, axis=2)
    linear = np.einsum("jc,ijc->ij", theta, dx)
    return np.asarray(f[:, None] - f[None] - linear - squared / (2.0 * (1.0 - mu / L)))


def size(points: Float64, gradients: Float64, L: float) -> float:
    """The scale that rounding is relative to: the spread of g and of L x."""
    return float(np.ptp(gradients, axis=0).max() + L * np.ptp(points, axis=0).max()) + 1e-300


def assert_close(a: Float64, b: Float64, scale: float, tol: float = 5e-5) -> None:
    # A gap of 1e-9 leaves sqrt(2e-9) = 4e-5 of the distance moved; most answers are far better.
    assert np.abs(a - b).max() <= tol * scale


def centred(window: tuple[Float64, Float64]) -> tuple[Float64, Float64]:
    """Points and gradients around 0 and of size 1: what solvers without a scale need."""
    points, gradients = (table - table.mean(axis=0) for table in window)
    return points / 10.0, gradients / 10.0


@given(window=windows(max_points=6))
@settings(max_examples=60)
def test_the_answer_obeys_the_printed_inequality(window: Window) -> None:
    points, gradients, L, mu = window
    solution = solve(points, gradients, L=L, mu=mu)
    assert solution.gap <= 1e-9
    assert solution.violation <= 1e-9
    assert solution.values is not None
    theta, f = solution.gradients, solution.values
    x = points - points[0]
    scale = np.abs(f).max() + np.ptp(theta) ** 2 / L + (np.abs(theta).max() + L) * np.ptp(x)
    rounding = (1e-15 * np.abs(theta).max()) ** 2 / L
    assert slacks(points, theta, f, L, mu).min() >= -1e-9 * scale - rounding


@pytest.mark.parametrize("mu", [-1.0, 0.0, 1.0 / 3.0])
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_agrees_with_cvxpy(mu: float, observed: bool, method: str) -> None:
    rng = np.random.default_rng(4)
    for points, gradients in map(centred, (box(rng, 5, 3), path(rng, 5, 3), box(rng, 4, 12, 30.0))):
        K, d = points.shape
        variance = np.asarray(rng.uniform(0.5, 2.0, K))
        theta, f = cp.Variable((K, d)), cp.Variable(K)
        # After the shift by mu / 2 ||x||^2 the function is convex, and L - mu smooth.
        shifted = theta - mu * points
        constraints = [
            f[i] - f[j]
            >= shifted[j] @ (points[i] - points[j])
            + cp.sum_squares(shifted[i] - shifted[j]) / (2.0 * (1.0 - mu))
            for i in range(K)
            for j in range(K)
            if i != j
        ]
        objective = cp.sum_squares(cp.multiply(theta - gradients, variance[:, None] ** -0.5))
        options: dict[str, Any] = {}
        if observed:
            seen = 0.5 * np.sum(points**2, axis=1) + rng.normal(size=K)
            options = {"values": seen, "value_variance": 4.0}
            lifted = f + 0.5 * mu * np.sum(points**2, axis=1)
            objective += cp.sum_squares(lifted - seen) / 4.0
        value = cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL)
        if method == "conic":
            options["tol"] = 1e-6  # Clarabel does not reach 1e-9 always
        ours = solve(
            points, gradients, L=1.0, mu=mu, noise_variance=variance, method=method, **options
        )
        assert ours.method == method
        assert ours.values is not None
        cost = np.sum((ours.gradients - gradients) ** 2 / variance[:, None])
        if observed:
            cost += np.sum((ours.values - seen) ** 2) / 4.0
        assert cost == pytest.approx(value, rel=1e-6)
        np.testing.assert_allclose(ours.gradients, theta.value, atol=2e-3)


def by_hand(
    points: Float64, gradients: Float64, L: float, multipliers: Float64
) -> tuple[float, float]:
    """The dual value for mu = 0, from the Lagrangian of the problem as it is printed."""
    K = len(points)
    everyone = np.ones((K, K), dtype=bool)
    a = balanced(multipliers, everyone, ~everyone)
    # 1/2 |theta|^2 - <g, theta> + sum a_ij (<theta_j, x_i - x_j> + |theta_i - theta_j|^2 / 2 L)
    pull = (a + a.T) / L
    hessian = np.eye(K) + np.diag(pull.sum(axis=1)) - pull
    linear = -gradients + a.T @ points - a.sum(axis=0)[:, None] * points
    theta = np.linalg.solve(hessian, -linear)
    dual = 0.5 * np.sum(theta * (hessian @ theta)) + np.sum(linear * theta)
    return dual + 0.5 * np.sum(gradients**2), float(np.abs(a - multipliers).max())


@pytest.mark.parametrize("method", METHODS)
def test_anyone_can_recompute_the_certificate(method: str) -> None:
    rng = np.random.default_rng(3)
    for points, gradients in map(centred, (box(rng, 6, 4), path(rng, 6, 4), path(rng, 6, 4, 0.05))):
        for tol in (1e-3, 1e-9):
            solution = solve(points, gradients, L=1.0, method=method, tol=tol)
            dual, repaired = by_hand(points, gradients, 1.0, solution.multipliers)
            primal = 0.5 * np.sum((solution.gradients - gradients) ** 2)
            assert repaired <= 1e-6 * solution.multipliers.max()
            assert solution.gap == pytest.approx((primal - dual) / primal, rel=1e-3, abs=1e-11)


@given(window=windows(max_points=6), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_the_invariances_of_the_problem(window: Window, seed: int) -> None:
    """A shift of x, an affine function, a rotation, the units, and a quadratic change nothing."""
    points, gradients, L, mu = window
    rng = np.random.default_rng(seed)
    scale, d = size(points, gradients, L), points.shape[1]
    move = solve(points, gradients, L=L, mu=mu).gradients - gradients

    def moved(x: Float64, g: Float64, upper: float, lower: float) -> Float64:
        return solve(x, g, L=upper, mu=lower).gradients - g

    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    away = scale * rng.normal(size=(2, d))
    assert_close(moved(points + away[0] / L, gradients + away[1], L, mu), move, scale)
    assert_close(moved(points @ Q, gradients @ Q, L, mu), move @ Q, scale)
    unit = 10.0 ** rng.uniform(-3, 3)
    assert_close(moved(points * unit, gradients, L / unit, mu / unit), move, scale)
    bend = rng.uniform(0.0, 3.0) * L
    wider = scale + bend * np.ptp(points)
    assert_close(moved(points, gradients + bend * points, L + bend, mu + bend), move, wider)
    order = rng.permutation(len(points))
    assert_close(moved(points[order], gradients[order], L, mu), move[order], scale)


@given(window=windows(max_points=7), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_the_weighted_centroid_is_kept(window: Window, seed: int) -> None:
    """As the multipliers that flow into a point flow out of it."""
    points, gradients, L, mu = window
    variance = np.random.default_rng(seed).uniform(0.1, 10.0, len(points))
    theta = solve(points, gradients, L=L, mu=mu, noise_variance=variance).gradients
    drift = ((theta - gradients) / variance[:, None]).sum(axis=0)
    assert_close(drift, np.zeros_like(drift), 10.0 * size(points, gradients, L))


@given(window=windows(max_points=6))
@settings(max_examples=40)
def test_it_is_part_of_the_pairwise_set_and_two_points_are_the_same(window: Window) -> None:
    """Two values can always be chosen so that the trapezoidal rule is exact."""
    points, gradients, L, mu = window
    scale = size(points, gradients, L)
    tight = solve(points, gradients, L=L, mu=mu).gradients
    assert_close(coco.denoise(points, tight, L=L, mu=mu), tight, scale)
    loose = coco.denoise(points, gradients, L=L, mu=mu)
    excess = np.linalg.norm(tight - gradients) - np.linalg.norm(loose - gradients)
    assert excess >= -1e-4 * scale
    for method in ("auto", "one-function"):
        two = solve(points[:2], gradients[:2], L=L, mu=mu, method=method, throw=False).gradients
        assert_close(two, coco.denoise(points[:2], gradients[:2], L=L, mu=mu), scale)


def test_pairwise_feasible_gradients_need_not_belong_to_a_function() -> None:
    """A rotation is as far from its points as its bounds allow, and has no potential."""
    angle = 2.0 * np.pi * np.arange(3) / 3.0
    points = np.column_stack((np.cos(angle), np.sin(angle)))
    turned = points @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    gradients = 0.5 * points + 0.5 * turned  # phi = theta - x / 2 has ||phi|| = r ||x||
    pairwise = coco.solve(points, gradients, L=1.0)
    assert pairwise.status is coco.Status.UNCHANGED
    tight = solve(points, gradients, L=1.0)
    assert tight.status is coco.Status.SOLVED
    # By symmetry the rotation shrinks to t: 3 t^2 / 4 + 2 t <turned, D> / 2 ... = 3 / 4.
    side, circulation = 3.0 / 4.0, np.sqrt(3.0) / 2.0
    t = (-circulation + np.sqrt(circulation**2 + 4.0 * side * side)) / (2.0 * side)
    np.testing.assert_allclose(tight.gradients, 0.5 * points + 0.5 * t * turned, atol=1e-6)


def test_on_a_line_the_pairs_are_enough() -> None:
    """In one dimension a monotone, L-Lipschitz gradient always has an integral."""
    rng = np.random.default_rng(5)
    for K in (3, 8, 16):
        points, gradients = box(rng, K, 1)
        assert_close(
            solve(points, gradients, L=1.0).gradients,
            coco.denoise(points, gradients, L=1.0),
            size(points, gradients, 1.0),
        )


@pytest.mark.parametrize("mu", [-1.0, 0.0, 1.0 / 3.0])
def test_exact_gradients_are_unchanged(mu: float) -> None:
    rng = np.random.default_rng(6)
    points = rng.normal(size=(8, 4))
    exact = points * np.linspace(1.0, 1.0 / 3.0, 4)
    solution = solve(points, exact, L=1.0, mu=mu)
    assert solution.status is coco.Status.UNCHANGED
    np.testing.assert_array_equal(solution.gradients, exact)
    assert solution.gap == 0.0
    f = 0.5 * np.sum(points * exact, axis=1)
    again = solve(points, exact, L=1.0, mu=mu, values=f, value_variance=1.0)
    assert again.status is coco.Status.UNCHANGED
    assert again.values is not None
    np.testing.assert_allclose(again.values, f, atol=1e-12)


def test_one_observation_is_its_own_answer() -> None:
    solution = solve(np.ones((1, 3)), np.ones((1, 3)), L=1.0, values=[7.0], value_variance=2.0)
    assert solution.status is coco.Status.UNCHANGED
    np.testing.assert_array_equal(solution.gradients, np.ones((1, 3)))
    assert solution.values is not None
    assert solution.values.tolist() == [7.0]


def test_points_that_coincide_share_gradient_and_value() -> None:
    rng = np.random.default_rng(7)
    points = rng.normal(size=(4, 3))[[0, 1, 0, 2, 3, 1]]
    gradients, seen = points + 2.0 * rng.normal(size=(6, 3)), rng.normal(size=6)
    variance = rng.uniform(0.5, 2.0, 6)
    for options in ({}, {"values": seen, "value_variance": np.full(6, 3.0)}):
        solution = solve(points, gradients, L=1.0, noise_variance=variance, **options)
        assert solution.gap <= 1e-9
        assert solution.values is not None
        for i, j in ((0, 2), (1, 5)):
            np.testing.assert_allclose(solution.gradients[i], solution.gradients[j], atol=1e-12)
            assert solution.values[i] == pytest.approx(solution.values[j], abs=1e-12)
            assert np.isinf(solution.multipliers[i, j])
        first, counts = np.array([0, 1, 3, 4]), [[0, 2], [1, 5], [3], [4]]
        n = 1.0 / variance
        merged = solve(
            points[first],
            np.array([n[g] @ gradients[g] / n[g].sum() for g in counts]),
            L=1.0,
            noise_variance=np.array([1.0 / n[g].sum() for g in counts]),
            **(
                {
                    "values": [seen[g].mean() for g in counts],
                    "value_variance": [3.0 / len(g) for g in counts],
                }
                if options
                else {}
            ),
        )
        assert_close(solution.gradients[first], merged.gradients, 10.0)


def test_observed_values_help() -> None:
    """The truth is feasible, so that no answer costs more; exact values lower the error."""
    rng = np.random.default_rng(8)
    points = rng.normal(size=(6, 3)) * 5.0
    exact = points * np.linspace(1.0, 1.0 / 3.0, 3)
    f = 0.5 * np.sum(points * exact, axis=1)
    noise = 10.0 * rng.normal(size=(20, *points.shape))
    without, known = [], []
    for w in noise:
        answer = solve(points, exact + w, L=1.0, values=f, value_variance=0.01)
        assert answer.values is not None
        moved = np.sum((answer.gradients - exact - w) ** 2)
        assert moved + np.sum((answer.values - f) ** 2) / 0.01 <= np.sum(w**2) * (1.0 + 1e-6)
        known.append(np.sum((answer.gradients - exact) ** 2))
        without.append(np.sum((solve(points, exact + w, L=1.0).gradients - exact) ** 2))
    assert np.mean(known) < np.mean(without)


@pytest.mark.parametrize(("K", "d"), [(3, 2), (8, 1), (8, 3), (8, 40)])
def test_hard_cases_are_solved_or_it_says_so(K: int, d: int) -> None:
    rng = np.random.default_rng([K, d])
    for case in hard(rng, K, d):
        solution = solve(case.points, case.gradients, L=case.L, throw=False)
        assert solution.violation <= 1e-9, case.name
        if "near-duplicates" in case.name:  # the squares of their distances are rounding
            assert solution.status.success == (solution.gap <= 1e-9), case.name
        else:
            assert solution.status.success, (case.name, solution.gap)


def test_the_iteration_limit_is_a_status_with_the_best_answer() -> None:
    points, gradients = path(np.random.default_rng(0), 8, 10)
    for method in METHODS:
        with pytest.raises(coco.ConvergenceError, match=method) as caught:
            solve(points, gradients, L=1.0, method=method, max_iter=1, tol=1e-12)
        assert caught.value.solution.violation <= 1e-9
        assert caught.value.solution.gap > 1e-12
