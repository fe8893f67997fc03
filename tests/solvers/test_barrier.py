"""What the barrier method is for: windows that the others give up."""

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser.solvers import barrier
from tests import fuzz
from tests.families import box
from tests.windows import reduced

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


def test_its_cost_is_known_beforehand() -> None:
    few, many = (reduced(*box(np.random.default_rng(0), K, d)) for K, d in ((48, 10), (48, 40)))
    assert barrier.multiplications(few) <= coco.solvers._BARRIER < barrier.multiplications(many)
