"""What the exact method does besides solving, which the contract tests."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser.certificate import certify
from coco_denoiser.problem import Problem
from coco_denoiser.solution import Status
from coco_denoiser.solvers import interior_point, large, newton, solve
from tests import fuzz
from tests.families import FAMILIES, noisy
from tests.windows import plain, reduced


@pytest.mark.parametrize("method", [newton, interior_point, large])
@pytest.mark.parametrize("K", [9, 30])
def test_points_on_a_line_need_only_their_neighbours(method: Any, K: int) -> None:
    rng = np.random.default_rng(1)
    points = rng.permutation(10.0 * np.arange(K))[:, None]
    window = reduced(points, noisy(points, rng))
    lam, _ = method.solve(window, tol=1e-10, max_iter=100)
    order = np.argsort(points[:, 0])
    pulled = lam[np.ix_(order, order)] > 0.0
    assert not np.triu(pulled, 2).any()
    assert pulled.any()


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
    found = solve(BARELY_BROKEN, tol=tol)
    assert found.status is Status.SOLVED
    certificate = certify(BARELY_BROKEN, found.phi, found.multipliers)
    assert certificate == (found.gap, found.violation)


def test_a_residual_far_away_takes_no_more_steps() -> None:
    rng = np.random.default_rng(3)
    x, h = rng.normal(size=(2, 7, 2))
    bounds = 0.5 * np.linalg.norm(x[:, None] - x, axis=2)
    alone = plain(h / abs(h).max(), bounds / abs(h).max())
    beside = np.vstack((1e-9 * alone.residuals, [1.0, 0.0]))
    wide = np.full((8, 8), 2.0)
    wide[:7, :7], wide[7, 7] = 1e-9 * alone.bounds, 0.0
    lam, steps = interior_point.solve(alone, tol=1e-9, max_iter=100)
    same, more = interior_point.solve(plain(beside, wide), tol=1e-9, max_iter=100)
    assert more <= steps + 2
    np.testing.assert_allclose(same[:7, :7], lam, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "number"), [("one outlier", 0), ("one outlier", 4), ("clusters, variances 1e±6", 5)]
)
def test_a_step_that_is_too_long_is_taken_back(name: str, number: int) -> None:
    found, _ = fuzz.attempt(fuzz.draw(name, 5, number), "interior-point")
    assert found.status.success


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is not allowed is not begun; the best so far comes back."""
    rng = np.random.default_rng(0)
    case = FAMILIES["path with step 0.7"](rng, 16, 5)
    window = reduced(case.points, case.gradients)
    _, usual = interior_point.solve(window, tol=1e-9, max_iter=400)
    monkeypatch.setattr(interior_point, "ALLOWED", 1e-3)
    lam, steps = interior_point.solve(window, tol=1e-9, max_iter=400)
    assert steps == 0 < usual
    assert np.isfinite(lam).all()
