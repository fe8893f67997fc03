"""What the barrier method is for: windows that the others give up."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser.solvers import barrier, interior_point
from tests import fuzz
from tests.families import Case, box
from tests.windows import distances, plain


def test_it_stays_inside_the_bounds_and_nears_the_end_with_every_step() -> None:
    case, gaps = Case(*box(np.random.default_rng(0), 12, 3)), []
    for limit in range(10, 60, 10):
        solution = case.solve(method="barrier", max_iter=limit, throw=False)
        assert solution.violation == 0.0
        gaps.append(solution.gap)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] <= 1e-9


def test_a_step_that_seems_to_reach_the_end_does_not_leave_the_path() -> None:
    """With all of tau gone at once, 200 steps did not suffice."""
    for name, number in (("ladder", 4), ("far point", 15)):
        problem = fuzz.draw(name, 3, number).reduced()
        _, steps = barrier.solve(problem, tol=1e-9, max_iter=200)
        assert steps < 60


@pytest.mark.parametrize("method", [barrier, interior_point])
def test_a_residual_far_away_takes_no_more_steps(method: Any) -> None:
    rng = np.random.default_rng(3)
    x, h = rng.normal(size=(2, 7, 2))
    bounds = 0.5 * distances(x)
    alone = plain(h / abs(h).max(), bounds / abs(h).max())
    beside = np.vstack((1e-9 * alone.residuals, [1.0, 0.0]))
    wide = np.full((8, 8), 2.0)
    wide[:7, :7], wide[7, 7] = 1e-9 * alone.bounds, 0.0
    lam, steps = method.solve(alone, tol=1e-9, max_iter=100)
    same, more = method.solve(plain(beside, wide), tol=1e-9, max_iter=100)
    assert more <= steps + 2
    np.testing.assert_allclose(same[:7, :7], lam, rtol=1e-6, atol=1e-9)
