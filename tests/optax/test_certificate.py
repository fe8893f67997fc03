"""The state's gap, and bounds from Hessian-vector products, recomputed in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coco_denoiser.optax import coco_denoise, solver
from tests.optax.streams import K, as_tree, noisy_gradient

L, MU, TOL = 1.0, 0.1, 0.03


def duality_gap(h: Any, rho: Any, lam: Any, shrink: float) -> float:
    """Return (P - D) / P of the residuals that are stationary for lam, drawn towards the mean.

    P = 1/2 sum ||phi - h||^2 with phi = shrink M h, and D is the least value, over phi, of
    1/2 sum ||phi - h||^2 + sum f (||phi_m - phi_l|| - rho), with f = lam ||hat_m - hat_l||.
    """
    first, second, B = solver.pairs(len(h))
    hat = np.linalg.solve(np.eye(len(h)) + B.T @ (lam[:, None] * B), h)
    w = np.linalg.norm(hat[first] - hat[second], axis=1)
    primal = 0.5 * np.sum((shrink * hat - h) ** 2)
    dual = 0.5 * np.sum((hat - h) ** 2) + np.sum(lam * w * (w - rho))
    return float((primal - dual) / primal)


def test_the_gap_is_that_of_the_multipliers_and_bounds_the_error() -> None:
    with jax.enable_x64(True):
        stopped = jax.jit(coco_denoise(L, K, mu=MU, tol=TOL).update)
        params = as_tree(jnp.float64)
        state = coco_denoise(L, K).init(params)
        for seed in range(2 * K):
            g = noisy_gradient(params, seed)
            _, state = stopped(g, state, params)
            params = jax.tree.map(lambda p, v: p - 0.3 * v, params, g)
        X, G = (
            np.concatenate([np.reshape(leaf, (K, -1)) for leaf in jax.tree.leaves(tree)], axis=1)
            for tree in (state.points, state.gradients)
        )
        h = G - 0.5 * (L + MU) * X
        h -= h.mean(0)
        scale = np.abs(h).max()
        first, second, _ = solver.pairs(K)
        rho = 0.5 * (L - MU) * np.linalg.norm(X[first] - X[second], axis=1) / scale
        h /= scale
        apart = np.linalg.norm(h[first] - h[second], axis=1)
        on = np.ones(rho.shape, bool)
        lam, shrink, _ = solver.multipliers(
            *map(jnp.asarray, (h, np.ones(K), apart, rho, on)), tol=TOL
        )
        expected = duality_gap(h, rho, np.asarray(lam), float(shrink))
    assert expected > 1e-8  # stopped early, which is what makes it worth reading
    assert float(state.gap) == pytest.approx(expected, rel=1e-3)
