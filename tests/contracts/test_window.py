"""A window in NumPy and in JAX: the same tables and answers for the same observations."""

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from coco_denoiser import Denoiser
from coco_denoiser.optax import coco_denoise

D, STEPS = 5, 20


@cache
def compiled(window: int, forget: Any) -> Any:
    def update(g: Any, state: Any, x: Any, L: Any, v: Any) -> Any:
        tx = coco_denoise(L, window, mu=0.1, tol=1e-12, forget=forget)
        return tx.update(g, state, x, noise_variance=v)

    return jax.jit(update)


def observations(seed: int) -> Any:
    """Yield points, some of which are met again, with gradients and noise variances."""
    rng = np.random.default_rng(seed)
    x = np.zeros(D)
    for k in range(STEPS):
        v = float(np.exp(rng.normal()))
        yield x, 0.7 * x + np.sqrt(v) * rng.normal(size=D), v
        x = x if k % 5 == 3 else x + rng.normal(size=D)


@pytest.mark.parametrize("changes", [False, True], ids=["fixed", "changing"])
@pytest.mark.parametrize(
    ("window", "forget"), [(1, "drop"), (2, "drop"), (8, "drop"), (2, "fold"), (8, "fold")]
)
def test_tables_and_answers_are_the_same(window: int, forget: Any, changes: bool) -> None:
    bounds = [1.0 + (k // 3 % 2 if changes else 0) for k in range(STEPS)]
    now = iter(bounds)
    core = Denoiser(
        (lambda: next(now)) if changes else 1.0, window, mu=0.1, tol=1e-12, forget=forget
    )
    moved = 0.0
    with jax.enable_x64(True):
        state: Any = coco_denoise(1.0, window, forget=forget).init(np.zeros(D))
        for (x, g, v), L in zip(observations(window), bounds, strict=True):
            expected = core(x, g, noise_variance=v)
            theta, state = compiled(window, forget)(g, state, x, L, v)
            np.testing.assert_allclose(theta, expected, atol=1e-7)
            moved = max(moved, np.abs(theta - g).max())
            held, told = core._stream.window, state.window
            assert (told.count, told.next) == (held.count, held.next % window)
            np.testing.assert_allclose(told.variances[: held.count], held.variances, rtol=1e-7)
            assert not told.variances[held.count :].any()
            assert told.centre == pytest.approx(0.5 * (L + 0.1))
            K = held.members
            mine, yours = told.tables[:, :K, :K], held.tables[:, :K, :K].copy()
            yours[2] = held.distances(float(told.centre))
            if changes:  # cosines in a core whose bounds may change are of gradients
                mine, yours = mine[::2], yours[::2]
            np.testing.assert_allclose(mine, yours, rtol=1e-7, atol=1e-7)
    assert moved > 0.1 or window == 1
