"""Points on a line are solved by dynamic programming, in a stream and in a batch alike."""

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import solvers
from tests.families import FAMILIES


@pytest.mark.parametrize("name", ["far point", "very far point"])
def test_a_point_far_away_costs_no_digits(name: str) -> None:
    for seed in range(100):
        problem = FAMILIES[name](np.random.default_rng(seed), 12, 1).reduced()
        assert solvers.solve(problem, method="line").status.success


def test_residuals_on_a_line_are_not_enough() -> None:
    """They differ in one direction, the points in others: no bound is the sum of two others."""
    points = np.eye(6)[:4]
    gradients = 0.5 * points + np.outer([3.0, -2.0, 1.0, -2.0], np.eye(6)[5])
    denoiser = coco.Denoiser(L=1.0, window=4)
    for x, g in zip(points, gradients, strict=True):
        denoiser(x, g)
    assert denoiser._stream.window.work.problem()[0].shape == (4, 1)
    assert denoiser.solution.status.success
    assert denoiser.solution.method == "newton"
