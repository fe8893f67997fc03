"""A custom solver: dual coordinate ascent, one pair at a time."""

import numpy as np

from coco_denoiser import solvers


def one_pair_at_a_time(window, *, tol, max_iter):
    """Return the multipliers, (K, K), and the number of sweeps."""
    K = len(window.precisions)
    multipliers, largest, sweeps = np.zeros((K, K)), np.inf, 0
    while largest > 1e-3 * tol and sweeps < max_iter:
        largest, sweeps = 0.0, sweeps + 1
        for i, j in zip(*np.triu_indices(K, 1), strict=True):
            laplacian = np.diag(multipliers.sum(axis=1)) - multipliers
            G = np.linalg.inv(np.diag(window.precisions) + laplacian)
            pair = G[i] - G[j]
            apart = np.linalg.norm((pair * window.precisions) @ window.residuals)
            # How the pair's distance responds to its own multiplier, exactly.
            stiffness = pair[i] - pair[j]
            change = (apart / window.bounds[i, j] - 1.0) / stiffness
            change = max(change, -multipliers[i, j])
            multipliers[i, j] += change
            multipliers[j, i] = multipliers[i, j]
            largest = max(largest, abs(change))
    return multipliers, sweeps


solvers.METHODS["one-pair"] = one_pair_at_a_time
