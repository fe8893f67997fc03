"""The solver in JAX: the core's answer for the newest gradient, and a gap that is one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import coco_denoiser
from coco_denoiser.optax.models import cocoercive
from coco_denoiser.optax.state import SOLVED
from coco_denoiser.optax.window import Window
from coco_denoiser.typing import Float64
from tests.families import FAMILIES

# Few sizes: each is compiled once a precision.
SHAPES = [(2, 3), (6, 1), (6, 3), (6, 20)]
KINDS = [
    *("box of 10.0", "duplicates in groups", "near-duplicates", "collinear up to 0.0"),
    *("box of 1000.0", "box of 0.01", "no noise", "grid"),
]
TOLERANCE = {np.float32: 1e-3, np.float64: 1e-6}
TIGHT = {np.float32: 1e-6, np.float64: 1e-12}


def window(
    kind: str, shape: tuple[int, int], seed: int, x_scale: float = 1.0, g_scale: float = 1.0
) -> tuple[Float64, Float64, float]:
    """Return points, gradients and L of one window."""
    case = FAMILIES[kind](np.random.default_rng(seed), *shape)
    return x_scale * case.points, g_scale * case.gradients, g_scale / x_scale * case.L


@jax.jit
def newest(x: Any, g: Any, L: Any, mu: Any, tol: Any) -> Any:
    """Return the denoised gradient of the last observation, from the tables of its window."""
    K, c = x.shape[0], 0.5 * (L + mu)
    dx, dg = x[:, None] - x, g[:, None] - g
    dh = dg - c * dx
    points, residuals = (jnp.sqrt((v * v).sum(-1)) for v in (dx, dh))
    tables = jnp.stack([points, points, residuals])  # the second is not read
    held = Window(jnp.array(K), jnp.array(0), c, tables, jnp.ones(K, x.dtype))
    w, (gap, violation, *_), outcome = cocoercive(
        held, jnp.array(K - 1), radius=0.5 * (L - mu), tol=tol
    )
    return g[-1] + w @ (dh[:, -1]), (outcome, gap, violation)


def difference(x: Float64, g: Float64, L: float, mu: float, dtype: Any, tol: float = 1e-9) -> float:
    """Return how far JAX is from the core, relative to the gradients."""
    x, g = x.astype(dtype), g.astype(dtype)
    model = coco_denoiser.Cocoercive(L, mu=mu, tol=tol)
    core = coco_denoiser.solve(x, g, model=model, throw=False).gradients
    with jax.enable_x64(dtype is np.float64):
        bounds = (jnp.asarray(v, dtype) for v in (L, mu, TIGHT[dtype]))
        theta, _ = newest(jnp.asarray(x), jnp.asarray(g), *bounds)
    size = max(float(np.linalg.norm(core)), float(np.linalg.norm(g)), 1e-300)
    return float(np.linalg.norm(np.asarray(theta, dtype=np.float64) - core[-1]) / size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 10**6),
    x_scale=st.sampled_from([1e-6, 1e-3, 1.0, 1e6]),
    g_scale=st.sampled_from([1e-6, 1.0, 1e3, 1e6]),
    mu=st.sampled_from([0.0, 0.2, -1.0]),
)
@example(kind="box of 0.01", shape=(6, 20), seed=0, x_scale=1e6, g_scale=1e-6, mu=0.0)
@example(kind="near-duplicates", shape=(6, 20), seed=7, x_scale=1.0, g_scale=1.0, mu=0.0)
def test_the_newest_gradient_is_the_cores(
    dtype: Any,
    kind: str,
    shape: tuple[int, int],
    seed: int,
    x_scale: float,
    g_scale: float,
    mu: float,
) -> None:
    x, g, L = window(kind, shape, seed, x_scale, g_scale)
    assert difference(x, g, L, mu * L, dtype, tol=1e-11) <= TOLERANCE[dtype]


def test_wide_windows_agree_as_well() -> None:
    for kind in KINDS:
        x, g, L = window(kind, (32, 10), seed=3)
        assert difference(x, g, L, 0.0, np.float32) <= TOLERANCE[np.float32]


def test_an_answer_that_was_stopped_has_a_gap_and_no_more_than_it_may() -> None:
    x, g, L = window("box of 10.0", (6, 20), seed=1)
    with jax.enable_x64(True):
        _, found = newest(*map(jnp.asarray, (x, g, L, 0.0, 0.03)))
    outcome, gap, violation = map(float, found)
    assert outcome == SOLVED
    assert 1e-8 < gap <= 0.03
    assert violation <= 1e-12
