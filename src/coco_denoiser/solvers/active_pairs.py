"""Exact multipliers of a large window: only pairs that matter enter, and no system is stored.

Problem and letters are those of interior_point.py, the steps those of newton.py and, if these
fail, of interior_point.py. What differs is how a step is computed, which is what counts from
some hundred points on.

1. The multiplicative rounds run on whole tables. The pairs near their bounds make the list.
2. At every step all pairs are looked at, and violated ones join the list. So the end is an
   optimum over all pairs, although only a few times K of them were worked on.
3. The Newton system over the m pairs of the list, (b_e' M b_f)(v_e . v_f), to which the path
   adds diag(s / lam), is solved by conjugate gradients. Once its diagonal is 1 it is well
   conditioned, and to apply it takes one product with M, K by K. Its m by m entries are stored
   only on the path, where constraints that nearly depend on each other leave it too ill
   conditioned for that.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coco_denoiser._jit import kernel
from coco_denoiser._linalg import solve_large_laplacian, squared_distance
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.solvers import newton
from coco_denoiser.solvers._active_step import (
    Allowance,
    PairList,
    State,
    direction,
    nonnegative,
)
from coco_denoiser.solvers._interior_gap import duality_gap, ratios, rounded_ratio, sizes
from coco_denoiser.solvers._interior_step import move, residual
from coco_denoiser.solvers.interior_point import (
    CARRY,
    FLOOR,
    READY,
    ROUNDS,
    enter,
    is_implied,
)
from coco_denoiser.typing import Float64, Int64

# Multiplications that a window of K points may cost: so many times K^3, and more for small windows,
# between the third and the fourth number. SGD paths and boxes of 170 to 313 points take 11 to 19
# K^3 in 10 dimensions, and 34 to 160 in 2; near-duplicates by the hundred would take minutes.
_ALLOWED, _ALLOWED_SMALL, _LEAST_SMALL, _MOST_SMALL = 1000.0, 8000.0, 1e8, 2e9

Mask: TypeAlias = NDArray[np.bool_]


def solve(window: Window, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        window: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps.
    """
    bounds = irredundant(window.bounds)
    cube = float(len(bounds)) ** 3
    small = min(max(_ALLOWED_SMALL * cube, _LEAST_SMALL), _MOST_SMALL)
    allowance = Allowance(max(_ALLOWED * cube, small))
    # Half the tolerance: the certificate is computed after a last rounding. What overflows is no
    # answer, and its gap says so.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        start = _multiplicative(window, bounds)
        multipliers, iterations, solved = improved(
            window, bounds, start, 0.5 * tol, max_iter, allowance
        )
        if not solved and iterations < max_iter and allowance.left > 0.0:
            multipliers, steps = _follow(
                window, bounds, start, 0.5 * tol, max_iter - iterations, allowance
            )
            iterations += steps
    return multipliers + multipliers.T, iterations


def improved(
    window: Window,
    bounds: Float64,
    pull: Float64,
    tol: float,
    max_iter: int,
    allowance: Allowance,
) -> tuple[Float64, int, bool]:
    """Do as newton.py does, from multipliers above the diagonal; say whether that is the end.

    The best multipliers come first, (K, K), then the number of steps.
    """
    n, (K, q) = window.precisions, window.residuals.shape
    both, iterations, best, kept = np.empty((K, q + K)), 0, np.inf, pull
    while True:
        first, second = np.nonzero(pull)
        lam = pull[first, second]
        problem = PairList(window.residuals, n, first, second, bounds[first, second], n[first])
        hat = np.empty((K, q))
        state = State(lam, lam, lam, np.empty_like(lam), hat, both)
        _stationary(problem, state)
        allowance.spend(K * K * (K + q))
        gap, value, _ = _gap(problem, state, bounds)
        if gap <= tol * value:
            return pull, iterations, True
        spent = iterations >= min(max_iter, newton.STEPS) or allowance.left < 0.0
        if spent or not gap < newton.WORSE * best * value:
            return kept, iterations, False
        if gap < best * value:
            best, kept = gap / value, pull
        hat[:] = both[:, :q]
        first, second = np.nonzero((pull > 0.0) | _violated(hat, bounds, pull > 0.0))
        problem = problem._replace(first=first, second=second, rho=bounds[first, second])
        state = state._replace(lam=pull[first, second])
        pull = _table(problem, nonnegative(problem, state, allowance))
        iterations += 1


def _follow(
    window: Window,
    bounds: Float64,
    pull: Float64,
    tol: float,
    max_iter: int,
    allowance: Allowance,
) -> tuple[Float64, int]:
    """Follow the path of interior_point.py; return multipliers, (K, K), and steps."""
    listed = pull > 0.0
    first, second = np.nonzero(listed)
    n, (K, q) = window.precisions, window.residuals.shape
    soft = _soft(n, first, second)
    problem = PairList(window.residuals, n, first, second, bounds[first, second], soft)
    pairs = first.size
    state = State(
        pull[first, second],
        np.zeros(pairs),
        np.zeros(pairs),
        np.zeros(pairs),
        np.zeros((K, q)),
        np.empty((K, q + K)),
    )
    _stationary(problem, state)
    ratios(first, second, problem.rho, problem.h, q, state.w)
    excess = float(np.max(state.w - problem.rho, initial=0.0))
    worst = ratios(first, second, problem.rho, state.both, q, state.w)
    force = enter(
        problem.rho,
        soft,
        state.lam,
        state.w,
        state.s,
        state.omega,
        state.phi,
        state.both,
        worst,
        excess,
    )
    error = _residual(problem, state)
    iterations, direct = 0, False
    while True:
        gap, value, loss = _gap(problem, state, bounds)
        solved = gap <= tol * value
        if solved or iterations >= max_iter or allowance.left < 0.0:
            break
        problem, state = _join(problem, state, bounds, listed, force)
        try:
            step, direct = direction(problem, state, 1e-3 * tol * loss, allowance, direct=direct)
        except np.linalg.LinAlgError:
            return pull, iterations
        before, part, sign = error, 1.0, 1.0
        for _ in range(8):
            far = sign * part * step.step_s, sign * part * step.step_lam
            move(state.lam, state.s, state.phi, step.dlam, step.ds, step.dphi, *far)
            allowance.spend(K * K * (K + q))
            _stationary(problem, state)
            error = _residual(problem, state)
            if error <= max(2.0 * before, FLOOR):
                break
            part, sign = 0.5 * part, -1.0  # the step was too long: go back half of it
        iterations += 1
        if not np.isfinite(error):
            return pull, iterations
    if solved:
        # A pair is inactive if its slack is larger than its multiplier, each on its own scale.
        active = state.lam * problem.rho**3 > force * problem.soft * state.s
        released = state._replace(
            lam=np.where(active, state.lam, 0.0), both=np.empty_like(state.both)
        )
        _stationary(problem, released)
        gap, value, _ = _gap(problem, released, bounds)
        if gap <= 2.0 * tol * value:
            state = released
    return _table(problem, state.lam), iterations


def _multiplicative(window: Window, bounds: Float64) -> Float64:
    """Return multipliers, (K, K) above the diagonal, of pairs that carry the rest."""
    ratio, reach, last = np.zeros_like(bounds), np.empty_like(bounds), np.ones_like(bounds)
    _ratios(window.residuals, bounds, ratio)
    n = window.precisions
    soft = 2.0 * n[:, None] * n / (n[:, None] + n)
    lam = np.triu(np.maximum(ratio - 1.0, 0.01) * soft / len(bounds), 1)
    lam[np.isinf(bounds)] = 0.0
    for rounds in range(ROUNDS + 1):
        hat = _solved(window.residuals, window.precisions, lam)
        worst = _ratios(hat, bounds, ratio)
        if worst <= READY or rounds == ROUNDS:
            kept = np.where(ratio > (newton.NEAR if rounds < ROUNDS else 0.0), lam, 0.0)
            hat = _solved(window.residuals, window.precisions, kept)
            if rounds == ROUNDS or (kept.any() and _ratios(hat, bounds, reach) <= CARRY):
                break
        _rescale(lam, ratio, last)
    return kept


def _solved(h: Float64, n: Float64, lam: Float64) -> Float64:
    hat = n[:, None] * h
    solve_large_laplacian(lam.copy(), n.copy(), hat, h.shape[1])
    return hat


def _table(problem: PairList, lam: Float64) -> Float64:
    K = problem.n.size
    table = np.zeros((K, K))
    table[problem.first, problem.second] = lam
    return table


def _soft(n: Float64, first: Int64, second: Int64) -> Float64:
    return 2.0 * n[first] * n[second] / (n[first] + n[second])


def _stationary(problem: PairList, state: State) -> None:
    """Fill hat and M of the multipliers: both from one elimination."""
    q = problem.h.shape[1]
    state.both[:, :q] = problem.n[:, None] * problem.h
    state.both[:, q:] = np.eye(problem.n.size)
    solve_large_laplacian(_table(problem, state.lam), problem.n.copy(), state.both, q)


def _join(
    problem: PairList, state: State, bounds: Float64, listed: Mask, force: float
) -> tuple[PairList, State]:
    """Let violated pairs join the list."""
    first, second = np.nonzero(_violated(state.phi, bounds, listed))
    if first.size == 0:
        return problem, state
    listed[first, second] = True
    rho, soft = bounds[first, second], _soft(problem.n, first, second)

    def longer(old: Float64, new: Float64) -> Float64:
        return np.concatenate((old, new))

    return (
        problem._replace(
            first=np.concatenate((problem.first, first)),
            second=np.concatenate((problem.second, second)),
            rho=longer(problem.rho, rho),
            soft=longer(problem.soft, soft),
        ),
        state._replace(
            lam=longer(state.lam, 1e-4 * force * soft / rho),
            s=longer(state.s, 1e-2 * rho**2),
            omega=longer(state.omega, 1e-3 * force * soft * rho),
            w=longer(state.w, np.zeros(rho.size)),
        ),
    )


@kernel
def irredundant(bounds: Float64) -> Float64:
    """Return the bounds, infinite for pairs that a third point implies."""
    out = bounds.copy()
    for i in range(out.shape[0]):
        for j in range(i):
            if bounds[i, j] < np.inf and is_implied(bounds, i, j):
                out[i, j] = out[j, i] = np.inf
    return out


@kernel
def _ratios(phi: Float64, bounds: Float64, ratio: Float64) -> float:
    """Fill the ratios of distance to bound, above the diagonal; return the largest."""
    worst = 0.0
    for i in range(phi.shape[0]):
        x = phi[i]
        for j in range(i + 1, phi.shape[0]):
            apart = np.sqrt(squared_distance(x, phi[j]))
            ratio[i, j] = apart / bounds[i, j]
            worst = max(worst, (apart - ROUNDING) / bounds[i, j])
    return worst


@kernel
def _rescale(lam: Float64, ratio: Float64, last: Float64) -> None:
    for i in range(lam.shape[0]):
        for j in range(i + 1, lam.shape[0]):
            # As in interior_point.py: power 1 is safe, power 2 is faster where nothing swings.
            x = max(ratio[i, j], 0.1)
            lam[i, j] *= x * x if (x - 1.0) * (last[i, j] - 1.0) >= 0.0 else x
            last[i, j] = x


@kernel
def _violated(phi: Float64, bounds: Float64, listed: Mask) -> Mask:
    """Mark the pairs that break their bound and are not yet on the list."""
    out = np.zeros(bounds.shape, np.bool_)
    for i in range(phi.shape[0]):
        x = phi[i]
        for j in range(i + 1, phi.shape[0]):
            if not listed[i, j]:
                out[i, j] = squared_distance(x, phi[j]) > bounds[i, j] ** 2
    return out


def _residual(problem: PairList, state: State) -> float:
    return residual(problem.first, problem.second, problem.rho, state.s, state.phi, state.both)


def _gap(problem: PairList, state: State, bounds: Float64) -> tuple[float, float, float]:
    """Return the duality gap over all pairs, the objective, and that at hat itself."""
    first, second, rho, lost = problem.first, problem.second, problem.rho, np.empty_like(state.w)
    rounded_ratio(first, second, rho, problem.h, state.both, state.w, lost)
    worst = _worst(problem.h, state.both, bounds)
    return duality_gap(problem.h, problem.n, rho, state.lam, state.w, lost, state.both, worst)


@kernel
def _worst(h: Float64, hat: Float64, bounds: Float64) -> float:
    """Return the largest ratio of distance to bound, rounding forgiven."""
    size, worst = sizes(h, hat), 0.0
    for i in range(hat.shape[0]):
        for j in range(i + 1, hat.shape[0]):
            total = 0.0
            for c in range(h.shape[1]):
                v = hat[i, c] - hat[j, c]
                total += v * v
            lost = ROUNDING * min(1.0, size[i] + size[j])
            worst = max(worst, (np.sqrt(total) - lost) / bounds[i, j])
    return worst
