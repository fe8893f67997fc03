"""Everything that can be asked for at once, against CVXPY on the problem as it is stated."""

from itertools import product
from typing import Any

import cvxpy
import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser.typing import Float64
from tests.families import box, path

cp: Any = cvxpy  # its names are built at run time, out of sight of type checkers


def near(points: Float64, m: int | None) -> list[tuple[int, int]]:
    """The pairs, i > j, one point of which is among the m nearest of the other."""
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    K = len(points)
    reach = np.sort(apart, axis=1)[:, K - 1 if m is None else m]
    return [(i, j) for i in range(K) for j in range(i) if apart[i, j] <= max(reach[i], reach[j])]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("m", [None, 1, 2])
def test_every_combination_is_optimal(m: int | None, spread: bool) -> None:
    rng, mu = np.random.default_rng(4), -0.5
    for window in (box(rng, 6, 3), path(rng, 6, 3)):
        points, gradients = ((t - t.mean(axis=0)) / 10.0 for t in window)
        K, d = points.shape
        v = np.asarray(rng.uniform(0.5, 2.0, K))
        sigma = np.array([0.25, 1.0, 4.0]) if spread else np.ones(d)
        theta = cp.Variable((K, d))
        shifted, constraints = theta - mu * points, []
        for i, j in near(points, m):
            dx, dt = points[i] - points[j], shifted[i] - shifted[j]
            r = (1.0 - mu) / 2
            constraints.append(cp.norm(dt - r * dx) <= r * np.linalg.norm(dx))
        scale = (v[:, None] * sigma) ** -0.5
        objective = cp.sum_squares(cp.multiply(theta - gradients, scale))
        options: dict[str, Any] = {"covariance": sigma} if spread else {}
        value = cp.Problem(cp.Minimize(objective), constraints).solve(solver=cp.CLARABEL)
        for method in ("auto", "conic"):
            ours = coco.solve(
                points,
                gradients,
                L=1.0,
                mu=mu,
                noise_variance=v,
                neighbors=m,
                method=method,
                tol=1e-6,
                **options,
            )
            cost = np.sum(((ours.gradients - gradients) * scale) ** 2)
            assert cost == pytest.approx(value, rel=2e-6)
            np.testing.assert_allclose(ours.gradients, theta.value, atol=2e-3)
            assert (ours.weights is None) == (ours.no_weights is not None)


def test_what_a_method_cannot_do_it_says_with_what_can() -> None:
    asked: list[dict[str, Any]] = [{}, {"covariance": [1.0, 2.0]}]
    methods = ("closed-form", "newton", "interior-point", "barrier", "active-pairs", "fdpg")
    for method, options in product(methods, asked):
        points = np.random.default_rng(0).normal(size=(4, 2))
        able = {
            "closed-form": False,
            "newton": not options,
            "interior-point": not options,
            "barrier": not options,
            "active-pairs": not options,
            "fdpg": True,
        }[method]
        if able:
            assert coco.solve(points, 3.0 * points, L=1.0, method=method, **options).gap <= 1e-9
        else:
            with pytest.raises(ValueError, match=f"method='{method}' .* Use method='auto', or one"):
                coco.solve(points, 3.0 * points, L=1.0, method=method, **options)


def test_a_solution_shows_its_verdict_and_no_arrays() -> None:
    solution = coco.solve(np.eye(3), 9.0 * np.eye(3)[::-1], L=1.0)
    assert repr(solution).startswith("Solution(3 x 3 gradients, status=Status.SOLVED, gap=")
    assert len(repr(solution)) < 150
    assert str(solution.status) == "solved to the tolerance asked for"
