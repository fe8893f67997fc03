"""Points that nearly coincide, next to others that do not."""

import numpy as np

from coco_denoiser import Status, solvers
from coco_denoiser.problem import Problem


def test_bounds_below_rounding_count_where_all_residuals_are_as_small() -> None:
    """A window of SGD on fourclass: two points 1e-15 apart, whose gradients differ by 1e-14."""
    h = np.array(
        [
            [-1.8074480698524442e-12, -1.9222715594873958e-12],
            [1.1891105722713448e-14, 1.4492285099557016e-14],
            [0.0, 0.0],
            [0.7452413135229813, 0.66679485946825046],
        ]
    )
    near = [[0.0, 9.1098498948239415e-13, 9.1184242836636364e-13], [0.0, 1.0262600258805368e-15]]
    bounds = np.zeros((4, 4))
    bounds[0, :3], bounds[1, 1:3] = near
    bounds[:3, 3] = 0.99999999999647671, 0.99999999999559619, 0.99999999999559541
    bounds += bounds.T
    answer = solvers.solve(Problem(h, bounds, np.ones(4), np.ones(2)), tol=1e-9)
    assert answer.status is Status.SOLVED
    assert max(answer.gap, answer.violation) <= 1e-9
