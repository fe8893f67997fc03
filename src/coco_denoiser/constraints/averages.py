"""What multipliers make of residuals: averages; and points that average as one.

For multipliers lam of the pairs, the residuals phi that balance the observations h solve

    (N + Laplacian(lam)) phi = N h,    so that phi = W h with W = (N + Laplacian)^-1 N.

Where the noise has a covariance, N differs from coordinate to coordinate by a factor, its share:
the coordinate is then averaged as if its multipliers were divided by that factor.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel
from coco_denoiser._linalg import MANY, solve_laplacian, solve_large_laplacian
from coco_denoiser.geometry import COINCIDENT, ROUNDING, Window, most_central, standardise
from coco_denoiser.typing import Float64, Int64


def stationary(multipliers: Float64, window: Window) -> Float64:
    """Return phi (K, q), where these multipliers, all finite, balance the observations."""
    shares = np.ones(1) if window.shares is None else window.shares
    phi = window.precisions[:, None] * window.residuals
    for share in np.unique(shares):
        part = phi if shares.size == 1 else phi[:, shares == share]
        solve_large_laplacian(multipliers / share, window.precisions.copy(), part, part.shape[1])
        if part is not phi:
            phi[:, shares == share] = part
    return phi


def average(multipliers: Float64, window: Window) -> tuple[Float64 | None, Float64]:
    """Return W (K, K), if one matrix serves all coordinates, and phi (K, q), which is feasible.

    For the best multipliers it is optimal; for others it is drawn towards the centroid until
    every pair fits. Points that infinite multipliers hold together share one phi.
    """
    if not multipliers.any():
        # Nothing to average: exactly, so that observations stay the same to the last bit.
        return np.eye(len(multipliers)), window.residuals
    if window.shares is None:
        W = weights(multipliers, window)
        return W, W @ window.residuals
    labels, merged, between = _together(multipliers, window)
    return None, drawn_in(window, stationary(between, merged)[labels])


def weights(multipliers: Float64, window: Window) -> Float64:
    """Return W (K, K), drawn towards the centroid until every pair of phi = W h fits."""
    if np.isinf(multipliers).any():
        labels, merged, between = _together(multipliers, window)
        share = window.precisions / merged.precisions[labels]
        return weights(between, merged)[np.ix_(labels, labels)] * share
    if len(multipliers) < MANY:
        return weights_and_phi(multipliers, window.residuals, window.bounds, window.precisions)[0]
    W = np.eye(len(multipliers))
    solve_large_laplacian(multipliers.copy(), window.precisions.copy(), W, 0)
    _complete(W, window.residuals, window.bounds, window.precisions)
    return W


def _together(multipliers: Float64, window: Window) -> tuple[Int64, Window, Float64]:
    """Merge the points that infinite multipliers hold together; return the others' multipliers."""
    labels = coincident(1.0 / np.maximum(multipliers, 1.0), 0.0)
    merged = merge(window, labels)
    between = np.zeros_like(merged.bounds)
    apart = labels[:, None] != labels
    np.add.at(between, tuple(labels[np.argwhere(apart)].T), multipliers[apart])
    return labels, merged, between


def drawn_in(window: Window, phi: Float64) -> Float64:
    """Draw residuals towards their centroid until every pair fits."""
    first, second = window.pairs()
    apart = np.linalg.norm(phi[first] - phi[second], axis=1) - ROUNDING
    rho = window.bounds[first, second]
    over = apart > rho
    shrink = float((rho[over] / apart[over]).min(initial=1.0))
    centroid = window.precisions @ phi / window.precisions.sum()
    return np.asarray(phi if shrink == 1.0 else centroid + shrink * (phi - centroid))


def merge(window: Window, labels: Int64) -> Window:
    """Join points with the same label into one, with their mean and their added precision."""
    count = int(labels.max()) + 1
    if count == labels.size:
        return window

    def mean(table: Float64, weight: Float64) -> Float64:
        sums = np.zeros((count, *table.shape[1:]))
        np.add.at(sums, labels, (weight * table.T).T)
        total = np.bincount(labels, weight)
        return np.asarray((sums.T / np.where(total > 0.0, total, 1.0)).T)

    n = window.precisions
    bounds = np.full((count, count), np.inf)
    np.minimum.at(bounds, (labels[:, None], labels[None, :]), window.bounds)
    np.fill_diagonal(bounds, 0.0)
    precisions = np.bincount(labels, n).astype(np.float64)
    return Window(mean(window.residuals, n), bounds, precisions, window.shares)


def split(multipliers: Float64, window: Window, labels: Int64) -> Float64:
    """Return multipliers of all K points from those of the groups, none of them inside one.

    What pulls two groups together acts on the pair of members with the smallest bound.
    """
    K = labels.size
    full = np.zeros((K, K))
    members = [np.flatnonzero(labels == a) for a in range(len(multipliers))]
    for a, b in np.argwhere(np.tril(multipliers)):
        mine, theirs = members[a], members[b]
        block = window.bounds[np.ix_(mine, theirs)]
        i, j = divmod(int(block.argmin()), theirs.size)
        full[mine[i], theirs[j]] = full[theirs[j], mine[i]] = multipliers[a, b]
    return full


def alone(window: Window, members: Int64, pull: Float64) -> Window:
    """Return the window of some points alone, on which the others pull with given forces, (m, q).

    It has a scale of its own, in which bounds too small for the whole window are not too small;
    its multipliers are relative to the largest precision of the members.
    """
    n = window.precisions[members]
    residuals = window.residuals[members] - window.residuals[members[0]]
    residuals += pull / window.table()[members]
    scale = standardise(residuals, most_central(residuals))
    bounds = window.bounds[np.ix_(members, members)] / scale
    return Window(residuals, bounds, n / n.max(), window.shares)


@kernel
def coincident(bounds: Float64, limit: float = COINCIDENT) -> Int64:
    """Number the groups of points no further apart than this, in the order of first members."""
    K = bounds.shape[0]
    labels = np.empty(K, np.int64)
    for i in range(K):
        labels[i] = -1
    stack = np.empty(K, np.int64)
    count = 0
    for i in range(K):
        if labels[i] >= 0:
            continue
        labels[i] = count
        stack[0], size = i, 1
        while size > 0:
            size -= 1
            member = stack[size]
            for j in range(i + 1, K):
                if labels[j] < 0 and bounds[member, j] <= limit:
                    labels[j] = count
                    stack[size] = j
                    size += 1
        count += 1
    return labels


@kernel
def weights_and_phi(
    lam: Float64, h: Float64, bounds: Float64, n: Float64
) -> tuple[Float64, Float64]:
    """Return W (K, K) and phi = W h for multipliers that are finite."""
    W, a = np.zeros(lam.shape), np.empty(lam.shape)
    largest = 0.0
    for i in range(n.size):
        W[i, i] = 1.0
        for j in range(n.size):
            a[i, j] = lam[i, j]
            largest = max(largest, lam[i, j])
    if largest == 0.0:
        return W, h  # exactly, so that observations stay the same to the last bit
    # Not 0 itself: for a literal, Numba would compile it once more.
    solve_laplacian(a, n.copy(), W, len(W) - n.size)
    return W, _complete(W, h, bounds, n)


@fragment
def _complete(W: Float64, h: Float64, bounds: Float64, n: Float64) -> Float64:
    """Multiply W by N, then draw it towards the centroid until every pair fits; return W h."""
    K, q = h.shape
    phi = np.zeros((K, q))
    total = 0.0
    for i in range(K):
        total += n[i]
        for j in range(K):
            W[i, j] *= n[j]
            for c in range(q):
                phi[i, c] += W[i, j] * h[j, c]
    shrink = 1.0
    for i in range(K):
        for j in range(i):
            squared = 0.0
            for c in range(q):
                squared += (phi[i, c] - phi[j, c]) ** 2
            apart = np.sqrt(squared) - 1.5 * ROUNDING  # half of a rounding is left for the last sum
            if apart > bounds[i, j]:
                shrink = min(shrink, bounds[i, j] / apart)
    if shrink < 1.0:
        for i in range(K):
            for c in range(q):
                phi[i, c] = 0.0
            for j in range(K):
                W[i, j] = shrink * W[i, j] + (1.0 - shrink) * n[j] / total
                for c in range(q):
                    phi[i, c] += W[i, j] * h[j, c]
    return phi
