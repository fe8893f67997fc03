"""The set of gradients that a function with curvature between mu and L can have, all at once.

Such a function exists if and only if there are values f with, for every ordered pair and for
mu = 0 (Taylor, Hendrickx and Glineur, 2017),

    f_i >= f_j + <theta_j, x_i - x_j> + ||theta_i - theta_j||^2 / (2 L).

With the centre c and the radius r of the curvature, phi = theta - c x, X = r x and
E = 4 r (f - c ||x||^2 / 2), the two inequalities of a pair are one, for any mu < L:

    ||phi_i - phi_j||^2 + |s_ij| <= ||X_i - X_j||^2,
    s_ij = 2 <phi_i + phi_j, X_i - X_j> - (E_i - E_j).

Without s_ij it is the bound on every pair of `geometry.py`; s_ij is the error that the
trapezoidal rule makes in the value. Two points can always choose values that make it 0; three
cannot, as the errors need not add up to 0 around a triangle. The objective gains a term,
1/2 sum_i m_i (E_i - Y_i)^2, where Y are the observed values, if any, and m_i = 0 otherwise.
"""

import numpy as np

from coco_denoiser.geometry import Window
from coco_denoiser.typing import Float64

_ROUNDING = 4e-15  # of a sum of products, relative to the largest of them


def excess(window: Window, phi: Float64, E: Float64) -> tuple[Float64, Float64, Float64]:
    """Return ||phi_i - phi_j||^2, s_ij and ||X_i - X_j||^2, (K, K) each; s is antisymmetric.

    The last is infinite for pairs that are not constrained.
    """
    X = window.one_function.points
    apart, D = phi[:, None] - phi[None], X[:, None] - X[None]
    s = 2.0 * np.einsum("ijc,ijc->ij", phi[:, None] + phi[None], D) - (E[:, None] - E[None])
    bound = np.einsum("ijc,ijc->ij", D, D)
    bound[np.isinf(window.bounds)] = np.inf
    return np.einsum("ijc,ijc->ij", apart, apart), s, bound


def rounding(window: Window, phi: Float64, E: Float64) -> Float64:
    """Return how much of an excess, (K, K), may be rounding."""
    X = window.one_function.points
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    size = np.linalg.norm(phi, axis=1)
    size = size[:, None] + size[None]
    return np.asarray(_ROUNDING * ((size + D) ** 2 + np.abs(E)[:, None] + np.abs(E)[None]))


def consistent_values(window: Window, phi: Float64) -> Float64 | None:
    """Return values E that go with the residuals phi, or None if there are none.

    The inequalities E_i - E_j >= C_ij have a solution if and only if no cycle has a positive
    sum; then the longest paths to and from a point bound E, and their mean is a solution.
    Observed values are not changed: they go with phi or they do not.
    """
    curve = window.one_function
    squared, s, bound = excess(window, phi, curve.values)
    C = squared + s - bound - 0.5 * rounding(window, phi, curve.values)
    if curve.observed:
        return curve.values if bool((C <= 0.0).all()) else None
    for k in range(len(C)):
        C = np.maximum(C, C[:, k, None] + C[None, k])
    if bool((np.diag(C) > 0.0).any()):
        return None
    # Where few pairs are constrained, the points may fall into unconnected parts.
    everyone, first = np.arange(len(C)), np.isfinite(C).argmax(axis=1)
    return np.asarray(0.5 * (C[everyone, first] - C[first, everyone]))


def drawn_in(window: Window, phi: Float64, E: Float64) -> tuple[Float64, Float64]:
    """Draw gradients and values towards the mean residual and 0 until every pair fits."""
    squared, s, bound = excess(window, phi, E)
    off = squared + np.abs(s) > bound + 0.5 * rounding(window, phi, E)
    if not off.any():
        return phi, E
    a, b, rho2 = squared[off], np.abs(s[off]), bound[off]
    # The root of a t^2 + b t = rho^2, written without a subtraction.
    t = float((2.0 * rho2 / (b + np.sqrt(b * b + 4.0 * a * rho2))).min())
    return t * phi, t * E
