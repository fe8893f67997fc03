"""denoise(): a batch of observations at once, in pure JAX."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from coco_denoiser.optax._curvature import centre_and_radius, check_curvature
from coco_denoiser.optax._implicit import move
from coco_denoiser.optax._solver import default_tolerance, lengths


def denoise(
    points: ArrayLike,
    gradients: ArrayLike,
    *,
    L: float | Array,
    mu: float | Array = 0.0,
    tol: float | Array | None = None,
    max_iter: int | Array = 50,
) -> Array:
    r"""Project K noisy gradients onto the gradients that a smooth convex function can have.

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$: `coco_denoiser.denoise` in pure JAX. It can be
    compiled and batched, and differentiated once, forward and in reverse, in points, gradients,
    L and mu: implicitly, through the optimality conditions.

    Args:
        points: (K, d), where the gradients were observed.
        gradients: (K, d), the noisy gradients.
        L: upper bound on the curvature of the objective; may be traced.
        mu: lower bound: 0 convex, > 0 strongly convex, -L merely smooth; may be traced.
        tol: relative duality gap to reach; None for 1e-12 in float64 and 1e-6 in float32.
        max_iter: limit on the solver's steps.

    Returns:
        (K, d), the denoised gradients.
    """
    check_curvature(L, mu)
    x, g = jnp.asarray(points), jnp.asarray(gradients)
    for name, array in (("points", x), ("gradients", g)):
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"{name} must have shape (K, d) with K, d >= 1, got {array.shape}.")
        if jnp.iscomplexobj(array):
            raise TypeError(
                f"{name} must be real, got {array.dtype}. Put real and imaginary parts side by "
                "side, as 2 d columns."
            )
    if x.shape != g.shape:
        raise ValueError(
            f"points and gradients must have the same shape, got {x.shape} and {g.shape}."
        )
    out = jnp.result_type(x, g)
    if not jnp.issubdtype(out, jnp.floating):
        out = jnp.result_type(float)
    number = jnp.promote_types(out, jnp.float32)
    if x.shape[0] == 1:
        return g.astype(out)
    c, r = centre_and_radius(L, mu, number)
    x, g = x.astype(number), g.astype(number)
    h = (g - g[0]) - c * (x - x[0])
    rho = r * lengths(x)
    limit = jnp.asarray(default_tolerance(number) if tol is None else tol, number)
    return (g + move(h, rho, limit, max_iter)).astype(out)
