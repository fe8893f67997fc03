"""The Gaussian model in a stream."""

import math

import numpy as np
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.problems import Quadratic
from coco_denoiser.typing import Array


def walked(denoiser: Denoiser, steps: int, seed: int = 0) -> list[Array]:
    problem = Quadratic.spaced(6, noise_std=10.0)
    rng, x = np.random.default_rng(seed), np.full(6, 30.0)
    found: list[Array] = []
    for _ in range(steps):
        found.append(denoiser(x, problem.oracle(x, rng)))
        x = x - 0.5 * found[-1]
    return found


def test_it_needs_no_curvature_and_gains() -> None:
    problem = Quadratic.spaced(6, noise_std=10.0)
    ends = {}
    for name, denoiser in {"raw": None, "gaussian": Denoiser(model="gaussian")}.items():
        rng, x = np.random.default_rng(1), np.full(6, 30.0)
        late: list[float] = []
        for k in range(200):
            g = problem.oracle(x, rng)
            x = x - (g if denoiser is None else denoiser(x, g))
            late += [float(problem.value(x))] if k >= 100 else []
        ends[name] = np.mean(late)
    assert ends["gaussian"] < 0.4 * ends["raw"]


def test_the_standard_error_is_there_as_soon_as_it_can_be() -> None:
    denoiser, known = Denoiser(model="gaussian"), Denoiser(model="gaussian", noise_std=2.0)
    assert math.isnan(denoiser.std)
    walked(denoiser, 1)
    assert math.isnan(denoiser.std)
    known(np.zeros(3), np.ones(3), noise_variance=4.0)
    assert known.std == 4.0
    walked(denoiser, 2)
    assert denoiser.std > 0.0
    assert math.isnan(Denoiser(1.0).std)


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    one, two = Denoiser(model="gaussian", window=6), Denoiser(model="gaussian", window=6)
    walked(one, 9)
    two.load_state_dict(one.state_dict())
    x, g = np.ones(6), np.arange(6.0)
    np.testing.assert_array_equal(one(x, g), two(x, g))
    assert one.std == two.std
    with pytest.raises(ValueError, match="model"):
        Denoiser(1.0, 6).load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="noise_std"):
        Denoiser(model="gaussian", window=6, noise_std=1.0).load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "cocoercive"}, "Pass L for the paper's method"),
        ({"model": "cauchy"}, "model must be"),
        ({"mu": 0.1, "model": "gaussian"}, "`mu` is only supported with"),
        ({"forget": "fold", "model": "gaussian"}, "forget='fold' is only supported with"),
        ({"L": -1.0, "model": "gaussian"}, "L must be"),
        ({"noise_std": 0.0, "model": "gaussian"}, "noise_std must be"),
    ],
)
def test_what_does_not_belong_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Denoiser(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise_std", [None, 2.0])
@pytest.mark.parametrize("window", [1, 3, None])
def test_a_restored_denoiser_knows_how_good_its_last_gradient_was(
    window: int | None, noise_std: float | None
) -> None:
    rng = np.random.default_rng(0)
    denoiser = Denoiser(model="gaussian", window=window, noise_std=noise_std)
    for variance in (1.0, 4.0, 9.0, 16.0, 25.0):  # a window of three wraps around
        denoiser(rng.normal(size=4), rng.normal(size=4), noise_variance=variance)
        other = Denoiser(model="gaussian", window=window, noise_std=noise_std)
        other.load_state_dict(denoiser.state_dict())
        np.testing.assert_array_equal(other.std, denoiser.std)
