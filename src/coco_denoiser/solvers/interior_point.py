"""Exact multipliers of one window by a primal-dual interior-point method on small tables.

Solves, for K residuals h_i, precisions n_i and bounds rho_ml,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Letters: v_e = phi_m - phi_l for a pair e = (m, l), w_e its length at the stationary residuals,
s_e = (rho_e^2 - ||v_e||^2) / 2 its slack, lam_e its multiplier, B the map from forces on pairs
to forces on points, M = (diag(n) + Laplacian(lam))^-1, and hat = M diag(n) h, the residuals
that are stationary for lam. The path is lam_e s_e = tau omega_e, tau -> 0.

1. A few multiplicative rounds, lam <- lam (w / rho)^2, find the pairs that matter.
2. Predictor-corrector steps in (phi, lam, s) on those pairs. phi is kept apart from hat:
   with phi = hat the tight pairs make every step too long. Pairs that turn out to be violated
   join; pairs whose slack dominates are solved for one by one, so that the linear system is
   about as large as the active set.
"""

import numpy as np

from coco_denoiser._jit import kernel, subroutine
from coco_denoiser._linalg import cholesky, solve_laplacian
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.solvers._interior_step import (
    Problem,
    State,
    Step,
    direction,
    hessian,
    linearise,
    move,
    residual,
)
from coco_denoiser.typing import Float64, Int64

# Step 1 ends when no pair exceeds its bound by more than READY, and those nearer than `near`
# alone keep all others within CARRY; or after ROUNDS, with all pairs.
ROUNDS, READY, CARRY = 60, 1.05, 1.25
_BLOCK = 128  # third points that are looked at together
_START = 1.025  # how far inside its bounds step 2 starts
# A step may double the error, or lift it to `floor`. Where bounds differ by many orders of
# magnitude, about one large window in a hundred runs in circles, and is begun anew from another
# working set.
ATTEMPTS, STEPS = ((0.95, 0.2), (0.8, 0.1), (0.5, 0.05)), 70  # (near, floor), steps of each


def solve(window: Window, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        window: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps of the interior-point method.
    """
    iterations = 0
    for near, floor in ATTEMPTS:
        # Half the tolerance: the certificate is computed after a last rounding.
        multipliers, steps, solved = _solve(
            window.residuals,
            window.bounds,
            window.precisions,
            0.5 * tol,
            min(max_iter - iterations, STEPS),
            near,
            floor,
        )
        iterations += steps
        if solved or iterations >= max_iter:
            break
    return multipliers, iterations


@kernel
def _solve(
    h: Float64, bounds: Float64, n: Float64, tol: float, max_iter: int, near: float, floor: float
) -> tuple[Float64, int, bool]:
    K, q = h.shape
    problem = _irredundant(h, bounds, n)
    pairs = problem.rho.size
    work, coupled = np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    state = State(
        np.empty(pairs),
        np.zeros(pairs),
        np.zeros(pairs),
        np.empty(pairs),
        np.empty((K, q)),
        np.empty((K, q)),
        np.empty((K, K)),
    )
    step = Step(
        np.empty(pairs), np.empty(pairs), np.empty((K, q)), np.empty(pairs), np.empty(pairs)
    )
    m = _multiplicative(problem, state, work, near)
    force = enter(problem, state, work[:m])
    error = residual(problem, state, work[:m])
    iterations, solved = 0, False
    while True:
        worst = distances(problem, state.hat, state.w)
        solved = relative_gap(problem, state, worst) <= tol
        if solved or iterations >= max_iter:
            break
        m = _join(problem, state, work, m, force)
        na = linearise(problem, state, step, work[:m], coupled)
        ridge = 1e-12  # dependent constraints leave H singular; this is below its rounding
        H = hessian(problem, state, coupled[:na], ridge)
        while not cholesky(H) and ridge < 1e-3:
            ridge *= 100.0
            H = hessian(problem, state, coupled[:na], ridge)
        step_s, step_lam = direction(problem, state, step, H, coupled[:na], work[:m])
        before = error
        for attempt in range(8):
            if attempt > 0:  # the step was too long: go back half of it
                step_s *= 0.5
                step_lam *= 0.5
            sign = 1.0 if attempt == 0 else -1.0
            move(state, step, work[:m], sign * step_s, sign * step_lam)
            _stationary(problem, state.lam, state.hat, state.M)
            error = residual(problem, state, work[:m])
            if error <= max(2.0 * before, floor):
                break
        iterations += 1

    if solved:
        _release(problem, state, work[:m], force, 2.0 * tol)
    table = np.zeros((K, K))
    for e in range(pairs):
        i, j = problem.first[e], problem.second[e]
        table[i, j] = table[j, i] = state.lam[e]
    return table, iterations, solved


@subroutine
def _irredundant(h: Float64, bounds: Float64, n: Float64) -> Problem:
    """Leave out pairs that a third point implies: rho_mp + rho_pl <= rho_ml, both shorter."""
    K = bounds.shape[0]
    pairs = K * (K - 1) // 2
    first, second, rho = np.empty(pairs, np.int64), np.empty(pairs, np.int64), np.empty(pairs)
    count = 0
    for i in range(K):
        for j in range(i + 1, K):
            bound = bounds[i, j]
            if bound < np.inf and not is_implied(bounds[i], bounds[j], bound):
                first[count], second[count], rho[count] = i, j, bound
                count += 1
    return Problem(h, n, first[:count], second[:count], rho[:count])


@subroutine
def is_implied(x: Float64, y: Float64, bound: float) -> bool:
    """Say whether a third point, at x[p] and y[p] from the two, implies their bound."""
    # Without "both shorter", near-duplicates would imply each other away.
    shorter, reach = bound * (1.0 - 1e-9), bound * (1.0 + 1e-12)
    for start in range(0, x.size, _BLOCK):
        near, far = x[start : start + _BLOCK], y[start : start + _BLOCK]
        found = 0
        for p in range(near.size):
            # Counted, since a way out would keep it from vectorising.
            ok = (near[p] + far[p] <= reach) & (near[p] < shorter) & (far[p] < shorter)
            found += 1 if ok else 0
        if found > 0:
            return True
    return False


@subroutine
def _multiplicative(problem: Problem, state: State, work: Int64, near: float) -> int:
    """Improve lam until the pairs near their bounds carry the rest; list them in work.

    Starts from what would be right if all pairs were alike. Fills hat, M and w, sets lam of
    the other pairs to zero, and returns how many are listed.
    """
    lam, w, rho = state.lam, state.w, problem.rho
    pairs = rho.size
    last, kept, reach, none = np.ones(pairs), np.empty(pairs), np.empty(pairs), np.empty((0, 0))
    distances(problem, problem.h, w)
    for e in range(pairs):
        lam[e] = max(w[e] / rho[e] - 1.0, 0.01) / problem.n.size
    m = 0
    for rounds in range(ROUNDS + 1):
        _stationary(problem, lam, state.hat, none)
        worst = distances(problem, state.hat, w)
        if worst <= READY or rounds == ROUNDS:
            if rounds == ROUNDS:
                near = 0.0
            m = 0
            for e in range(pairs):
                kept[e] = 0.0
                if w[e] > near * rho[e]:
                    work[m] = e
                    m += 1
                    kept[e] = lam[e]
            _stationary(problem, kept, state.hat, state.M)
            if m > 0 and distances(problem, state.hat, reach) <= CARRY:
                break
        if rounds < ROUNDS:
            for e in range(pairs):
                # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but
                # swings to and fro on such a pair, and is given up there.
                x = max(w[e] / rho[e], 0.1)
                lam[e] *= x * x if (x - 1.0) * (last[e] - 1.0) >= 0.0 else x
                last[e] = x
    for e in range(pairs):
        lam[e] = kept[e]
    return m


@subroutine
def enter(problem: Problem, state: State, work: Int64) -> float:
    """Start step 2 a little inside the bounds; return the largest force of a pair."""
    lam, w, rho = state.lam, state.w, problem.rho
    worst = distances(problem, state.hat, w)
    shrink = 1.0 / (_START * min(max(worst, 1.0), READY))
    force = 0.0
    for e in range(rho.size):
        force = max(force, lam[e] * rho[e])
    for k in range(work.size):
        e = work[k]
        lam[e] = max(lam[e], 1e-6 * force / rho[e])
        inside = max(rho[e] ** 2 - (shrink * w[e]) ** 2, (1.0 - 1.0 / _START) * rho[e] ** 2)
        state.s[e] = 0.5 * inside
        state.omega[e] = rho[e] * max(lam[e] * rho[e], 1e-3 * force)
    for i in range(problem.n.size):
        for c in range(problem.h.shape[1]):
            state.phi[i, c] = shrink * state.hat[i, c]
    return force


@subroutine
def _release(problem: Problem, state: State, work: Int64, force: float, tol: float) -> None:
    """Set to zero the multipliers that are only there because the path has not ended.

    A pair is inactive if its slack is larger than its multiplier, each on its own scale.
    """
    lam, rho, kept = state.lam, problem.rho, np.zeros(problem.rho.size)
    for k in range(work.size):
        e = work[k]
        if lam[e] * rho[e] ** 3 > force * state.s[e]:
            kept[e] = lam[e]
    released = State(
        kept, state.s, state.omega, state.w, state.phi, np.empty(state.hat.shape), state.M
    )
    _stationary(problem, kept, released.hat, np.empty((0, 0)))
    worst = distances(problem, released.hat, released.w)
    if relative_gap(problem, released, worst) <= tol:
        for e in range(lam.size):
            lam[e] = kept[e]


@subroutine
def _stationary(problem: Problem, lam: Float64, hat: Float64, M: Float64) -> None:
    """Fill hat and, unless it is empty, M: both come out of one elimination."""
    K, q = problem.h.shape
    a, rest, both = np.zeros((K, K)), np.empty(K), np.zeros((K, q + M.shape[0]))
    for e in range(lam.size):
        a[problem.first[e], problem.second[e]] = lam[e]
    for i in range(K):
        rest[i] = problem.n[i]
        for c in range(q):
            both[i, c] = problem.n[i] * problem.h[i, c]
        if M.size > 0:
            both[i, q + i] = 1.0
    solve_laplacian(a, rest, both, q)
    for i in range(K):
        for c in range(q):
            hat[i, c] = both[i, c]
        for c in range(M.shape[0]):
            M[i, c] = both[i, q + c]


@subroutine
def distances(problem: Problem, phi: Float64, w: Float64) -> float:
    """Fill w with the pairs' distances; return the largest ratio of distance to bound."""
    worst = 0.0
    for e in range(w.size):
        x, y = phi[problem.first[e]], phi[problem.second[e]]
        total = 0.0
        for c in range(x.size):
            total += (x[c] - y[c]) ** 2
        w[e] = np.sqrt(total)
        worst = max(worst, (w[e] - ROUNDING) / problem.rho[e])
    return worst


@subroutine
def relative_gap(problem: Problem, state: State, worst: float) -> float:
    """Return the relative duality gap of hat, shrunk until every pair fits.

    The centroid of h, and so of hat, is zero.
    """
    h, n, hat = problem.h, problem.n, state.hat
    shrink = 1.0 / max(worst, 1.0)
    spread, value = 0.0, 0.0
    for i in range(h.shape[0]):
        for c in range(h.shape[1]):
            spread += n[i] * hat[i, c] ** 2
            value += n[i] * (shrink * hat[i, c] - h[i, c]) ** 2
    gap = 0.5 * (1.0 - shrink) ** 2 * spread
    for e in range(state.lam.size):
        slack = max(abs(problem.rho[e] - shrink * state.w[e]) - 0.5 * ROUNDING, 0.0)
        gap += state.lam[e] * state.w[e] * slack
    return gap / (0.5 * value) if gap > 0.0 else 0.0


@subroutine
def _join(problem: Problem, state: State, work: Int64, m: int, force: float) -> int:
    """Let the violated pairs that are not yet worked on join; return how many are now."""
    for e in range(problem.rho.size):
        if state.s[e] == 0.0:
            x, y = state.phi[problem.first[e]], state.phi[problem.second[e]]
            total = 0.0
            for c in range(x.size):
                total += (x[c] - y[c]) ** 2
            bound = problem.rho[e]
            if total > bound**2:
                work[m] = e
                m += 1
                state.lam[e] = 1e-4 * force / bound
                state.s[e] = 1e-2 * bound**2
                state.omega[e] = 1e-3 * force * bound
    return m
