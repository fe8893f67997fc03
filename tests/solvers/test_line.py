"""Points on a line: the same answers as other methods give, and where those have no digits left."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser._core import kernels
from tests import fuzz
from tests.families import FAMILIES, hard, sgd
from tests.windows import reduced


@pytest.mark.parametrize("K", [3, 8, 16])
def test_hard_cases_on_a_line_are_solved(K: int) -> None:
    for case in hard(np.random.default_rng(K), K, 1):
        solution = coco.solve(case.points, case.gradients, L=case.L, method="line")
        assert solution.method == "line"
        assert not fuzz.judge(case, solution).wrong, case.name


@pytest.mark.parametrize("K", [3, 8, 16])
def test_ordinary_windows_on_a_line_are_solved_so(K: int) -> None:
    rng = np.random.default_rng(K)
    denoiser = coco.Denoiser(L=1.0, window=K)
    points, gradients = sgd(rng, 40, 1, 0.7, start=100.0)
    variances = rng.uniform(0.5, 2.0, 40)
    for k in range(40):
        denoiser(points[k], gradients[k], noise_variance=variances[k])
        if k + 1 >= K:
            window = slice(k + 1 - K, k + 1)
            given: Any = {"L": 1.0, "noise_variance": variances[window]}
            for found in (
                denoiser.solution,
                coco.solve(points[window], gradients[window], **given),
            ):
                assert found.status.success
                assert found.method == "line"


@pytest.mark.parametrize("name", ["far point", "very far point"])
def test_a_point_far_away_costs_no_digits(name: str) -> None:
    for seed in range(100):
        case = FAMILIES[name](np.random.default_rng(seed), 12, 1)
        problem = reduced(case.points, case.gradients, L=case.L)
        given = problem.residuals, problem.bounds, problem.precisions
        *_, gap, violation, method = kernels.solve(*given, 1e-9, -1, 1e-10, "line")
        assert method == "line"
        assert max(gap, violation) <= 1e-9


def test_residuals_on_a_line_are_not_enough() -> None:
    """They differ in one direction, the points in others: no bound is the sum of two others."""
    points = np.eye(6)[:4]
    gradients = 0.5 * points + np.outer([3.0, -2.0, 1.0, -2.0], np.eye(6)[5])
    denoiser = coco.Denoiser(L=1.0, window=4)
    for x, g in zip(points, gradients, strict=True):
        denoiser(x, g)
    assert denoiser._stream.window.work.q == 1
    assert denoiser.solution.status.success
    assert denoiser.solution.method == "newton"


def test_unequal_variances_give_the_answer_of_another_method() -> None:
    rng = np.random.default_rng(0)
    points, variance = rng.normal(size=(9, 1)), rng.uniform(0.2, 5.0, 9)
    points[7] = points[2]
    gradients = points + 3.0 * rng.normal(size=points.shape)
    line, other = (
        coco.solve(points, gradients, L=1.0, noise_variance=variance, method=method)
        for method in ("line", "interior-point")
    )
    np.testing.assert_allclose(line.gradients, other.gradients, atol=1e-6)


@pytest.mark.parametrize(("seed", "number"), [(1, 13), (1, 305), (1, 1114), (2, 4), (2, 1133)])
def test_beside_a_point_far_away_the_others_are_still_told_apart(seed: int, number: int) -> None:
    """Curvature 1 = L: noise decides whether the bound to the far point is broken."""
    case = fuzz.draw("very far point", seed, number)
    for method in ("auto", "line"):
        solution, _ = fuzz.attempt(case, method)
        assert solution.status.success
        assert not fuzz.judge(case, solution).wrong
