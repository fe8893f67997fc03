"""The certificate in JAX: what NumPy's says of the same answer, the best one or any other."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coco_denoiser
from coco_denoiser._core import kernels
from coco_denoiser.optax.certificate import certify, certify_two
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64

K, Q = 5, 8
judge = jax.jit(certify)


def solved(seed: int) -> tuple[Problem, Float64, Float64]:
    """Return a problem about half of whose bounds are broken, and its answer."""
    rng, c = np.random.default_rng(seed), 0.5  # with L = 1: bounds are half the distances
    x, v = rng.normal(size=(K, Q)), rng.uniform(0.5, 2.0, K)
    h = rng.normal(size=(K, Q))
    model = coco_denoiser.Cocoercive(1.0, tol=1e-12)
    best = coco_denoiser.solve(x, h + c * x, model=model, noise_variance=v)
    h -= h.mean(0)
    top, bounds = np.abs(h).max(), c * np.linalg.norm(x[:, None] - x, axis=-1)
    return Problem(h / top, bounds / top, 1.0 / v, np.ones(Q)), best.weights, best.multipliers


def others(p: Problem, W: Float64, lam: Float64, seed: int) -> Any:
    """Yield answers that are not the best: near it, far, with any multipliers and with none."""
    rng = np.random.default_rng(seed)
    for share in (1e-2, 0.3):
        yield (1.0 - share) * W + share * np.eye(K), lam
        yield (1.0 - share) * W + share / K, lam
        yield W, (1.0 - share) * lam
    some = np.triu(rng.exponential(size=(K, K)) * rng.integers(0, 2, (K, K)), 1)
    some = some + some.T
    yield np.linalg.solve(np.diag(p.precisions + some.sum(1)) - some, np.diag(p.precisions)), some
    yield np.eye(K), np.zeros((K, K))


def judged(p: Problem, W: Float64, lam: Float64, dtype: Any, *, empty: int = 0) -> Any:
    """Return gap and violation by JAX, with some empty slots that hold anything."""
    wide = [np.pad(t, (0, empty), constant_values=3.0) for t in (p.bounds, W, lam)]
    wide[1][:, K:] = 0.0  # no weight
    h = np.pad(p.residuals, ((0, empty), (0, 0)), constant_values=7.0)
    with jax.enable_x64(dtype == "float64"):
        arrays = (h, np.pad(p.precisions, (0, empty)), *wide)
        return [float(v) for v in judge(*(jnp.asarray(a, dtype) for a in arrays))]


@pytest.mark.parametrize("empty", [0, 2])
@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-9), ("float32", 1e-6)])
def test_it_says_of_any_answer_what_numpy_says(dtype: str, tol: float, empty: int) -> None:
    close: Any = (
        {"rtol": 1e-9, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-5}
    )
    for seed in range(20):
        p, W, lam = solved(seed)
        by_jax = partial(judged, p, dtype=dtype, empty=empty)
        assert max(by_jax(W, lam)) <= tol
        for answer in others(p, W, lam, seed):
            found = by_jax(*answer)
            np.testing.assert_allclose(
                found, kernels.certify(p, answer[0] @ p.residuals, answer[1]), **close
            )
            assert max(found) > tol
        assert by_jax(W, np.nan * lam)[0] > 1e30


def test_two_points_are_judged_as_by_numpy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        apart, older, newer = rng.uniform(0.1, 1.0, 3)
        bound = apart * rng.uniform(0.1, 0.9)
        n = np.array([newer, older]) / max(newer, older)
        h, bounds = np.array([[0.0], [apart]]), np.array([[0.0, bound], [bound, 0.0]])
        p = Problem(h, bounds, n, np.ones(1))
        exact = (1.0 - bound / apart) * older / (older + newer)
        for weight in (exact, 0.9 * exact, 1.05 * exact):
            phi = np.array([[weight * apart], [apart * (1.0 - weight * newer / older)]])
            lam = n[0] * phi[0, 0] / (phi[1, 0] - phi[0, 0]) * (1.0 - np.eye(2))
            with jax.enable_x64(True):
                numbers = map(jnp.asarray, (apart, bound, 1.0 / older, 1.0 / newer, weight))
                found = [float(v) for v in certify_two(*numbers)]
            np.testing.assert_allclose(found, kernels.certify(p, phi, lam), rtol=1e-9, atol=1e-13)
            assert (max(found) <= 1e-12) == (weight == exact)
