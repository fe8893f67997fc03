"""Dense linear algebra of one window: a Laplacian system without subtractions, and Cholesky.

Rows are updated by four finished rows at a time, which is what makes short loops fast.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel, subroutine
from coco_denoiser.typing import Array, Float64

_PANEL = 32  # rows of a Cholesky factor that stay in the cache together
_BLOCK = 64  # nodes that are eliminated together where matrix products do the rest
_LARGE = 192  # nodes from which on that is faster


def solve_large_laplacian(a: Float64, n: Float64, b: Float64, identity_from: int) -> None:
    """Do as `solve_laplacian` does, by matrix products where there are many nodes.

    These are products of non-negative numbers, so that here, too, nothing is subtracted.
    """
    K = n.size
    if K < _LARGE:
        solve_laplacian(a, n, b, identity_from)
        return
    inverse = np.empty(K)
    panels = [slice(start, min(start + _BLOCK, K)) for start in range(0, K, _BLOCK)]
    for panel in panels:
        rest, filled = slice(panel.stop, None), slice(identity_from + panel.stop)
        _eliminate(a[panel, panel.start :], n[panel], b[panel, filled], inverse[panel])
        factor = a[panel, rest].T * inverse[panel]
        a[rest, rest] += factor @ a[panel, rest]
        n[rest] += factor @ n[panel]
        b[rest, filled] += factor @ b[panel, filled]
    for panel in reversed(panels):
        b[panel] += a[panel, panel.stop :] @ b[panel.stop :]
        _back(a[panel, panel], b[panel], inverse[panel])


@kernel
def solve_laplacian(a: Float64, n: Float64, b: Float64, identity_from: int) -> None:
    """Overwrite b by (diag(n) + Laplacian(a))^-1 b; a (upper triangle) and n are used up.

    Node after node is eliminated, as Grassmann, Taksar and Heyman do for Markov chains: every
    number stays non-negative and is only added to, so tight clusters lose no digits. Columns
    of b from `identity_from` on must hold an identity; their zeros are skipped.
    """
    K, columns = b.shape
    inverse = np.empty(K)
    for i in range(K):
        ai, bi = a[i], b[i]
        stop = min(columns, identity_from + i)  # a finished row of an identity ends before i
        k = 0
        while k + 4 <= i:
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
            f0, f1 = a0[i] * inverse[k], a1[i] * inverse[k + 1]
            f2, f3 = a2[i] * inverse[k + 2], a3[i] * inverse[k + 3]
            for j in range(i + 1, K):
                ai[j] += f0 * a0[j] + f1 * a1[j] + f2 * a2[j] + f3 * a3[j]
            for j in range(stop):
                bi[j] += f0 * b0[j] + f1 * b1[j] + f2 * b2[j] + f3 * b3[j]
            n[i] += f0 * n[k] + f1 * n[k + 1] + f2 * n[k + 2] + f3 * n[k + 3]
            k += 4
        for single in range(k, i):
            factor = a[single, i] * inverse[single]
            add_one(ai[i + 1 :], a[single][i + 1 :], factor)
            add_one(bi[:stop], b[single], factor)
            n[i] += factor * n[single]
        total = n[i]
        for j in range(i + 1, K):
            total += ai[j]
        inverse[i] = 1.0 / total
    for i in range(K - 1, -1, -1):
        ai, bi = a[i], b[i]
        k = i + 1
        while k + 4 <= K:
            f0, f1, f2, f3 = ai[k], ai[k + 1], ai[k + 2], ai[k + 3]
            b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
            for j in range(columns):
                bi[j] += f0 * b0[j] + f1 * b1[j] + f2 * b2[j] + f3 * b3[j]
            k += 4
        for single in range(k, K):
            add_one(bi, b[single], ai[single])
        for j in range(columns):
            bi[j] *= inverse[i]


@kernel
def _eliminate(a: Float64, n: Float64, b: Float64, inverse: Float64) -> None:
    """Eliminate the first nodes, of which a and b hold the rows, one by one."""
    for i in range(n.size):
        ai, bi = a[i], b[i]
        for k in range(i):
            factor = a[k, i] * inverse[k]
            add_one(ai[i + 1 :], a[k][i + 1 :], factor)
            add_one(bi, b[k], factor)
            n[i] += factor * n[k]
        total = n[i]
        for j in range(i + 1, ai.size):
            total += ai[j]
        inverse[i] = 1.0 / total


@kernel
def _back(a: Float64, b: Float64, inverse: Float64) -> None:
    for i in range(inverse.size - 1, -1, -1):
        for k in range(i + 1, inverse.size):
            add_one(b[i], b[k], a[i, k])
        for j in range(b.shape[1]):
            b[i, j] *= inverse[i]


@subroutine
def add_four(
    row: Float64, rows: Float64, k: int, start: int, f0: float, f1: float, f2: float, f3: float
) -> None:
    """Add a combination of rows k to k + 3, from `start` on, to a row."""
    r0, r1, r2, r3 = rows[k][start:], rows[k + 1][start:], rows[k + 2][start:], rows[k + 3][start:]
    for j in range(row.size):
        row[j] += f0 * r0[j] + f1 * r1[j] + f2 * r2[j] + f3 * r3[j]


@subroutine
def add_one(row: Float64, other: Float64, factor: float) -> None:
    for j in range(row.size):
        row[j] += factor * other[j]


@subroutine
def cholesky(H: Float64) -> bool:
    """Overwrite the upper triangle of H by U with U'U = H; False if H is not positive."""
    m = H.shape[0]
    for start in range(0, m, _PANEL):
        stop = min(start + _PANEL, m)
        for i in range(start, m):
            Hi = H[i][i:]
            last = min(i, stop)
            k = start
            while k + 4 <= last:
                add_four(Hi, H, k, i, -H[k, i], -H[k + 1, i], -H[k + 2, i], -H[k + 3, i])
                k += 4
            for single in range(k, last):
                add_one(Hi, H[single][i:], -H[single, i])
            if i < stop:
                if not Hi[0] > 0.0:
                    return False
                inverse = 1.0 / np.sqrt(Hi[0])
                for j in range(Hi.size):
                    Hi[j] *= inverse
    return True


@subroutine
def substitute(U: Float64, x: Float64) -> None:
    """Overwrite x by (U'U)^-1 x."""
    m = U.shape[0]
    whole = m - m % 4
    for start in range(0, whole, 4):
        stop = start + 4
        for k in range(start, stop):
            x[k] /= U[k, k]
            add_one(x[k + 1 : stop], U[k][k + 1 :], -x[k])
        add_four(x[stop:], U, start, stop, -x[start], -x[start + 1], -x[start + 2], -x[start + 3])
    for k in range(whole, m):
        x[k] /= U[k, k]
        add_one(x[k + 1 :], U[k][k + 1 :], -x[k])
    for k in range(m - 1, -1, -1):
        Uk, rest = U[k][k + 1 :], x[k + 1 :]
        s0, s1, s2, s3 = x[k], 0.0, 0.0, 0.0
        whole = rest.size - rest.size % 4
        for j in range(0, whole, 4):
            s0 -= Uk[j] * rest[j]
            s1 -= Uk[j + 1] * rest[j + 1]
            s2 -= Uk[j + 2] * rest[j + 2]
            s3 -= Uk[j + 3] * rest[j + 3]
        for j in range(whole, rest.size):
            s0 -= Uk[j] * rest[j]
        x[k] = ((s0 + s1) + (s2 + s3)) / U[k, k]


@fragment
def squared_distance(x: Array, y: Array) -> float:
    """Return ||x - y||^2, in float64 whatever the vectors are."""
    total = 0.0
    for j in range(x.size):
        difference = np.float64(x[j]) - np.float64(y[j])
        total += difference * difference
    return total
