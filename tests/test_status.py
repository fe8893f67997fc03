"""Success is what the certificate says, whatever the kind of problem."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import batch, solvers
from coco_denoiser._core import kernels
from tests import fuzz
from tests.families import Case
from tests.windows import plain

FAR = (
    [[-2.3e9, 3.4e10], [2.26, 0.14], [1.0, 0.65], [-1.8, 0.42]],
    [[-1.5e9, 8.3e9], [3.6, -0.11], [-0.41, -0.57], [1.7, -0.66]],
)
# From runs on fourclass, whose gradients fall far below the curvature times the steps.
CURVATURE, Y = 5656.074264619303, float.fromhex("0x1.700a899220812p-4")
SATURATED = (
    [
        [0.21414026211600845, 0.05331338538877377],
        [0.21355290180204975, 0.049947923301035244],
        [0.2135529018020505, 0.049947923301039594],
        [0.2135529018020513, 0.049947923301043966],
    ],
    [
        [-5.72898489010665e-11, -9.141997165063802e-11],
        [-2.0647507787323936e-16, -1.5611530278220537e-16],
        [-4.274715157736037e-13, -5.450261826113447e-13],
        [-2.814623192389131e-16, -2.724410910581787e-16],
    ],
)
LAST_BIT = (
    [
        [float.fromhex("0x1.22dff4f8bab7ap-2"), float.fromhex("0x1.95b2c8c25884ap-4")],
        *([float.fromhex("0x1.171b6139a9368p-2"), Y + k * 2.0**-56] for k in range(3)),
    ],
    [[65.0, 52.0], [-3.557e-13, -2.254e-13], [-1.5e-15, -2.6e-15], [-1.6e-17, -2.3e-17]],
)
NEAR = Case(
    np.array([[-0.47], [-0.46999999999669817], [0.68]]),
    np.array([[-0.235], [-0.23499958442901214], [0.34]]),
    mu=-1.0,
)


@pytest.mark.parametrize(
    ("case", "method"),
    [
        *((NEAR, method) for method in ("auto", "barrier")),  # as one they cost 6e-6 more
        (fuzz.draw("ladder", 1, 32), "auto"),  # gradients near 0 far from the most central point
        *((Case(np.array(x), np.array(g), CURVATURE), "auto") for x, g in (SATURATED, LAST_BIT)),
    ],
)
def test_near_points_are_told_apart(case: Case, method: str) -> None:
    found, _ = fuzz.attempt(case, method)
    assert found.status is coco.Status.SOLVED
    assert not fuzz.judge(case, found).wrong
    assert np.isfinite(found.multipliers).all() or case is not NEAR


def test_what_the_compiled_call_of_a_stream_cannot_solve_is_solved_by_another_method() -> None:
    case = Case(np.array(LAST_BIT[0]), np.array(LAST_BIT[1]), CURVATURE)
    stream = coco.Denoiser(CURVATURE, 4)
    for x, g in zip(case.points, case.gradients, strict=True):
        stream(x, g)
    found = stream.solution
    assert found.method not in ("newton", "barrier")
    assert max(found.gap, found.violation) <= 1e-9
    assert not fuzz.judge(case, found).wrong


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
    monkeypatch.setattr(solvers, "certify", lambda *_: (gap, violation))
    points, gradients = np.eye(3), 9.0 * np.eye(3)[::-1]
    found = coco.solve(points, gradients, L=1.0, method="barrier", throw=False)
    assert found.status is status
    monkeypatch.setattr(batch, "_solve_ordinary", lambda *_: None)
    solve: Any = kernels.solve
    monkeypatch.setattr(
        kernels, "solve", lambda *given: (*solve(*given)[:5], gap, violation, "newton")
    )
    for method in ("auto", "barrier"):
        unchanged = coco.solve(points, 0.5 * points, L=1.0, method=method, throw=False)
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
        found = coco.solve(points, gradients, L=1.0, noise_variance=variance, method="barrier")
        assert found.status.success
        assert not fuzz.judge(Case(points, gradients, 1.0, 0.0, variance), found).wrong


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
        options: dict[str, Any] = {"L": 1.0, "mu": mu, "noise_variance": variance}
        found = coco.solve(points, gradients, throw=False, **options)
        if found.status.success:
            solved += 1
            assert not fuzz.judge(Case(points, gradients, **options), found).wrong
    assert solved >= 380


@pytest.mark.parametrize("worse", [(0.5, 0.0), (0.01, 0.5), (np.inf, 0.0)])
def test_of_two_that_fall_short_the_better_is_kept(
    worse: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    better = (0.1, 0.2)
    for order in ([worse, better], [better, worse]):
        certificates = iter(order)
        monkeypatch.setattr(solvers, "certify", lambda *_, found=certificates: next(found))
        monkeypatch.setattr(solvers, "_plan", lambda *_, **__: [("fdpg", 0.0)] * 2)
        found = coco.solve(*FAR, L=1.0, mu=-0.5, method="fdpg", throw=False)
        assert (found.gap, found.violation) == better


def test_points_that_nearly_coincide_are_told_apart_near_the_centre() -> None:
    """Of a saturated logistic: their bound is below rounding next to 1, not next to 1e-13."""
    near, far = 1.5106104644284669e-15, 1.0649125363735024
    residuals = np.array(
        [
            [1.0, 0.36611297453854935],
            [0.0, 0.0],
            [0.0, 1.0939496500255844e-15],
            [-5.250958320122805e-14, -7.3294626551714155e-14],
        ]
    )
    bounds = np.array(
        [[0.0, far, far, far], [far, 0.0, near, near], [far, near, 0.0, 0.0], [far, near, 0.0, 0.0]]
    )
    found = solvers.solve(plain(residuals, bounds), tol=1e-6)
    assert found.status is coco.Status.SOLVED, found


def test_two_points_are_judged_by_their_own_digits_beside_one_far_away() -> None:
    """Relative to the largest residual, their violation of 1,800% would be a rounding."""
    found = coco.solve([[0.0], [0.1], [1e15]], [[0.0], [1.0], [1e15]], L=1.0, tol=1e-12)
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
        found = coco.solve(points, points + 5.0 * rng.normal(size=(8, 3)), L=1.0, tol=1e-3)
        assert found.violation <= solvers.FEASIBLE
