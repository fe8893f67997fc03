"""A step: what the tables of a window say is what a batch of its observations says."""

import sys
from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser._core import kernels
from coco_denoiser.models.base import Limits
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64
from coco_denoiser.window import Window
from tests.test_streaming import follow
from tests.windows import distances, plain


def observed(K: int, d: int, seed: int) -> tuple[Float64, Float64, Float64]:
    """Points, gradients and variances, of which most pairs break their bounds."""
    rng = np.random.default_rng([K, d, seed])
    return rng.normal(size=(K, d)), 3.0 * rng.normal(size=(K, d)), rng.uniform(0.3, 3.0, K)


def window_of(x: Float64, h: Float64, variances: Float64) -> Window:
    """A window of these observations, with room for two more, filled with what must not count."""
    denoiser, K = coco.Denoiser(model=coco.Cocoercive(1.0, -1.0), window=len(x) + 2), len(x)
    follow(denoiser, x, h, variances)  # around zero, gradients are residuals
    window = denoiser._stream.window
    window.tables[:, K:] = window.tables[:, :, K:] = 1e9
    window.all_variances[K:] = 1e-9
    return window


def problem_of(window: Window, shift: float, radius: float) -> Problem:
    limits = Limits(1.0, 0.0, shift, radius)
    h, bounds, n = kernels.workspace(window, limits, coco.Cocoercive(1.0)).problem()
    return plain(h, bounds, n)


@pytest.mark.parametrize("shift", [0.0, 0.3, -2.0])
@pytest.mark.parametrize(("K", "d"), [(3, 2), (8, 3), (8, 20)])
def test_tables_reduce_to_the_problem_of_the_vectors(K: int, d: int, shift: float) -> None:
    x, h, variances = observed(K, d, 0)
    for vectors in (False, True):
        window = window_of(x, h, variances)
        if not vectors:
            window.points = window.residuals = None
        problem = problem_of(window, shift, 0.7)
        found, bounds, n = problem.residuals, problem.bounds, problem.precisions
        apart = distances(h - shift * x)
        np.testing.assert_allclose(distances(found), apart / apart.max(), atol=1e-7)
        np.testing.assert_allclose(bounds, 0.7 * distances(x) / apart.max(), rtol=1e-9)
        np.testing.assert_allclose(n, variances.min() / variances)
        central = apart.sum(axis=1).argmin()
        assert not found[central].any()
        assert found.shape[1] == min(d, K - 1)


def test_a_direction_far_smaller_than_the_others_is_kept() -> None:
    x, h, variances = observed(6, 8, 0)  # too long for coordinates of their own
    h[:, 2], h[:, 3:] = 1e-6 * h[:, 2], 0.0
    assert problem_of(window_of(x, h, variances), 0.0, 1.0).residuals.shape[1] == 3


@pytest.mark.parametrize("options", [{}, {"forget": "fold"}, {"forget": "fold", "window": 2}])
@pytest.mark.parametrize("d", [3, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_passes_few_functions(options: dict[str, Any], d: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    denoiser, passed = coco.Denoiser(L=1.0, **{"window": 6, **options}), list[str]()

    def record(frame: Any, event: str, _: object) -> None:
        if event == "call" and "coco_denoiser" in frame.f_code.co_filename:
            passed.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    for _ in range(12):
        x, g = (rng.normal(size=d).astype(dtype) for _ in range(2))
        passed.clear()
        sys.setprofile(record)
        try:
            denoiser(x, g)
        finally:
            sys.setprofile(None)
    assert len(passed) <= 8
    assert len({name.rsplit(":", 1)[0] for name in passed}) <= 5
