"""Points on a line: the same answers as other methods give, and where those have no digits left."""

import numpy as np
import pytest

import coco_denoiser as coco
from tests import fuzz
from tests.families import hard


@pytest.mark.parametrize("K", [3, 8, 16])
def test_hard_cases_on_a_line_are_solved(K: int) -> None:
    for case in hard(np.random.default_rng(K), K, 1):
        solution = coco.solve(case.points, case.gradients, L=case.L, method="line")
        assert solution.method == "line"
        assert not fuzz.judge(case, solution).wrong, case.name


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
