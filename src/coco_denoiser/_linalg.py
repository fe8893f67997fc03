"""Dense linear algebra of one window: a Laplacian system without subtractions, and Cholesky."""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser.typing import Float64

_PANEL = 32  # rows of a Cholesky factor that stay in the cache together


@kernel
def solve_laplacian(a: Float64, n: Float64, b: Float64, identity_from: int) -> None:
    """Overwrite b by (diag(n) + Laplacian(a))^-1 b; a (upper triangle) and n are used up.

    Node after node is eliminated, as Grassmann, Taksar and Heyman do for Markov chains: every
    number stays non-negative and is only added to, so tight clusters lose no digits. Columns
    of b from `identity_from` on must hold an identity; their zeros are skipped.
    """
    K, columns = b.shape
    for k in range(K):
        ak, bk = a[k], b[k]
        total = n[k]
        for j in range(k + 1, K):
            total += ak[j]
        inverse = 1.0 / total
        stop = min(columns, identity_from + k + 1)
        for i in range(k + 1, K):
            factor = ak[i] * inverse
            if factor != 0.0:
                ai, bi = a[i], b[i]
                for j in range(i + 1, K):
                    ai[j] += factor * ak[j]
                for j in range(stop):
                    bi[j] += factor * bk[j]
                n[i] += factor * n[k]
        n[k] = inverse
    for k in range(K - 1, -1, -1):
        ak, bk = a[k], b[k]
        for i in range(k + 1, K):
            factor = ak[i]
            if factor != 0.0:
                bi = b[i]
                for j in range(columns):
                    bk[j] += factor * bi[j]
        for j in range(columns):
            bk[j] *= n[k]


@subroutine
def cholesky(H: Float64) -> bool:
    """Overwrite the upper triangle of H by U with U'U = H; False if H is not positive.

    Each row is updated by a panel of finished rows, four at a time, while it is in the cache.
    """
    m = H.shape[0]
    for start in range(0, m, _PANEL):
        stop = min(start + _PANEL, m)
        for i in range(start, m):
            Hi = H[i]
            last = min(i, stop)
            done = start
            while done + 4 <= last:
                H0, H1, H2, H3 = H[done], H[done + 1], H[done + 2], H[done + 3]
                f0, f1, f2, f3 = H0[i], H1[i], H2[i], H3[i]
                for j in range(i, m):
                    Hi[j] -= f0 * H0[j] + f1 * H1[j] + f2 * H2[j] + f3 * H3[j]
                done += 4
            for k in range(done, last):
                Hk = H[k]
                factor = Hk[i]
                for j in range(i, m):
                    Hi[j] -= factor * Hk[j]
            if i < stop:
                if not Hi[i] > 0.0:
                    return False
                inverse = 1.0 / np.sqrt(Hi[i])
                for j in range(i, m):
                    Hi[j] *= inverse
    return True


@subroutine
def substitute(U: Float64, x: Float64) -> None:
    """Overwrite x by (U'U)^-1 x."""
    m = U.shape[0]
    for k in range(m):
        Uk = U[k]
        x[k] /= Uk[k]
        factor = x[k]
        for j in range(k + 1, m):
            x[j] -= factor * Uk[j]
    for k in range(m - 1, -1, -1):
        Uk = U[k]
        total = x[k]
        for j in range(k + 1, m):
            total -= Uk[j] * x[j]
        x[k] = total / Uk[k]
