"""How good an answer is, from the definition of the problem alone. The solver uses none of this.

It is the certificate of the core, for arrays whose shapes never change: for any
forces y_ij between residuals that obey their bounds, the objective exceeds its minimum by at most

    gap = 1/2 sum_i ||f_i||^2 / n_i + sum_pairs (rho_ij ||y_ij|| - <y_ij, phi_i - phi_j>),

where f_i = n_i (h_i - phi_i) - sum_j y_ij. Every term is non-negative, so nothing cancels, and
what rounding alone explains is forgiven.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from coco_denoiser._core import kernels


def certify(h: Array, n: Array, bounds: Array, W: Array, lam: Array) -> tuple[Array, Array]:
    """Return the relative duality gap and the worst relative violation of an answer.

    Unlike in NumPy nothing is infinite: what cannot be told is the largest number.

    Args:
        h: (K, q), the residuals, scaled so that the largest entry is about 1.
        n: (K,), their precisions; 0 for slots that are empty.
        bounds: (K, K), how far apart each two may be.
        W: (K, K), the weights of the answer, phi = W h.
        lam: (K, K), symmetric multipliers, all finite.
    """
    rounding = _rounding(h.dtype)
    used = n > 0.0
    pair = used[:, None] & used & ~jnp.eye(n.size, dtype=bool)
    lam = jnp.where(pair, lam, 0.0)
    # All digits, also where hardware prefers less; and none is lost where nothing moves.
    phi = jnp.where(lam.any(), jnp.matmul(W, h, precision="highest"), h)
    move = jnp.where(used[:, None], h - phi, 0.0)
    force = n[:, None] * move
    size = (jnp.abs(phi) + jnp.abs(move)).sum(1)
    lost = rounding * jnp.minimum(1.0, size[:, None] + size)  # how well a distance is known
    v = phi[:, None] - phi
    excess = jnp.sqrt((v * v).sum(-1)) - bounds
    broken = pair & ~(excess <= 2.0 * lost)  # once for the answer, once for this sum
    violation = jnp.max(jnp.where(broken, excess / (bounds + lost), 0.0), initial=0.0)
    # Large multipliers magnify the rounding of phi: u makes up for it. Any u would be valid.
    u = _response(lam, jnp.where(used, n, 1.0), force - (lam[:, :, None] * v).sum(1))
    y = lam[:, :, None] * (v + (u[:, None] - u))
    strength, work = jnp.sqrt((y * y).sum(-1)), (y * v).sum(-1)
    slack = jnp.abs(bounds * strength - work) - jnp.minimum(2.0 * lost, rounding) * strength
    gap = 0.5 * jnp.where((lam > 0.0) & ~(slack <= 0.0), slack, 0.0).sum()
    left = force - y.sum(1)
    unbalanced = used[:, None] & ~(jnp.abs(left) <= rounding * n[:, None])
    gap += 0.5 * jnp.where(unbalanced, left * left / n[:, None], 0.0).sum()
    value = 0.5 * (force * move).sum()
    return _relative(gap, value), _finite(violation)


def certify_two(
    apart: Array, bound: Array, older: Array, newer: Array, weight: Array
) -> tuple[Array, Array]:
    """Return the same for two points, of which the newer moves by a weight towards the older.

    Where the older one has to be follows from the balance of forces, so that no f_i is left.

    Args:
        apart: the distance of the two residuals.
        bound: how far apart they may be.
        older: noise variance of the older one; 0 if there is none.
        newer: that of the newer one.
        weight: the weight of the older one in the newer one's answer.
    """
    rounding = _rounding(apart.dtype)
    both = 1.0 + older / newer  # the distances that they move, in that of the newer one
    move = weight * apart
    distance = apart - move * both
    lost = rounding * apart
    excess = jnp.abs(distance) - bound
    broken = (older > 0.0) & ~(excess <= 2.0 * lost)
    violation = jnp.where(broken, excess / (bound + lost), 0.0)
    slack = jnp.maximum(jnp.abs(bound - distance) - lost, 0.0)
    gap = jnp.where(weight == 0.0, 0.0, slack * move)
    return _relative(gap, 0.5 * move * move * both), _finite(violation)


def _response(lam: Array, n: Array, forces: Array) -> Array:
    """Return (N + Laplacian(lam))^-1 forces, by an elimination that never subtracts multipliers."""
    K = n.size
    rows = jnp.arange(K)[:, None]

    def eliminate(k: int | Array, A: Array) -> Array:
        row = jnp.where(jnp.arange(A.shape[1]) > k, A[k], 0.0)
        row = row / row[: K + 1].sum()
        return jnp.where(rows == k, row, A + jnp.where(rows == k, 0.0, A[:, k, None]) * row)

    A = jnp.concatenate([lam, n[:, None], forces], axis=1)
    solved: Array = lax.fori_loop(0, K, eliminate, A)[:, K + 1 :]
    return solved


def _rounding(dtype: DTypeLike) -> float:
    return kernels.UNCERTAINTY / 2.0**-52 * float(np.finfo(dtype).eps)


def _relative(gap: Array, value: Array) -> Array:
    """Return gap / value, or 0 for no gap."""
    return _finite(gap / jnp.where(gap == 0.0, 1.0, value))


def _finite(number: Array) -> Array:
    """Return a number, or the largest for what is not a number: it counts against the answer."""
    most = np.finfo(number.dtype).max
    return jnp.where(number <= most, number, most)
