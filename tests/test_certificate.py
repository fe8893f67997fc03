"""The certificate, recomputed by hand from the definition, and what it says of wrong answers."""

from typing import Any

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.certificate import certify
from coco_denoiser.typing import Float64
from tests.families import box, path
from tests.windows import pairwise, reduced, windows

cp: Any = cvxpy  # its names are built at run time, out of sight of type checkers


@given(window=windows(max_points=5), seed=st.integers(0, 2**32))
def test_the_gap_bounds_the_error_of_any_weights(
    window: tuple[Float64, Float64, float, float], seed: int
) -> None:
    """Feasible answers that are worse than the optimum have a gap of at least the difference."""
    points, gradients, L, mu = window
    rng = np.random.default_rng(seed)
    observed = reduced(points, gradients, L=L, mu=mu)
    best = coco.solve(points, gradients, L=L, mu=mu)
    # Any mixture of the optimum with the centroid is feasible.
    K = len(points)
    mix = rng.uniform()
    W = mix * best.weights + (1.0 - mix) / K
    lam = best.multipliers * rng.uniform(0.5, 1.5)
    gap, violation = certify(observed, W @ observed.residuals, lam)
    h = observed.residuals
    value, least = 0.5 * np.sum((W @ h - h) ** 2), 0.5 * np.sum((best.weights @ h - h) ** 2)
    scale = value
    assert violation <= 1e-9
    if scale > 0.0:
        assert gap * scale >= (value - least) - 1e-8 * least - 1e-14


def test_violations_are_seen() -> None:
    points = np.array([[0.0], [1.0], [2.0]])
    window = reduced(points, np.array([[0.0], [5.0], [0.0]]))
    _, violation = certify(window, window.residuals, np.zeros((3, 3)))
    # Residuals 0, 4.5, -1; the bound of the last two is 0.5, and they are 5.5 apart.
    assert violation == pytest.approx(10.0)


@pytest.mark.parametrize("mu", [-1.0, 0.0, 1.0 / 3.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_cvxpy(mu: float, weighted: bool) -> None:
    rng = np.random.default_rng(4)
    for points, gradients in (box(rng, 5, 3), path(rng, 5, 3), box(rng, 4, 12, 100.0)):
        K, d = points.shape
        variance = np.asarray(rng.uniform(0.5, 2.0, K) if weighted else np.ones(K))
        theta = cp.Variable((K, d))
        objective = cp.sum_squares(cp.multiply(theta - gradients, variance[:, None] ** -0.5))
        value = cp.Problem(cp.Minimize(objective), pairwise(theta, points, mu)).solve(
            solver=cp.CLARABEL
        )
        ours = coco.denoise(points, gradients, L=1.0, mu=mu, noise_variance=variance)
        assert np.sum((ours - gradients) ** 2 / variance[:, None]) == pytest.approx(value, rel=1e-6)
        np.testing.assert_allclose(ours, theta.value, atol=2e-3)


@given(window=windows())
@settings(max_examples=50)
def test_the_answer_is_co_coercive(window: tuple[Float64, Float64, float, float]) -> None:
    """The paper's own inequality, for mu = 0, on the gradients as they are returned."""
    points, gradients, L, _ = window
    theta = coco.denoise(points, gradients, L=L)
    for i in range(len(points)):
        for j in range(i):
            dx, dt = points[i] - points[j], theta[i] - theta[j]
            scale = np.sum(gradients**2) + L**2 * np.sum(points**2)
            assert dt @ dt <= L * (dt @ dx) + 1e-9 * scale


@pytest.mark.parametrize("multiplier", [0.0, np.nan])
def test_an_answer_that_is_not_a_number_has_an_infinite_gap(multiplier: float) -> None:
    points, gradients = box(np.random.default_rng(0), 4, 3)
    window = reduced(points, gradients)
    phi = window.residuals.copy()
    phi[1, 2] = np.nan
    assert certify(window, phi, np.full((4, 4), multiplier))[0] == np.inf
