"""The certificate in JAX: what NumPy's says of the same answer, and worse for a worse answer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coco_denoiser
from coco_denoiser.certificate import certify as core
from coco_denoiser.optax.certificate import certify
from coco_denoiser.problem import Problem
from coco_denoiser.typing import Float64

K, Q = 5, 4


def problem(rng: np.random.Generator) -> Problem:
    """Residuals about half of whose bounds are broken, and precisions."""
    h, x = rng.normal(size=(K, Q)), rng.normal(size=(K, Q))
    bounds = np.linalg.norm(x[:, None] - x, axis=-1)
    h -= h[0]
    n = rng.uniform(0.1, 1.0, K)
    top = np.abs(h).max()
    return Problem(h / top, bounds / top, n / n.max(), np.ones(Q))


def weights(lam: Float64, n: Float64) -> Float64:
    laplacian = np.diag(lam.sum(1)) - lam
    return np.asarray(np.linalg.solve(np.diag(n) + laplacian, np.diag(n)))


def any_multipliers(rng: np.random.Generator) -> Float64:
    lam = np.triu(rng.exponential(size=(K, K)) * rng.integers(0, 2, (K, K)), 1)
    return np.asarray(lam + lam.T)


def judged(p: Problem, W: Float64, lam: Float64, dtype: Any, *, empty: int = 0) -> Any:
    """Return gap and violation by JAX, with some empty slots that hold anything."""
    wide = [np.pad(t, (0, empty), constant_values=3.0) for t in (p.bounds, W, lam)]
    h = np.pad(p.residuals, ((0, empty), (0, 0)), constant_values=7.0)
    with jax.enable_x64(dtype == "float64"):
        arrays = (h, np.pad(p.precisions, (0, empty)), *wide)
        if empty:
            arrays[3][:, K:] = 0.0  # no weight
        return [float(v) for v in certify(*(jnp.asarray(a, dtype) for a in arrays))]


def test_it_says_of_any_answer_what_numpy_says() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p, lam = problem(rng), any_multipliers(rng)
        W = weights(lam, p.precisions) if lam.any() else np.eye(K)
        if seed % 2:  # an answer that the multipliers do not account for
            W = 0.9 * W + 0.1 * p.precisions / p.precisions.sum()
        expected = core(p, W @ p.residuals, lam)
        for empty in (0, 2):
            found = judged(p, W, lam, "float64", empty=empty)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
            found = judged(p, W, lam, "float32", empty=empty)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-9), ("float32", 1e-6)])
def test_the_best_answer_passes_and_others_are_judged_worse(dtype: str, tol: float) -> None:
    for seed in range(10):
        rng, c = np.random.default_rng(seed), 0.5  # with L = 1: bounds are half the distances
        x = rng.normal(size=(K, 2 * Q))
        g = rng.normal(size=(K, 2 * Q)) + c * x
        best = coco_denoiser.solve(x, g, model=coco_denoiser.Cocoercive(1.0, tol=1e-12))
        h = g - c * x
        h -= h.mean(0)
        top = np.abs(h).max()
        bounds = c * np.linalg.norm(x[:, None] - x, axis=-1) / top
        p = Problem(h / top, bounds, np.ones(K), np.ones(2 * Q))
        W, lam = best.weights, best.multipliers
        gap, violation = judged(p, W, lam, dtype)
        assert gap <= tol
        assert violation <= tol
        for share in (1e-2, 0.3):
            towards = (1.0 - share) * W
            assert judged(p, towards + share * np.eye(K), lam, dtype)[1] > 10 * tol
            assert judged(p, towards + share / K, lam, dtype)[0] > 10 * tol
            assert judged(p, W, (1.0 - share) * lam, dtype)[0] > tol
        assert judged(p, W, np.nan * lam, dtype)[0] > 1e30


def test_it_can_be_mapped_and_finds_nothing_to_move_where_nothing_moves() -> None:
    problems = [problem(np.random.default_rng(seed)) for seed in range(4)]
    h, n, bounds = (
        jnp.asarray(np.stack(a), jnp.float32)
        for a in zip(*((p.residuals, p.precisions, p.bounds) for p in problems), strict=True)
    )
    alone = jnp.broadcast_to(jnp.eye(K), bounds.shape)
    gap, violation = jax.vmap(certify)(h, n, 9.0 * bounds, alone, jnp.zeros_like(bounds))
    assert not gap.any()
    assert gap.shape == violation.shape == (4,)
    expected = [core(p, p.residuals, np.zeros((K, K)))[1] for p in problems]
    _, violation = jax.vmap(certify)(h, n, bounds, alone, jnp.zeros_like(bounds))
    np.testing.assert_allclose(violation, expected, rtol=1e-5)
