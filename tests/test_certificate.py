"""What the certificate says of answers that are right, and of wrong ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.certificate import certify
from coco_denoiser.typing import Float64
from tests.families import box
from tests.windows import reduced, windows


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
