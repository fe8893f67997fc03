"""The Gaussian model of a batch and in a stream."""

import math

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import Denoiser
from coco_denoiser.typing import Array
from tests.test_streaming import follow


def window(K: int = 10, d: int = 4) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.standard_normal((K, d)), axis=0)
    return x, x @ np.diag(np.linspace(1.0, 0.3, d)) + rng.standard_normal((K, d))


def test_without_a_bound_a_batch_is_estimated() -> None:
    x, g = window()
    found = coco.solve(x, g, model=coco.Gaussian())
    assert found.status is coco.Status.ESTIMATED
    assert found.status.success
    assert "Gaussian" in str(found.status)
    assert found.method == "gaussian"
    assert np.isnan(found.multipliers).all()
    assert np.isnan(found.violation)
    assert found.gap < 1e-12
    assert found.std.shape == (10,)
    np.testing.assert_allclose(found.weights @ g, found.gradients, atol=1e-12)
    np.testing.assert_array_equal(coco.denoise(x, g, model=coco.Gaussian()), found.gradients)
    error, raw = (((v - x @ np.diag(np.linspace(1.0, 0.3, 4))) ** 2).sum() for v in
                  (found.gradients, g))  # fmt: skip
    assert error < 0.8 * raw


def test_a_stream_knows_its_whole_window() -> None:
    x, g = window()
    v = np.random.default_rng(1).uniform(0.5, 2.0, 10)
    denoiser = Denoiser(model=coco.Gaussian(), window=6)
    last = follow(denoiser, x, g, v)[-1]
    found = denoiser.solution
    expected = coco.solve(x[4:], g[4:], noise_variance=v[4:], model=coco.Gaussian())
    np.testing.assert_allclose(found.gradients[-1], last, atol=1e-9)
    for name in ("gradients", "weights", "std", "noise_std", "curvature"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-9)
    assert denoiser.std == pytest.approx(expected.std[-1], rel=1e-5)


def test_the_standard_error_is_there_as_soon_as_it_can_be() -> None:
    denoiser = Denoiser(model=coco.Gaussian())
    for x, g in zip(*window(4), strict=True):
        assert math.isnan(denoiser.std) == (len(denoiser) < 2)
        denoiser(x, g)
    assert denoiser.std > 0.0
    assert math.isnan(Denoiser(1.0).std)


@pytest.mark.parametrize("window", [1, 3, None])
def test_a_restored_denoiser_knows_how_good_its_last_gradient_was(
    window: int | None,
) -> None:
    rng = np.random.default_rng(0)
    denoiser = Denoiser(model=coco.Gaussian(), window=window)
    for variance in (1.0, 4.0, 9.0, 16.0, 25.0):  # a window of three wraps around
        denoiser(rng.normal(size=4), rng.normal(size=4), noise_variance=variance)
        other = Denoiser(model=coco.Gaussian(), window=window)
        other.load_state_dict(denoiser.state_dict())
        np.testing.assert_array_equal(other.std, denoiser.std)
    for wrong in (coco.Cocoercive(1.0), coco.Gaussian(9.0)):
        with pytest.raises(ValueError, match=r"saved with (model|L)="):
            Denoiser(window=window, model=wrong).load_state_dict(denoiser.state_dict())
