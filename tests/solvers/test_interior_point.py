"""What the exact method does besides solving, which the contract tests."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser.certificate import certify
from coco_denoiser.problem import Problem
from coco_denoiser.solution import Status
from coco_denoiser.solvers import interior_point, large, newton, solve
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


# Two windows along logistic regression on fourclass, where single examples hardly disagree: the
# bounds are broken by 1e-14 of the largest residual.
BARELY_BROKEN = [
    _window(
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
    ),
    _window(
        [
            [-3.9497559767449475e-01, -1.0],
            [-1.6597616616284128e-01, -4.7664059752714777e-01],
            [-1.3950824756630620e-01, -4.1064732405806720e-01],
            [0.0, 0.0],
            [-6.6349386855386416e-14, -6.2202550176924762e-14],
            [5.7311235089174212e-02, 8.4551440350667112e-02],
            [4.5841870877549579e-01, 7.9152344905866268e-01],
            [4.8232928768697797e-01, 8.5042681350009364e-01],
        ],
        [
            *(0.5712668411429063, 0.6423395858976889, 1.0751770657702608, 1.0751770657702608),
            *(1.1750809358755283, 1.9843986773852538, 2.0478630945676195, 0.07110318458408367),
            *(0.5047121426567492, 0.5047121426567492, 0.6039815948647317, 1.4135448379525164),
            *(1.4769589956966367, 0.4336977932790092, 0.4336977932790092, 0.5328787151169707),
            *(1.3426582636159803, 1.406054728924884, 0.0, 0.10214462165389483),
            *(0.9146896101766486, 0.9776846664062302, 0.10214462165389483, 0.9146896101766486),
            *(0.9776846664062302, 0.8128324713885696, 0.8759026385799439, 0.0635713939537395),
        ],
    ),
]


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
@pytest.mark.parametrize("window", BARELY_BROKEN)
def test_bounds_that_are_barely_broken_are_mended(window: Problem, tol: float) -> None:
    found = solve(window, tol=tol)
    assert found.status is Status.SOLVED
    assert certify(window, found.gradients, found.multipliers) == (found.gap, found.violation)


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
