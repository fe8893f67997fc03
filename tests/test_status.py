"""Success is what the certificate says, whatever the kind of problem."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser._core import kernels
from tests.families import Case, box

FAR = (
    np.array([[-2.3e9, 3.4e10], [2.26, 0.14], [1.0, 0.65], [-1.8, 0.42]]),
    np.array([[-1.5e9, 8.3e9], [3.6, -0.11], [-0.41, -0.57], [1.7, -0.66]]),
)


@pytest.mark.parametrize(
    ("gap", "violation", "status"),
    [
        (1e-10, 1e-10, coco.Status.SOLVED),
        (1e-8, 0.0, coco.Status.STALLED),
        (0.0, 1e-8, coco.Status.STALLED),
        (np.nan, 0.0, coco.Status.STALLED),
        (0.0, np.nan, coco.Status.STALLED),
    ],
)
def test_a_status_is_earned(gap: float, violation: float, status: coco.Status) -> None:
    given = gap, violation, 1e-9
    assert kernels.status(*given, moved=True, exhausted=False) is status
    unchanged = kernels.status(*given, moved=False, exhausted=True)
    limited = coco.Status.ITERATION_LIMIT
    assert unchanged is (coco.Status.UNCHANGED if status.success else limited)


def test_of_those_that_fall_short_the_best_is_kept() -> None:
    for seed in range(10):
        case = Case(*box(np.random.default_rng(seed), 6, 3))
        for limit in (1, 2, 4):
            options: Any = {"tol": 1e-15, "max_iter": limit, "throw": False}
            each = [case.solve(method=method, **options) for method in ("newton", "barrier")]
            best = case.solve(**options)
            assert best.gap == min(found.gap for found in each)


def test_two_points_are_judged_by_their_own_digits_beside_one_far_away() -> None:
    """Relative to the largest residual, their violation of 1,800% would be a rounding."""
    found = coco.solve(
        [[0.0], [0.1], [1e15]], [[0.0], [1.0], [1e15]], model=coco.Cocoercive(1.0, tol=1e-12)
    )
    assert found.status is coco.Status.SOLVED
    np.testing.assert_allclose(found.gradients[:2, 0], [0.45, 0.55], rtol=1e-12)


def test_however_loose_the_tolerance_an_answer_obeys_its_bounds() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(8, 3))
        found = Case(points, points + 5.0 * rng.normal(size=(8, 3))).solve(tol=1e-3)
        assert found.violation <= 1e-10


@pytest.mark.parametrize(
    ("moved", "worst", "status"),
    [(False, 1.0, coco.Status.STALLED), (True, 0.0, coco.Status.SOLVED)],
)
def test_what_a_repair_moves_or_leaves_broken_is_said(
    monkeypatch: pytest.MonkeyPatch, moved: bool, worst: float, status: coco.Status
) -> None:
    """We know no window where bounds stay broken in the units of the batch."""
    monkeypatch.setattr(kernels, "repair", lambda *_: (moved, worst))
    found = coco.solve(np.eye(3), 0.5 * np.eye(3), L=1.0, throw=False)
    assert found.status is status
    assert found.violation == worst
