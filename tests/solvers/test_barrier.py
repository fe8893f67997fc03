"""What the barrier method is for: windows that the others give up."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.certificate import certify
from coco_denoiser.problem import Problem
from coco_denoiser.solution import Status
from coco_denoiser.solvers import barrier, interior_point
from tests import fuzz
from tests.families import box
from tests.windows import plain, reduced

# By name and number: all pairs at their bounds, distances over many decades, bounds broken by a
# few roundings, and precisions over twelve decades besides.
GIVEN_UP = [
    ("nested", 819),
    ("geometric", 639),
    ("geometric", 1474),
    ("rotated tight", 451),
    ("geometric, variances 1e±6", 721),
    ("clusters, variances 1e±6", 724),
]


@pytest.mark.parametrize(("name", "number"), GIVEN_UP)
def test_what_others_gave_up_is_solved(name: str, number: int) -> None:
    case = fuzz.draw(name, 1, number)
    for method in ("auto", "barrier"):
        found, _ = fuzz.attempt(case, method)
        assert found.status.success, found
        assert not fuzz.judge(case, found).wrong


def test_it_stays_inside_the_bounds_and_nears_the_end_with_every_step() -> None:
    points, gradients = box(np.random.default_rng(0), 12, 3)
    gaps = []
    for limit in range(10, 60, 10):
        solution = coco.solve(
            points, gradients, L=1.0, method="barrier", max_iter=limit, throw=False
        )
        assert solution.violation == 0.0
        gaps.append(solution.gap)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] <= 1e-9


def test_where_newtons_method_falls_short_it_follows_in_the_same_call() -> None:
    case = fuzz.draw("geometric", 1, 1474)
    problem = reduced(case.points, case.gradients)
    given = problem.residuals, problem.bounds, problem.precisions, 1e-9, -1, 1e-10
    newton, both = kernels.solve(*given, "newton"), kernels.solve(*given, "auto")
    assert max(newton[5:7]) > 1e-9
    assert max(both[5:7]) <= 1e-9
    assert both[7] == "barrier"


def test_it_tells_near_points_apart_in_the_same_call() -> None:
    """As one, they are not good enough."""
    points, gradients = np.zeros((3, 2)), np.zeros((3, 2))
    points[:, 0], gradients[:, 0] = (
        (-0.47, -0.46999999999669817, 0.68),
        (-0.235, -0.23499958442901214, 0.34),
    )
    problem = reduced(points, gradients, mu=-1.0)
    given = problem.residuals, problem.bounds, problem.precisions
    *_, gap, violation, method = kernels.solve(*given, 1e-9, -1, 1e-10, "auto")
    assert max(gap, violation) <= 1e-9
    assert method == "barrier"


def test_a_step_that_seems_to_reach_the_end_does_not_leave_the_path() -> None:
    """With all of tau gone at once, 200 steps did not suffice."""
    for name, number in (("ladder", 4), ("far point", 15)):
        case = fuzz.draw(name, 3, number)
        problem = reduced(case.points, case.gradients)
        _, steps = barrier.solve(problem, tol=1e-9, max_iter=200)
        assert steps < 60


def test_its_cost_is_known_beforehand() -> None:
    few, many = (reduced(*box(np.random.default_rng(0), K, d)) for K, d in ((48, 10), (48, 40)))
    assert barrier.multiplications(few) <= solvers._BARRIER < barrier.multiplications(many)


def _window(residuals: list[list[float]], distances: list[float]) -> Problem:
    h = np.array(residuals)
    bounds = np.zeros((len(h), len(h)))
    bounds[np.triu_indices(len(h), 1)] = distances
    return plain(h, bounds + bounds.T)


# A window along logistic regression on fourclass, where single examples hardly disagree: the bounds
# are broken by 1e-14 of the largest residual.
BARELY_BROKEN = _window(
    [
        [0.0, 0.0],
        [3.930434151552546e-13, 5.404346958384751e-13],
        [-8.164139823678839e-01, -1.0],
        [-2.751343210428298e-08, -7.164144806272820e-08],
    ],
    [
        *(7.6755707244487598e-13, 1.2909422104051540, 7.6742947949417308e-08),
        *(1.2909422104059176, 7.6743649196906691e-08, 1.2909421375097712),
    ],
)


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
def test_bounds_that_are_barely_broken_are_mended(tol: float) -> None:
    found = solvers.solve(BARELY_BROKEN, tol=tol)
    assert found.status is Status.SOLVED
    certificate = certify(BARELY_BROKEN, found.phi, found.multipliers)
    assert certificate == (found.gap, found.violation)


@pytest.mark.parametrize("method", [barrier, interior_point])
def test_a_residual_far_away_takes_no_more_steps(method: Any) -> None:
    rng = np.random.default_rng(3)
    x, h = rng.normal(size=(2, 7, 2))
    bounds = 0.5 * np.linalg.norm(x[:, None] - x, axis=2)
    alone = plain(h / abs(h).max(), bounds / abs(h).max())
    beside = np.vstack((1e-9 * alone.residuals, [1.0, 0.0]))
    wide = np.full((8, 8), 2.0)
    wide[:7, :7], wide[7, 7] = 1e-9 * alone.bounds, 0.0
    lam, steps = method.solve(alone, tol=1e-9, max_iter=100)
    same, more = method.solve(plain(beside, wide), tol=1e-9, max_iter=100)
    assert more <= steps + 2
    np.testing.assert_allclose(same[:7, :7], lam, rtol=1e-6, atol=1e-9)
