"""Projections, proximal steps, and the methods that are made for them."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.paper.optimizers import (
    SGD,
    Adam,
    DualAveraging,
    FrankWolfe,
    GradientEMA,
    GradientMean,
    project_l1_ball,
    project_simplex,
    run,
    soft_threshold,
)
from coco_denoiser.typing import Array

CENTRE = np.array([2.0, 0.3, -1.0])


def gradient(x: Array) -> Array:
    return np.asarray([1.0, 0.5, 0.25] * (x - CENTRE))


@pytest.mark.parametrize("project", [project_simplex, project_l1_ball])
def test_a_projection_is_nearer_than_any_other_point_of_the_set(project: Any) -> None:
    """The set lies behind the plane through the projection, across the way there."""
    rng = np.random.default_rng(0)
    x = 3.0 * rng.standard_normal((200, 6))
    found, other = project(x), project(3.0 * rng.standard_normal((200, 6)))
    np.testing.assert_allclose(np.abs(found).sum(axis=1), 1.0)
    assert np.all(np.sum((x - found) * (other - found), axis=1) <= 1e-12)
    np.testing.assert_allclose(project(found), found, atol=1e-15)
    np.testing.assert_allclose(project_l1_ball(0.1 * found), 0.1 * found)


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.8),
        SGD(0.8, denoiser=Denoiser(1.0, 8)),
        SGD(0.8, denoiser=Denoiser(1.0, 2, forget="fold")),
        SGD(0.8, denoiser=GradientMean(lambda k: max(1 / k, 0.5))),
        SGD(0.8, denoiser=GradientMean(lambda k: max(1 / k, 0.5), slope=0.5)),
        GradientEMA(0.5, beta=0.5),
        Adam(0.1),
        DualAveraging(3.0),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_exact_gradients_lead_to_the_lasso_solution(optimizer: Any) -> None:
    """With a diagonal quadratic it is known: soft_threshold(centre, weight / curvature)."""
    weight = 0.2

    def prox(x: Array, step: float | Array) -> Array:
        return soft_threshold(x, step * weight)

    found = run(optimizer, gradient, np.zeros(3), steps=2000, prox=prox)[-1]
    expected = soft_threshold(CENTRE, weight / np.array([1.0, 0.5, 0.25]))
    np.testing.assert_allclose(found, expected, atol=0.01)  # dual averaging is slow
    assert found[1] == 0.0


def test_a_mean_with_the_slope_1_over_step_averages_surrogates() -> None:
    """Mairal's recursion: z += w (x - step g - z), and the next x is the map of z."""
    step, rng = 0.7, np.random.default_rng(0)
    noise = rng.standard_normal((40, 3))
    mean = GradientMean(lambda k: k**-0.5, slope=1 / step)
    answers = iter(noise)
    path = run(
        SGD(step, denoiser=mean),
        lambda x: gradient(x) + next(answers),
        np.ones(3),
        steps=40,
        project=project_simplex,
    )
    x: Array = np.ones(3)
    z: Array = np.ones(3)
    for k, row in enumerate(noise, 1):
        z = z + k**-0.5 * (x - step * (gradient(x) + row) - z)
        x = project_simplex(z)
        np.testing.assert_allclose(path[k], x, atol=1e-12)


def test_frank_wolfe_stays_in_the_set_and_finds_its_minimum() -> None:
    optimizer = FrankWolfe(lambda g: np.eye(3)[int(g.argmin())], denoiser=Denoiser(1.0, 4))
    path = run(optimizer, gradient, np.full(3, 1 / 3), steps=500)
    np.testing.assert_allclose(path.sum(axis=1), 1.0)
    assert path.min() >= 0.0
    np.testing.assert_allclose(path[-1], [1.0, 0.0, 0.0], atol=5e-3)
