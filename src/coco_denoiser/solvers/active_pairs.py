"""Exact multipliers of a large window: only pairs that matter enter, and no system is stored.

Problem, letters and path are those of interior_point.py. What differs is how a step is
computed, which is what counts from some hundred points on.

1. The multiplicative rounds run on whole tables. The pairs near their bounds make the list.
2. At every step all pairs are looked at, and violated ones join the list. So the end is an
   optimum over all pairs, although only a few times K of them were worked on.
3. The Newton system over the m pairs of the list, (b_e' M b_f)(v_e . v_f) + diag(s / lam), is
   solved by conjugate gradients. Once its diagonal is 1 it is well conditioned, and to apply it
   takes one product with M, K by K. Its m by m entries are stored only where constraints that
   nearly depend on each other leave it too ill conditioned for that.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coco_denoiser._jit import kernel
from coco_denoiser._linalg import solve_large_laplacian, squared_distance
from coco_denoiser.geometry import ROUNDING, Window
from coco_denoiser.solvers._active_step import direction
from coco_denoiser.solvers._interior_step import Problem, State, Step, move, residual
from coco_denoiser.solvers.interior_point import (
    ATTEMPTS,
    CARRY,
    READY,
    ROUNDS,
    STEPS,
    distances,
    enter,
    is_implied,
    relative_gap,
)
from coco_denoiser.typing import Float64

Mask: TypeAlias = NDArray[np.bool_]


def solve(window: Window, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        window: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps of the interior-point method.
    """
    bounds = _irredundant(window.bounds)
    iterations = 0
    for near, floor in ATTEMPTS:
        limit = min(max_iter - iterations, STEPS)
        # Half the tolerance: the certificate is computed after a last rounding. What overflows
        # is no answer, and is begun anew.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            multipliers, steps, solved = _solve(window, bounds, 0.5 * tol, limit, near, floor)
        iterations += steps
        if solved or iterations >= max_iter:
            break
    return multipliers + multipliers.T, iterations


def _solve(
    window: Window, bounds: Float64, tol: float, max_iter: int, near: float, floor: float
) -> tuple[Float64, int, bool]:
    pull, hat = _multiplicative(window, bounds, near)
    listed = pull > 0.0
    first, second = np.nonzero(listed)
    problem = Problem(window.residuals, window.precisions, first, second, bounds[first, second])
    K, pairs = len(hat), first.size
    state = State(
        pull[first, second],
        np.zeros(pairs),
        np.zeros(pairs),
        np.zeros(pairs),
        np.zeros_like(hat),
        hat,
        np.empty((K, K)),
    )
    state = _stationary(problem, state)
    force = _enter(problem, state)
    error = _residual(problem, state)
    iterations, solved, direct = 0, False, False
    while True:
        solved = _gap(problem, state, bounds) <= tol
        if solved or iterations >= max_iter:
            break
        problem, state = _join(problem, state, bounds, listed, force)
        try:
            step, step_s, step_lam, direct = direction(problem, state, direct=direct)
        except np.linalg.LinAlgError:
            return pull, iterations, False
        before = error
        for attempt in range(8):
            if attempt > 0:  # the step was too long: go back half of it
                step_s *= 0.5
                step_lam *= 0.5
            sign = 1.0 if attempt == 0 else -1.0
            _move(state, step, sign * step_s, sign * step_lam)
            state = _stationary(problem, state)
            error = _residual(problem, state)
            if error <= max(2.0 * before, floor):
                break
        iterations += 1
        if not np.isfinite(error):
            return pull, iterations, False
    if solved:
        # A pair is inactive if its slack is larger than its multiplier, each on its own scale.
        active = state.lam * problem.rho**3 > force * state.s
        released = _stationary(problem, state._replace(lam=np.where(active, state.lam, 0.0)))
        if _gap(problem, released, bounds) <= 2.0 * tol:
            state = released
    return _table(problem, state.lam), iterations, solved


def _multiplicative(window: Window, bounds: Float64, near: float) -> tuple[Float64, Float64]:
    """Return multipliers, (K, K) above the diagonal, of pairs that carry the rest, and hat."""
    ratio, reach, last = np.zeros_like(bounds), np.empty_like(bounds), np.ones_like(bounds)
    _ratios(window.residuals, bounds, ratio)
    lam = np.triu(np.maximum(ratio - 1.0, 0.01) / len(bounds), 1)
    lam[np.isinf(bounds)] = 0.0
    for rounds in range(ROUNDS + 1):
        hat = _solved(window.residuals, window.precisions, lam)
        worst = _ratios(hat, bounds, ratio)
        if worst <= READY or rounds == ROUNDS:
            kept = np.where(ratio > (near if rounds < ROUNDS else 0.0), lam, 0.0)
            hat = _solved(window.residuals, window.precisions, kept)
            if rounds == ROUNDS or (kept.any() and _ratios(hat, bounds, reach) <= CARRY):
                break
        _rescale(lam, ratio, last)
    return kept, hat


def _solved(h: Float64, n: Float64, lam: Float64) -> Float64:
    hat = n[:, None] * h
    solve_large_laplacian(lam.copy(), n.copy(), hat, h.shape[1])
    return hat


def _table(problem: Problem, lam: Float64) -> Float64:
    K = problem.n.size
    table = np.zeros((K, K))
    table[problem.first, problem.second] = lam
    return table


def _stationary(problem: Problem, state: State) -> State:
    """Return the state with the hat and the M of its multipliers: both from one elimination."""
    q = problem.h.shape[1]
    both = np.hstack((problem.n[:, None] * problem.h, np.eye(problem.n.size)))
    solve_large_laplacian(_table(problem, state.lam), problem.n.copy(), both, q)
    return state._replace(hat=both[:, :q].copy(), M=both[:, q:].copy())


def _join(
    problem: Problem, state: State, bounds: Float64, listed: Mask, force: float
) -> tuple[Problem, State]:
    """Let violated pairs join the list."""
    first, second = np.nonzero(_violated(state.phi, bounds, listed))
    if first.size == 0:
        return problem, state
    listed[first, second] = True
    rho = bounds[first, second]

    def longer(old: Float64, new: Float64) -> Float64:
        return np.concatenate((old, new))

    return (
        problem._replace(
            first=np.concatenate((problem.first, first)),
            second=np.concatenate((problem.second, second)),
            rho=longer(problem.rho, rho),
        ),
        state._replace(
            lam=longer(state.lam, 1e-4 * force / rho),
            s=longer(state.s, 1e-2 * rho**2),
            omega=longer(state.omega, 1e-3 * force * rho),
            w=longer(state.w, np.zeros(rho.size)),
        ),
    )


@kernel
def _irredundant(bounds: Float64) -> Float64:
    """Return the bounds, infinite for pairs that a third point implies."""
    out = bounds.copy()
    for i in range(out.shape[0]):
        for j in range(i):
            if bounds[i, j] < np.inf and is_implied(bounds[i], bounds[j], bounds[i, j]):
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


@kernel
def _enter(problem: Problem, state: State) -> float:
    return enter(problem, state, np.arange(problem.rho.size))


@kernel
def _residual(problem: Problem, state: State) -> float:
    return residual(problem, state, np.arange(problem.rho.size))


@kernel
def _move(state: State, step: Step, step_s: float, step_lam: float) -> None:
    move(state, step, np.arange(state.lam.size), step_s, step_lam)


@kernel
def _gap(problem: Problem, state: State, bounds: Float64) -> float:
    """Return the relative duality gap over all pairs."""
    distances(problem, state.hat, state.w)
    worst, hat = 0.0, state.hat
    for i in range(hat.shape[0]):
        x = hat[i]
        for j in range(i + 1, hat.shape[0]):
            apart = np.sqrt(squared_distance(x, hat[j]))
            worst = max(worst, (apart - ROUNDING) / bounds[i, j])
    return relative_gap(problem, state, worst)
