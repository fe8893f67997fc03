"""What the exact method does besides solving, which the contract tests."""

import numpy as np

from coco_denoiser import geometry
from coco_denoiser.solvers import interior_point


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
