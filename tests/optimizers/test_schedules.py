import numpy as np
import pytest

from coco_denoiser.optimizers import SGD, decreasing, run
from coco_denoiser.problems import Quadratic


def test_decreasing() -> None:
    assert [decreasing(0.5)(k) for k in (1, 2, 10)] == [0.5, 0.25, 0.05]


def test_sgd_with_step_one_over_k_is_the_mean_of_the_observations() -> None:
    # On f = x^2 / 2, x_k = x_{k-1} - (x_{k-1} + noise) / k averages the noise exactly.
    problem, rng = Quadratic([1.0], noise_std=1), np.random.default_rng(0)
    x = run(SGD(decreasing(1.0)), problem, [7.0], steps=50, rng=rng).iterates[:, 0]
    noise = np.random.default_rng(0).standard_normal(50)
    assert np.allclose(x[1:], -np.cumsum(noise) / np.arange(1, 51), atol=1e-13)


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
def test_bad_sizes_are_named(value: float) -> None:
    with pytest.raises(ValueError, match=r"C must be (positive|finite)"):
        decreasing(value)
