"""Points on a line are solved by dynamic programming, in a stream and in a batch alike."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser._core import kernels
from tests.families import FAMILIES, sgd


@pytest.mark.parametrize("K", [3, 8, 16])
def test_ordinary_windows_on_a_line_are_solved_so(K: int) -> None:
    rng = np.random.default_rng(K)
    denoiser = coco.Denoiser(L=1.0, window=K)
    points, gradients = sgd(rng, 40, 1, 0.7, start=100.0)
    variances = rng.uniform(0.5, 2.0, 40)
    for k in range(40):
        denoiser(points[k], gradients[k], noise_variance=variances[k])
        if k + 1 >= K:
            window = slice(k + 1 - K, k + 1)
            given: Any = {"L": 1.0, "noise_variance": variances[window]}
            for found in (
                denoiser.solution,
                coco.solve(points[window], gradients[window], **given),
            ):
                assert found.status.success
                assert found.method == "line"


@pytest.mark.parametrize("name", ["far point", "very far point"])
def test_a_point_far_away_costs_no_digits(name: str) -> None:
    for seed in range(100):
        problem = FAMILIES[name](np.random.default_rng(seed), 12, 1).reduced()
        given = problem.residuals, problem.bounds, problem.precisions
        *_, gap, violation, method = kernels.solve(*given, None, 1e-9, -1, 1e-10, "line")
        assert method == "line"
        assert max(gap, violation) <= 1e-9


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
