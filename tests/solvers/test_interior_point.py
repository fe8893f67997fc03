"""What the exact method does besides solving, which the contract tests."""

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.solvers import interior_point
from tests.windows import box, path


def test_a_start_changes_the_way_but_not_the_answer() -> None:
    rng = np.random.default_rng(0)
    for points, gradients in (box(rng, 8, 5), path(rng, 8, 5)):
        window, *_ = geometry.observe(points, gradients, 1.0, 0.0, np.ones(8))
        lam, _ = interior_point.solve(window, tol=1e-11, max_iter=100)
        for start in (lam, 10.0 * lam, rng.uniform(0.0, 1.0, lam.shape) + 0.0 * lam):
            symmetric = (start + start.T) / 2
            again, _ = interior_point.solve(window, tol=1e-11, max_iter=100, start=symmetric)
            np.testing.assert_allclose(
                geometry.weights(again, window), geometry.weights(lam, window), atol=1e-5
            )


def test_points_on_a_line_need_only_their_neighbours() -> None:
    rng = np.random.default_rng(1)
    points = rng.permutation(10.0 * np.arange(9.0))[:, None]
    gradients = points + 10.0 * rng.normal(size=points.shape)
    window, *_ = geometry.observe(points, gradients, 1.0, 0.0, np.ones(9))
    lam, _ = interior_point.solve(window, tol=1e-10, max_iter=100)
    order = np.argsort(points[:, 0])
    pulled = lam[np.ix_(order, order)] > 0.0
    assert not np.triu(pulled, 2).any()
    assert pulled.any()
