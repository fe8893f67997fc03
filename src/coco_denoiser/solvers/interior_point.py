"""Exact multipliers of one window by a primal-dual interior-point method.

Solves, for K residuals h_i, precisions n_i and bounds rho_ml,

    minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.

Letters: v_e = phi_m - phi_l for a pair e = (m, l), w_e its length at the stationary residuals,
s_e = (rho_e^2 - ||v_e||^2) / 2 its slack, lam_e its multiplier, B the map from forces on pairs
to forces on points, M = (diag(n) + Laplacian(lam))^-1, and hat = M diag(n) h, the residuals
that are stationary for lam. The path is lam_e s_e = tau omega_e, tau -> 0. What a multiplier is
measured by is soft_e, the precision with which the two points know their difference: where
precisions differ by orders of magnitude, multipliers do.

1. A few multiplicative rounds find out which pairs matter, as in newton.py.
2. Predictor-corrector steps in (phi, lam, s). phi is kept apart from hat: with phi = hat the
   tight pairs make every step too long. Pairs whose slack dominates are solved for one by one,
   so that the linear system is about as large as the active set.

Only windows that other methods leave come here, so it is array code.
"""

import numpy as np
from numpy.linalg import norm

from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from coco_denoiser.solvers.large import System, duality, multiplicative, substitute
from coco_denoiser.solvers.newton import READY, needed_bounds
from coco_denoiser.typing import Float64, Int64

_START = 1.025  # how far inside its bounds step 2 starts
_FLOOR = 0.2  # a step may double the error, or lift it to this
_RIDGE = 1e-12  # on the linear system
# Multiplications that a window of K points may cost, as a multiple of K^3, or of 16^3 if that is
# more: some hundred times what it usually takes. Those of a factorisation count a quarter. The
# second number is for large windows, where it takes ten seconds or so.
ALLOWED, _MOST = 8000.0, 2.5e9
# A pair is solved for by itself if its coupling is below this share of its slack. Five times as
# much saves a few percent, and makes large hard windows run in circles more often.
_DIAGONAL = 1e-2
_NEAREST = 1e-5  # how much of a slack or a multiplier a step leaves at least


def solve(problem: Problem, *, tol: float, max_iter: int) -> tuple[Float64, int]:
    """Return the multipliers, (K, K) and symmetric, and the number of iterations.

    Args:
        problem: residuals, bounds and precisions; no bound is zero.
        tol: relative duality gap to reach.
        max_iter: limit on the steps of the interior-point method.
    """
    # What overflows is no answer, and its gap says so.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        # Half the tolerance: the certificate is computed after a last rounding.
        table, iterations = _Path(problem).follow(0.5 * tol, max_iter)
    return table + table.T, iterations


class _Path:
    """Where the method is, pair by pair; tables of multipliers are above the diagonal."""

    def __init__(self, problem: Problem) -> None:
        n = problem.precisions
        self.bounds = needed_bounds(problem.bounds)
        self.problem, self.inverse = problem, 1.0 / self.bounds
        self.first, self.second = map(np.ascontiguousarray, np.nonzero(np.triu(self.inverse)))
        self.rho = problem.bounds[self.first, self.second]
        a, b = n[self.first], n[self.second]
        self.soft = 2.0 * a * b / (a + b)
        table = multiplicative(problem, self.bounds, near=0.0)
        self.system = System(problem, table)
        self._enter(table[self.first, self.second])

    def _differences(self, a: Float64) -> Float64:
        return np.asarray(a[self.first] - a[self.second])

    def _table(self, lam: Float64) -> Float64:
        table = np.zeros_like(self.bounds)
        table[self.first, self.second] = lam
        return table

    def _enter(self, lam: Float64) -> None:
        """Set lam, s, omega and phi, with which step 2 starts a little inside the bounds.

        How far inside depends on by how much they are broken: long bounds that are barely broken
        would else take a step for every decade in between.
        """
        rho, soft, hat = self.rho, self.soft, self.system.hat
        raw = norm(self._differences(self.problem.residuals), axis=1)
        excess = max(float(np.max(raw - rho)), 0.0)
        w, force = norm(self._differences(hat), axis=1), float(np.max(lam * rho))
        inside = min(1.0, 1.0 / (_START * min(float(np.max(w / rho)), READY))) - 1.0
        shrink = 1.0 + inside * min(1.0, 10.0 * excess)
        self.lam = np.maximum(lam, 1e-6 * force * soft / rho)
        least = (1.0 - 1.0 / _START) * rho * np.minimum(rho, excess)
        self.s = 0.5 * np.maximum(rho**2 - (shrink * w) ** 2, least)
        self.omega = rho * np.maximum(self.lam * rho, 1e-3 * force * soft)
        self.phi = shrink * hat

    def follow(self, tol: float, max_iter: int) -> tuple[Float64, int]:
        """Return the best multipliers, and the number of steps."""
        problem, rho = self.problem, self.rho
        K, q = problem.residuals.shape
        left = min(ALLOWED * max(K, 16) ** 3, _MOST)
        table = self._table(self.lam)
        self.system = System(problem, table)
        kept, best, iterations, error = table, np.inf, 0, self._error()
        while True:
            gap, value, dual = duality(problem, self.system, self.bounds, table)
            if gap < best * value or iterations == 0:
                best, kept = gap / value, table
            if gap <= tol * value or iterations >= max_iter or not np.isfinite(error):
                break
            v = self._differences(self.phi)
            square = np.sum(v * v, axis=1)
            # The slack linearised at dlam = 0, and the diagonal of the Hessian.
            across = np.sum(v * self._differences(self.system.hat), axis=1)
            target = 0.5 * (rho * rho + square) - across
            i, j, M = self.first, self.second, self.system.M[0]
            curvature = (M[i, i] + M[j, j] - 2.0 * M[i, j]) * square
            chosen = np.flatnonzero(self.lam * curvature > _DIAGONAL * self.s)
            cost = chosen.size**2 * (chosen.size / 24.0 + 3.0)
            U, ridge = None, _RIDGE
            while U is None and ridge < 1e-3 and left >= cost:
                left -= cost
                U, ridge = self._factor(chosen, v[chosen], ridge), 100.0 * ridge
            if U is None:
                break
            # The dual is what the objective will be: that of an answer shrunk until every pair
            # fits is far more where a residual is far away.
            least, diagonal = 1e-3 * tol * dual, curvature + self.s / self.lam
            dlam, ds, step, step_lam = self._direction(chosen, U, target, diagonal, least)
            pull = np.empty_like(self.phi)
            kernels.spread(i, j, v, dlam, pull)
            dphi, before = self.system.hat - self.phi - M @ pull, error
            lam, s, phi = self.lam, self.s, self.phi
            for _ in range(8):
                self.lam, self.s = lam + step_lam * dlam, s + step * ds
                self.phi, table = phi + step * dphi, self._table(self.lam)
                self.system = System(problem, table)
                left -= K * K * (K + q)
                error = self._error()
                if error <= max(2.0 * before, _FLOOR):
                    break
                step, step_lam = 0.5 * step, 0.5 * step_lam
            iterations += 1
        if best <= tol:
            # A pair is inactive if its slack is larger than its multiplier, each on its own scale.
            active = self.lam * rho**3 > np.max(self.lam * rho) * self.soft * self.s
            table = self._table(np.where(active, self.lam, 0.0))
            gap, value, _ = duality(problem, System(problem, table), self.bounds, table)
            if gap <= 2.0 * tol * value:
                return table, iterations
        return kept, iterations

    def _factor(self, chosen: Int64, v: Float64, ridge: float) -> Float64 | None:
        """Return U with U'U = (b_e' M b_f)(v_e . v_f) + s / lam over pairs; None if singular."""
        i, j = self.first[chosen], self.second[chosen]
        rows = self.system.M[0][i] - self.system.M[0][j]
        H = (rows[:, i] - rows[:, j]) * (v @ v.T)
        diagonal = np.diag(H) * (1.0 + ridge + 1e-15 * self.inverse[i, j])
        np.fill_diagonal(H, diagonal + self.s[chosen] / self.lam[chosen])
        try:
            return np.ascontiguousarray(np.linalg.cholesky(H, upper=True))
        except np.linalg.LinAlgError:
            return None

    def _direction(
        self, chosen: Int64, U: Float64, target: Float64, diagonal: Float64, least: float
    ) -> tuple[Float64, Float64, float, float]:
        """Return dlam and ds of Mehrotra's method, and how far s and lam may go."""
        lam, s, omega = self.lam, self.s, self.omega
        weight = float(np.sum(omega))
        mu = float(lam @ s) / weight
        dlam, ds, tau = np.zeros_like(lam), np.zeros_like(lam), 0.0
        # As close to the boundary as the path allows: 0.9 far out, 1 - mu near the end.
        for keep in (1.0, max(0.9, 1.0 - max(mu, _NEAREST))):
            ds = (tau * omega - dlam * ds) / lam
            dlam, rest = (ds - target) / diagonal, (ds - target)[chosen]
            substitute(U, rest)
            dlam[chosen] = rest
            ds = ds - s - s / lam * dlam
            step, step_lam = _reach(s, ds, keep), _reach(lam, dlam, keep)
            affine = float((lam + step_lam * dlam) @ (s + step * ds)) / weight
            # Not nearer to the end of the path than the tolerance asks for: a slack far below
            # rounding would only spoil the system.
            tau = max((affine / mu) ** 3 * mu, least / weight)
        return dlam, ds, step, step_lam

    def _error(self) -> float:
        """Return the worst relative error of the slacks and of phi against hat, over the pairs."""
        v = self._differences(self.phi)
        off = norm(v - self._differences(self.system.hat), axis=1) / self.rho
        slack = np.abs(self.s - 0.5 * (self.rho**2 - np.sum(v * v, axis=1))) / self.rho**2
        return float(np.max(np.maximum(slack, off)))


def _reach(x: Float64, dx: Float64, keep: float) -> float:
    """Return the part of a step, at most all of it, that leaves x positive."""
    falling = dx < 0.0
    return min(1.0, float(np.min(-keep * x[falling] / dx[falling], initial=np.inf)))
