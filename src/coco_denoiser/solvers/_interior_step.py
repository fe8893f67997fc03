"""One step of the interior-point method: the linear system, the direction, and the move.

The letters are those of interior_point.py, which calls this. Arrays come one by one and are
indexed where they lie: records of arrays and views of rows would double the time to compile, and
each view costs more than the few numbers it holds. `both`, (K, q + K), holds hat and, beside it, M.
"""

import numpy as np

from coco_denoiser._jit import fragment, kernel
from coco_denoiser._linalg import substitute
from coco_denoiser.typing import Float64, Int64

# A pair is solved for by itself if its coupling is below this share of its slack. Five times as
# much saves a few percent, and makes large hard windows run in circles more often.
_DIAGONAL = 1e-2
NEAREST = 1e-5  # how much of a slack or a multiplier a step leaves at least


@kernel
def linearise(
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    s: Float64,
    phi: Float64,
    both: Float64,
    target: Float64,
    diagonal: Float64,
    coupled: Int64,
) -> int:
    """Fill the linearised slack at dlam = 0 and the Hessian's diagonal; list coupled pairs."""
    q = phi.shape[1]
    na = 0
    for e in range(rho.size):
        i, j = first[e], second[e]
        vv, vhat = 0.0, 0.0
        for c in range(q):
            v = phi[i, c] - phi[j, c]
            vv += v * v
            vhat += v * (both[i, c] - both[j, c])
        target[e] = 0.5 * (rho[e] * rho[e] + vv) - vhat
        curvature = (both[i, q + i] + both[j, q + j] - 2.0 * both[i, q + j]) * vv
        diagonal[e] = curvature + s[e] / lam[e]
        if lam[e] * curvature > _DIAGONAL * s[e]:
            coupled[na] = e
            na += 1
    return na


@kernel
def hessian(
    first: Int64,
    second: Int64,
    rho: Float64,
    lam: Float64,
    s: Float64,
    phi: Float64,
    both: Float64,
    coupled: Int64,
    ridge: float,
) -> Float64:
    """Return (b_e' M b_f)(v_e . v_f) + diag(s / lam) over the coupled pairs.

    Both factors are differences of rows, of X = M B and of Y = phi v', so that an entry costs
    three operations instead of q. Dependent constraints leave it singular: the ridge, relative
    to the diagonal, grows with what such a difference has lost.
    """
    K, q = phi.shape
    m = coupled.size
    X, Y, V, H = np.empty((K, m)), np.zeros((K, m)), np.empty((q, m)), np.empty((m, m))
    for k in range(m):
        i, j = first[coupled[k]], second[coupled[k]]
        for c in range(K):
            X[c, k] = both[i, q + c] - both[j, q + c]
        for c in range(q):
            V[c, k] = phi[i, c] - phi[j, c]
    for i in range(K):
        for c in range(q):
            factor = phi[i, c]
            for k in range(m):
                Y[i, k] += factor * V[c, k]
    for k in range(m):
        e = coupled[k]
        i, j = first[e], second[e]
        for f in range(m):
            H[k, f] = (X[i, f] - X[j, f]) * (Y[i, f] - Y[j, f])
        lost = ridge + 1e-15 / rho[e]
        H[k, k] = H[k, k] * (1.0 + lost) + s[e] / lam[e]
    return H


@fragment
def direction(
    lam: Float64,
    s: Float64,
    omega: Float64,
    coupled: Int64,
    U: Float64,
    target: Float64,
    diagonal: Float64,
    dlam: Float64,
    ds: Float64,
    least: float,
) -> tuple[float, float]:
    """Fill dlam and ds by Mehrotra's predictor and corrector; return how far s and lam may go."""
    rhs = np.empty(coupled.size)
    mu, weight = 0.0, 0.0
    for e in range(lam.size):
        mu += lam[e] * s[e]
        weight += omega[e]
    mu /= weight
    tau, step_s, step_lam = 0.0, 1.0, 1.0
    for phase in range(2):
        for e in range(lam.size):
            second_order = dlam[e] * ds[e] if phase == 1 else 0.0
            ds[e] = (tau * omega[e] - second_order) / lam[e]
            dlam[e] = (ds[e] - target[e]) / diagonal[e]
        for k in range(coupled.size):
            rhs[k] = ds[coupled[k]] - target[coupled[k]]
        substitute(U, rhs)
        for k in range(coupled.size):
            dlam[coupled[k]] = rhs[k]
        # As close to the boundary as the path allows: 0.9 far out, 1 - mu near the end.
        keep = max(0.9, 1.0 - max(mu, NEAREST)) if phase == 1 else 1.0
        step_s, step_lam = 1.0, 1.0
        for e in range(lam.size):
            ds[e] -= s[e] + s[e] / lam[e] * dlam[e]
            if ds[e] < 0.0:
                step_s = min(step_s, -keep * s[e] / ds[e])
            if dlam[e] < 0.0:
                step_lam = min(step_lam, -keep * lam[e] / dlam[e])
        if phase == 0:
            affine = 0.0
            for e in range(lam.size):
                affine += (lam[e] + step_lam * dlam[e]) * (s[e] + step_s * ds[e])
            # Not nearer to the end of the path than the tolerance asks for: a slack far below
            # rounding would only spoil the system.
            tau = max((affine / weight / mu) ** 3 * mu, least / weight)
    return step_s, step_lam


@fragment
def primal_direction(
    first: Int64,
    second: Int64,
    phi: Float64,
    both: Float64,
    dlam: Float64,
    dphi: Float64,
) -> None:
    """Fill dphi = hat - phi - M B (dlam v)."""
    K, q = phi.shape
    pull = np.zeros((K, q))
    for e in range(dlam.size):
        i, j = first[e], second[e]
        for c in range(q):
            v = dlam[e] * (phi[i, c] - phi[j, c])
            pull[i, c] += v
            pull[j, c] -= v
    for i in range(K):
        for c in range(q):
            dphi[i, c] = both[i, c] - phi[i, c]
        for j in range(K):
            for c in range(q):
                dphi[i, c] -= both[i, q + j] * pull[j, c]


@kernel
def move(
    lam: Float64,
    s: Float64,
    phi: Float64,
    dlam: Float64,
    ds: Float64,
    dphi: Float64,
    step_s: float,
    step_lam: float,
) -> None:
    """Take a step, or a part of it back."""
    for e in range(lam.size):
        lam[e] += step_lam * dlam[e]
        s[e] += step_s * ds[e]
    for i in range(phi.shape[0]):
        for c in range(phi.shape[1]):
            phi[i, c] += step_s * dphi[i, c]


@kernel
def residual(
    first: Int64,
    second: Int64,
    rho: Float64,
    s: Float64,
    phi: Float64,
    both: Float64,
) -> float:
    """Return the worst relative error of the slacks and of phi against hat, over the pairs."""
    worst = 0.0
    for e in range(rho.size):
        i, j = first[e], second[e]
        vv, off = 0.0, 0.0
        for c in range(phi.shape[1]):
            v = phi[i, c] - phi[j, c]
            rest = v - both[i, c] + both[j, c]
            vv += v * v
            off += rest * rest
        square = rho[e] * rho[e]
        slack = abs(s[e] - 0.5 * (square - vv)) / square
        worst = max(worst, slack, np.sqrt(off / square))
    return worst
