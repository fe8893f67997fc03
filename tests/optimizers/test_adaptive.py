from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.optimizers import Adadelta, AdaGrad, Adam, AdaMax, Nadam, Optimizer, RMSprop
from coco_denoiser.typing import Array


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e5]))
@pytest.mark.parametrize("kind", [Adam, AdaMax, AdaGrad, RMSprop, Nadam])
def test_the_path_does_not_depend_on_the_scale_of_the_gradients(
    kind: type[Optimizer], seed: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    gradients = rng.uniform(0.5, 1, (20, 3)) * rng.choice([-1, 1], (20, 3))
    paths = []
    for factor in (1.0, scale):
        optimizer = kind(0.1, eps=1e-300)  # type: ignore[call-arg]
        x: Array = np.zeros(3)
        for g in gradients:
            x = optimizer.step(x, factor * g)
        paths.append(x)
    assert np.allclose(paths[0], paths[1], rtol=1e-10)


@pytest.mark.parametrize("kind", [Adam, AdaMax, AdaGrad])
def test_the_first_step_has_the_step_size_in_every_coordinate(kind: type[Optimizer]) -> None:
    x = kind(0.1).step(np.zeros(3), np.array([1e-3, -5.0, 1e6]))
    assert np.allclose(x, [-0.1, 0.1, -0.1], rtol=1e-4)


def test_adam_bounds_each_step_by_the_step_size_for_steady_gradients() -> None:
    optimizer = Adam(0.1)
    x: Array = np.zeros(2)
    for _ in range(50):
        following = optimizer.step(x, np.array([3.0, -1e-4]))
        assert np.abs(following - x).max() <= 0.1 * (1 + 1e-12)
        x = following


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Adam, {"beta1": 1.0}),
        (Adam, {"beta2": -0.1}),
        (Adam, {"eps": 0.0}),
        (AdaMax, {"beta1": np.nan}),
        (Nadam, {"decay": -1.0}),
        (AdaGrad, {"eps": np.inf}),
        (RMSprop, {"alpha": 1.5}),
        (Adadelta, {"rho": 1.0}),
        (Adadelta, {"eps": 0.0}),
    ],
)
def test_bad_options_are_named(kind: Any, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        kind(0.1, **options)
