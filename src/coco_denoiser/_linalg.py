"""Dense linear algebra of one window: a Laplacian system without subtractions, and substitution.

A loop over the end of a row is one over a view of it: Numba cannot know that an index that does
not start from 0 is not negative, and does not vectorise what may have to wrap around.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel
from coco_denoiser.typing import Float64

_BLOCK = 64  # nodes eliminated together, before matrix products do the rest
MANY = 192  # number of nodes from which that is faster


def solve_laplacian(a: Float64, n: Float64, b: Float64, identity_from: int) -> None:
    """Overwrite b by (diag(n) + Laplacian(a))^-1 b; a (upper triangle) and n are used up.

    Nodes are eliminated one by one, as Grassmann, Taksar and Heyman do for Markov chains: every
    number stays non-negative and is only added to, so tight clusters lose no digits. The factors
    of the matrix products, which take over if there are many nodes, are non-negative too. Columns
    of b from `identity_from` on must hold an identity; their zeros are skipped.
    """
    K = n.size
    inverse, block = np.empty(K), _BLOCK if K >= MANY else K
    panels = [slice(start, min(start + block, K)) for start in range(0, K, block)]
    for panel in panels:
        rest, filled = slice(panel.stop, None), slice(identity_from + panel.stop)
        _eliminate(a, n, b, inverse, panel.start, panel.stop, identity_from + panel.stop)
        factor = a[panel, rest].T * inverse[panel]
        a[rest, rest] += factor @ a[panel, rest]
        n[rest] += factor @ n[panel]
        b[rest, filled] += factor @ b[panel, filled]
    for panel in reversed(panels):
        b[panel] += a[panel, panel.stop :] @ b[panel.stop :]
        _back(a[panel, panel], b[panel], inverse[panel])


@kernel
def _eliminate(
    a: Float64, n: Float64, b: Float64, inverse: Float64, start: int, stop: int, filled: int
) -> None:
    """Eliminate some nodes one by one; b is filled up to a column."""
    for i in range(start, stop):
        row, right = a[i, i + 1 :], b[i, :filled]
        for k in range(start, i):
            factor, p, q = a[k, i] * inverse[k], a[k, i + 1 :], b[k, :filled]
            if factor > 0.0:
                for j in range(row.size):
                    row[j] += factor * p[j]
                for j in range(right.size):
                    right[j] += factor * q[j]
                n[i] += factor * n[k]
        total = n[i]
        for j in range(row.size):
            total += row[j]
        inverse[i] = 1.0 / total


@kernel
def _back(a: Float64, b: Float64, inverse: Float64) -> None:
    for i in range(inverse.size - 1, -1, -1):
        for k in range(i + 1, inverse.size):
            if a[i, k] > 0.0:
                for j in range(b.shape[1]):
                    b[i, j] += a[i, k] * b[k, j]
        for j in range(b.shape[1]):
            b[i, j] *= inverse[i]


def substitute(U: Float64, x: Float64) -> None:
    """Overwrite x by (U'U)^-1 x."""
    for k in range(x.size):
        x[k] /= U[k, k]
        x[k + 1 :] -= x[k] * U[k, k + 1 :]
    for k in range(x.size - 1, -1, -1):
        x[k] = (x[k] - U[k, k + 1 :] @ x[k + 1 :]) / U[k, k]


@fragment
def distances(v: Float64) -> Float64:
    """Return the distances between vectors (K, d)."""
    K, d = v.shape
    table = np.zeros((K, K))
    for i in range(K):
        for j in range(i):
            total = 0.0
            for c in range(d):
                total += (v[i, c] - v[j, c]) ** 2
            table[i, j] = table[j, i] = np.sqrt(total)
    return table
