"""Success is what the certificate says, whatever the kind of problem."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.models import cocoercive
from tests import fuzz
from tests.families import Case, box

FAR = (
    [[-2.3e9, 3.4e10], [2.26, 0.14], [1.0, 0.65], [-1.8, 0.42]],
    [[-1.5e9, 8.3e9], [3.6, -0.11], [-0.41, -0.57], [1.7, -0.66]],
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
def test_a_status_is_earned(
    gap: float, violation: float, status: coco.Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cocoercive, "_solve_ordinary", lambda *_: None)
    solve: Any = kernels.solve
    monkeypatch.setattr(
        kernels, "solve", lambda *given: (*solve(*given)[:5], gap, violation, "newton")
    )
    points, gradients = np.eye(3), 9.0 * np.eye(3)[::-1]
    for method in ("auto", "barrier"):
        found = Case(points, gradients).solve(method=method, throw=False)
        assert found.status is status
        unchanged = Case(points, 0.5 * points).solve(method=method, throw=False)
        assert unchanged.status.success == status.success
        assert (unchanged.status is coco.Status.UNCHANGED) == status.success


def test_forces_inside_a_group_are_those_of_its_precisions() -> None:
    """Three points as good as one, and all of the four with noise of their own."""
    rng = np.random.default_rng(0)
    for size in (3e-12, 1e-11):
        points, gradients = np.zeros((4, 2)), rng.normal(size=(4, 2))
        points[:3] = size * rng.normal(size=(3, 2))
        points[3] = 1.0
        gradients[:3] = 0.3 + 1e-11 * rng.normal(size=(3, 2))
        variance = np.array([100.0, 300.0, 500.0, 1.0])
        case = Case(points, gradients, noise_variance=variance)
        found = case.solve(method="barrier")
        assert found.status.success
        assert not fuzz.judge(case, found).wrong


def test_windows_of_three_with_near_duplicates() -> None:
    """Every success, of any curvature and noise, is confirmed in extended precision."""
    rng, solved = np.random.default_rng(0), 0
    for _ in range(400):
        d, mu = int(rng.integers(1, 4)), float(rng.choice([-1.0, -0.5, 0.0, 1.0 / 3.0]))
        points = rng.normal(size=(3, d))
        points[1] = points[0] + 10.0 ** rng.uniform(-16, -6) * rng.normal(size=d)
        gradients = 0.5 * points * rng.choice([1.0, 2.0], size=d)
        gradients += 10.0 ** rng.uniform(-9, 1) * rng.normal(size=(3, d))
        if rng.random() < 0.5:
            gradients[1] = gradients[0] + 10.0 ** rng.uniform(-12, -2) * rng.normal(size=d)
        variance = 10.0 ** rng.uniform(-2, 2, 3) if rng.random() < 0.5 else None
        case = Case(points, gradients, 1.0, mu, variance)
        found = case.solve(throw=False)
        if found.status.success:
            solved += 1
            assert not fuzz.judge(case, found).wrong
    assert solved >= 380


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


def test_an_answer_cannot_be_changed_after_it_was_certified() -> None:
    found = coco.solve(*FAR, L=1.0)
    with pytest.raises(AttributeError):
        found.gap = 0.0  # type: ignore[misc]


def test_however_loose_the_tolerance_an_answer_obeys_its_bounds() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(8, 3))
        found = Case(points, points + 5.0 * rng.normal(size=(8, 3))).solve(tol=1e-3)
        assert found.violation <= solvers.FEASIBLE


def test_bounds_that_stay_broken_in_the_units_of_the_batch_are_no_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """We know no window where this happens: the repair is made to fail."""
    monkeypatch.setattr(kernels, "repair", lambda *_: (False, 1.0))
    points, gradients = box(np.random.default_rng(0), 5, 3)
    found = coco.solve(points, gradients, L=1.0, throw=False)
    assert found.status is coco.Status.STALLED
    assert found.violation == 1.0
