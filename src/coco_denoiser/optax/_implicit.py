"""A batch of observations in JAX, differentiable through the optimality conditions."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from coco_denoiser.optax import _solver as solver


def move(h: Array, rho: Array, tol: float | Array, max_iter: int | Array) -> Array:
    """Return phi - h, (K, d), where phi are the nearest residuals that obey the bounds.

    Args:
        h: (K, d), the residuals.
        rho: (P,), their bounds.
        tol: relative duality gap to reach.
        max_iter: limit on the solver's steps.
    """
    # Derivatives do not pass through the tolerance, which no optimality condition mentions.
    return _move(h, rho, lax.stop_gradient(tol), max_iter)


@jax.custom_jvp
def _move(h: Array, rho: Array, tol: Array, max_iter: Array) -> Array:
    h, scale = _scaled(h)
    lam, shrink = _solve(h, rho / scale, tol, max_iter)
    W = solver.weights(lam, shrink, jnp.ones_like(h[:, 0]))
    return scale * jnp.where(jnp.any(lam > 0.0), solver.dot(W, h) - h, 0.0)


@_move.defjvp
def _move_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """Differentiate lam_e (rho_e^2 - ||phi_m - phi_l||^2) = 0 and phi = M(lam) h.

    In the solver's letters, with dv = B M dh the change at constant multipliers,

        (diag(sigma) + R * (u u')) z = root * (u . dv - ||u||^2 drho),   dlam = root z / rho,
        dphi = M (dh - B' diag(dlam) v).

    A pair with a force has sigma = 0 and keeps its distance at the bound; a pair without one
    has root = 0 and stays out; where neither holds, the answer lies between the two.
    """
    h, rho, tol, max_iter = primals
    dh, drho = tangents[:2]
    K = h.shape[0]
    unit, scale = _scaled(h)
    limits = solver.precision(h.dtype)
    lam, shrink = _solve(unit, rho / scale, tol, max_iter)
    M = solver.inverse(lam, jnp.ones_like(h[:, 0]))
    B = solver.incidence(K, h.dtype)
    bound = jnp.maximum(rho / scale, limits.closest)
    u = solver.dot(B, solver.dot(M, unit)) / bound[:, None]
    squares = (u * u).sum(1)
    sigma = jnp.maximum(0.5 * (1.0 - squares), 0.0)
    root = jnp.sqrt(lam)
    factor = solver.newton_factor(root, M, u, sigma)
    dv = solver.dot(B, solver.dot(M, dh))
    dbound = jnp.where(rho / scale > limits.closest, drho, 0.0)
    z = solver.newton_solve(factor, root * ((u * dv).sum(1) - squares * dbound))
    dphi = solver.dot(M, dh - solver.dot(B.T, (root * z)[:, None] * u))
    W = solver.weights(lam, shrink, jnp.ones_like(h[:, 0]))
    moved = jnp.any(lam > 0.0)
    out = scale * jnp.where(moved, solver.dot(W, unit) - unit, 0.0)
    return out, jnp.where(moved, dphi - dh, 0.0)


def _scaled(h: Array) -> tuple[Array, Array]:
    """Return h with mean zero and largest entry 1, and the scale."""
    h = h - h.mean(0)
    top = jnp.max(jnp.abs(h), initial=0.0)
    scale = jnp.where(top > 0.0, top, 1.0)
    return h / scale, scale


def _solve(h: Array, rho: Array, tol: Array, max_iter: Array) -> tuple[Array, Array]:
    K, d = h.shape
    apart = solver.lengths(h)
    if d > K:
        # Rotated into K coordinates. From the vectors, not from the table of distances: close
        # residuals would lose half of their digits there.
        h = jnp.linalg.qr(h.T, mode="r").T
    on = jnp.ones(rho.shape, bool)
    n = jnp.ones_like(h[:, 0])
    lam, shrink, _, _ = solver.multipliers(h, n, apart, rho, on, tol=tol, max_iter=max_iter)
    return lam, shrink
