"""One step of the interior-point method: the linear system, the direction, and the move.

The letters are those of interior_point.py, which calls this.
"""

from typing import NamedTuple

import numpy as np

from coco_denoiser._jit import subroutine
from coco_denoiser._linalg import add_four, add_one, substitute
from coco_denoiser.typing import Float64, Int64

# A pair is solved for by itself if its coupling is below this share of its slack. Five times as
# much saves a few percent, and makes large hard windows run in circles more often.
_DIAGONAL = 1e-2


class Problem(NamedTuple):
    """Residuals, precisions, and the pairs that no other pairs imply."""

    h: Float64
    n: Float64
    first: Int64
    second: Int64
    rho: Float64


class State(NamedTuple):
    """Where the method is; the first four have an entry a pair."""

    lam: Float64
    s: Float64
    omega: Float64
    w: Float64
    phi: Float64
    hat: Float64
    M: Float64


class Step(NamedTuple):
    """Where it goes next, and the linearised equations for that, an entry a pair."""

    dlam: Float64
    ds: Float64
    dphi: Float64
    target: Float64
    diagonal: Float64


@subroutine
def linearise(problem: Problem, state: State, step: Step, work: Int64, coupled: Int64) -> int:
    """Fill the linearised slack at dlam = 0 and the Hessian's diagonal; list coupled pairs."""
    lam, s, M = state.lam, state.s, state.M
    na = 0
    for k in range(work.size):
        e = work[k]
        i, j = problem.first[e], problem.second[e]
        x, y, xh, yh = state.phi[i], state.phi[j], state.hat[i], state.hat[j]
        vv, vhat = 0.0, 0.0
        for c in range(x.size):
            v = x[c] - y[c]
            vv += v * v
            vhat += v * (xh[c] - yh[c])
        step.target[e] = 0.5 * (problem.rho[e] ** 2 + vv) - vhat
        curvature = (M[i, i] + M[j, j] - 2.0 * M[i, j]) * vv
        step.diagonal[e] = curvature + s[e] / lam[e]
        if lam[e] * curvature > _DIAGONAL * s[e]:
            coupled[na] = e
            na += 1
    return na


@subroutine
def hessian(problem: Problem, state: State, coupled: Int64, ridge: float) -> Float64:
    """Return (b_e' M b_f)(v_e . v_f) + diag(s / lam) over the coupled pairs, upper triangle.

    Both factors are differences of rows, of X = M B and of Y = phi v', so that an entry costs
    three operations instead of q.
    """
    phi, M, first, second = state.phi, state.M, problem.first, problem.second
    K, q = phi.shape
    m = coupled.size
    X, Y, V = np.empty((K, m)), np.zeros((K, m)), np.empty((q, m))
    for k in range(m):
        i, j = first[coupled[k]], second[coupled[k]]
        for c in range(K):
            X[c, k] = M[i, c] - M[j, c]
        for c in range(q):
            V[c, k] = phi[i, c] - phi[j, c]
    for i in range(K):
        for c in range(q):
            add_one(Y[i], V[c], phi[i, c])
    H = np.empty((m, m))
    for k in range(m):
        e = coupled[k]
        Xi, Xj, Yi, Yj = X[first[e]], X[second[e]], Y[first[e]], Y[second[e]]
        Hk = H[k]
        for f in range(k, m):
            Hk[f] = (Xi[f] - Xj[f]) * (Yi[f] - Yj[f])
        Hk[k] = Hk[k] * (1.0 + ridge) + state.s[e] / state.lam[e]
    return H


@subroutine
def direction(
    problem: Problem, state: State, step: Step, U: Float64, coupled: Int64, work: Int64
) -> tuple[float, float]:
    """Fill the step by Mehrotra's predictor and corrector; return how far s and lam may go."""
    lam, s, omega, dlam, ds = state.lam, state.s, state.omega, step.dlam, step.ds
    rhs = np.empty(coupled.size)
    mu, weight = 0.0, 0.0
    for k in range(work.size):
        mu += lam[work[k]] * s[work[k]]
        weight += omega[work[k]]
    mu /= weight
    tau, step_s, step_lam = 0.0, 1.0, 1.0
    for phase in range(2):
        for k in range(work.size):
            e = work[k]
            second_order = dlam[e] * ds[e] if phase == 1 else 0.0
            ds[e] = (tau * omega[e] - second_order) / lam[e]
            dlam[e] = (ds[e] - step.target[e]) / step.diagonal[e]
        for k in range(coupled.size):
            rhs[k] = ds[coupled[k]] - step.target[coupled[k]]
        substitute(U, rhs)
        for k in range(coupled.size):
            dlam[coupled[k]] = rhs[k]
        # As close to the boundary as the path allows: 0.9 far out, 1 - mu near the end.
        keep = max(0.9, 1.0 - mu) if phase == 1 else 1.0
        step_s, step_lam = 1.0, 1.0
        for k in range(work.size):
            e = work[k]
            ds[e] -= s[e] + s[e] / lam[e] * dlam[e]
            if ds[e] < 0.0:
                step_s = min(step_s, -keep * s[e] / ds[e])
            if dlam[e] < 0.0:
                step_lam = min(step_lam, -keep * lam[e] / dlam[e])
        if phase == 0:
            affine = 0.0
            for k in range(work.size):
                e = work[k]
                affine += (lam[e] + step_lam * dlam[e]) * (s[e] + step_s * ds[e])
            tau = max((affine / weight / mu) ** 3 * mu, 1e-16)
    _primal_direction(problem, state, step, work)
    return step_s, step_lam


@subroutine
def _primal_direction(problem: Problem, state: State, step: Step, work: Int64) -> None:
    """Fill dphi = hat - phi - M B (dlam v)."""
    phi = state.phi
    K, q = phi.shape
    pull = np.zeros((K, q))
    for k in range(work.size):
        factor = step.dlam[work[k]]
        i, j = problem.first[work[k]], problem.second[work[k]]
        x, y, px, py = phi[i], phi[j], pull[i], pull[j]
        for c in range(q):
            v = factor * (x[c] - y[c])
            px[c] += v
            py[c] -= v
    whole = K - K % 4
    for i in range(K):
        row, x, y, Mi = step.dphi[i], state.hat[i], phi[i], state.M[i]
        for c in range(q):
            row[c] = x[c] - y[c]
        for j in range(0, whole, 4):
            add_four(row, pull, j, 0, -Mi[j], -Mi[j + 1], -Mi[j + 2], -Mi[j + 3])
        for j in range(whole, K):
            add_one(row, pull[j], -Mi[j])


@subroutine
def move(state: State, step: Step, work: Int64, step_s: float, step_lam: float) -> None:
    for k in range(work.size):
        e = work[k]
        state.lam[e] += step_lam * step.dlam[e]
        state.s[e] += step_s * step.ds[e]
    for i in range(state.phi.shape[0]):
        add_one(state.phi[i], step.dphi[i], step_s)


@subroutine
def residual(problem: Problem, state: State, work: Int64) -> float:
    """Return the worst relative error of the slacks and of phi against hat, over the pairs."""
    worst = 0.0
    for k in range(work.size):
        e = work[k]
        i, j = problem.first[e], problem.second[e]
        x, y, xh, yh = state.phi[i], state.phi[j], state.hat[i], state.hat[j]
        vv, off = 0.0, 0.0
        for c in range(x.size):
            v = x[c] - y[c]
            vv += v * v
            off += (v - xh[c] + yh[c]) ** 2
        bound = problem.rho[e]
        slack = abs(state.s[e] - 0.5 * (bound**2 - vv)) / bound**2
        worst = max(worst, slack, np.sqrt(off) / bound)
    return worst
