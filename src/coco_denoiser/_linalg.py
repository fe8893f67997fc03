"""Dense linear algebra of one window: a Laplacian system without subtractions, and substitution."""

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.typing import Float64

_BLOCK = 64  # nodes eliminated together, before matrix products do the rest
MANY = 192  # number of nodes from which that is faster


def solve_laplacian(
    multipliers: Float64, n: Float64, b: Float64, inverse: Float64 | None = None
) -> None:
    """Overwrite b, (K, q), by (diag(n) + Laplacian)^-1 b; fill in the inverse if it is given.

    Nodes are eliminated one by one, without a subtraction (`_core/laplacian.pxi`). The factors of
    the matrix products, which take over if there are many nodes, are non-negative too.

    Args:
        multipliers: (K, K), of which the part above the diagonal is used.
        n: (K,), precisions.
        b: (K, q), contiguous.
        inverse: (K, K).
    """
    multipliers = np.ascontiguousarray(multipliers)
    if n.size < MANY:
        kernels.solve_laplacian(multipliers, n, b, inverse)
        return
    K, q = b.shape
    every = q if inverse is None else q + K
    width = -(-every // 4) * 4
    A = np.zeros((K, -(-(width + 1 + K) // 4) * 4))
    A[:, :q], A[:, width] = b, n
    A[:, width + 1 : width + 1 + K] = multipliers.T
    if inverse is not None:
        # From the last node to the first: what has been filled in is then a range of columns.
        A[:, q:every] = np.eye(K)[:, ::-1]
    pivot, x = np.zeros(K), np.zeros((K, width))
    panels = [(start, min(start + _BLOCK, K)) for start in range(0, K, _BLOCK)]
    for start, stop in reversed(panels):
        kernels.eliminate_panel(A, pivot, width, start, stop)
        factor = A[start:stop, width + 1 : width + 1 + start].T * pivot[start:stop]
        filled = q if inverse is None else q + K - start
        A[:start, :filled] += factor @ A[start:stop, :filled]
        rest = slice(width, width + 1 + start)
        A[:start, rest] += factor @ A[start:stop, rest]
    x[:] = A[:, :width]
    for start, stop in panels:
        x[start:stop] += A[start:stop, width + 1 : width + 1 + start] @ x[:start]
        kernels.substitute_panel(A, pivot, x, start, stop)
    b[:] = x[:, :q]
    if inverse is not None:
        inverse[:] = x[:, q:every][:, ::-1]


def substitute(U: Float64, x: Float64) -> None:
    """Overwrite x by (U'U)^-1 x."""
    for k in range(x.size):
        x[k] /= U[k, k]
        x[k + 1 :] -= x[k] * U[k, k + 1 :]
    for k in range(x.size - 1, -1, -1):
        x[k] = (x[k] - U[k, k + 1 :] @ x[k + 1 :]) / U[k, k]
