"""What the gap of the state promises, checked against an exact solution."""

import jax
import jax.numpy as jnp
import numpy as np

import coco_denoiser
from coco_denoiser.optax import solver

K, D = 6, 4


def test_the_gap_bounds_the_distance_to_the_least_value() -> None:
    rng, tight = np.random.default_rng(0), []
    with jax.enable_x64(True):
        for tol in 10.0 ** -np.arange(1, 8):
            x, h = rng.normal(size=(2, K, D))
            n = rng.uniform(0.5, 2.0, K)
            h -= n @ h / n.sum()
            h /= np.abs(h).max()
            first, second, _ = solver.pairs(K)
            rho, apart = (np.linalg.norm(v[first] - v[second], axis=1) for v in (0.3 * x, h))
            arrays = map(jnp.asarray, (h, n, apart, rho, rho > 0.0))
            W, gap = solver.weights(*arrays, tol=tol)
            # With mu = -L the bounds are on the gradients themselves.
            best = coco_denoiser.solve(x, h, L=0.3, mu=-0.3, noise_variance=1.0 / n, tol=1e-12)
            least, value = (n @ ((v - h) ** 2).sum(1) for v in (best.gradients, W @ h))
            phi = np.asarray(W @ h)
            assert np.all(np.linalg.norm(phi[first] - phi[second], axis=1) <= rho * (1 + 1e-12))
            error = float((value - least) / value)
            assert -1e-12 < error <= gap <= tol
            tight.append(error / float(gap))
    assert max(tight) > 0.2  # it is no more than a few times too large
