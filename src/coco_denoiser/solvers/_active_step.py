"""A step of the method of active pairs: the Newton system, applied or stored, and the move.

The letters are those of interior_point.py.
"""

from typing import NamedTuple

import numpy as np

from coco_denoiser._jit import sweep
from coco_denoiser._linalg import substitute
from coco_denoiser.solvers._interior_step import NEAREST, hessian, linearise
from coco_denoiser.solvers.newton import PIVOTS
from coco_denoiser.typing import Float64, Int64

# How far conjugate gradients go: roughly for the predictor, which only sets the target; the
# next step makes up for the error of the corrector.
_ROUGH, _FINE = 1e-3, 1e-4
# They are given up after so many products, or as many as a factorisation costs, but not more
# than the last number. Systems of more pairs than _STORED, or _STORED_EACH a point, are not
# stored, and a step is then as good as it comes.
_PRODUCTS, _MOST_PRODUCTS = 400, 5000
_STORED, _STORED_EACH = 2000, 6
_PAIR = 16.0  # multiplications in whose time a product spreads and collects one pair


class PairList(NamedTuple):
    """Residuals, precisions, and the pairs on the list."""

    h: Float64
    n: Float64
    first: Int64
    second: Int64
    rho: Float64
    soft: Float64


class State(NamedTuple):
    """Where the method is; the first four have one entry per pair."""

    lam: Float64
    s: Float64
    omega: Float64
    w: Float64
    phi: Float64
    both: Float64

    @property
    def M(self) -> Float64:  # noqa: N802
        return self.both[:, self.phi.shape[1] :]


class Allowance:
    """How many multiplications a window may still cost; below zero, it is given up."""

    def __init__(self, multiplications: float) -> None:
        self.left = multiplications

    def spend(self, multiplications: float) -> None:
        self.left -= multiplications


class Step(NamedTuple):
    """Where it goes next."""

    dlam: Float64
    ds: Float64
    dphi: Float64
    step_s: float
    step_lam: float


def direction(
    problem: PairList, state: State, least: float, allowance: Allowance, *, direct: bool
) -> tuple[Step, bool]:
    """Return Mehrotra's predictor and corrector, and `direct`; lam s stays above `least`."""
    lam, s, omega = state.lam, state.s, state.omega
    pairs = lam.size
    dlam, ds, coupled = np.zeros(pairs), np.zeros(pairs), np.empty(pairs, np.int64)
    target, diagonal = np.empty(pairs), np.empty(pairs)
    count = linearise(
        problem.first,
        problem.second,
        problem.rho,
        lam,
        s,
        state.phi,
        state.both,
        target,
        diagonal,
        coupled,
    )
    coupled = coupled[:count]
    system = _System(problem, state, s / lam, allowance)
    as_many = min(max(int(pairs**3 / (6 * system.cost)), _PRODUCTS), _MOST_PRODUCTS)
    factor, storable = None, coupled.size <= max(_STORED, _STORED_EACH * len(state.phi))
    mu, tau = (lam @ s) / omega.sum(), 0.0
    for phase in range(2):
        aim = (tau * omega - dlam * ds) / lam
        rhs, solved = aim - target, False
        if not (direct and storable):
            enough = (_FINE if phase else _ROUGH) ** 2 * float(rhs @ (rhs / diagonal))
            dlam, _, left = system.solve(rhs, diagonal, enough, as_many)
            solved = left > 0
        if not solved and storable:
            direct = True
            factor = _factor(problem, state, coupled, allowance) if factor is None else factor
            dlam = rhs / diagonal
            own = rhs[coupled]
            substitute(factor, own)
            dlam[coupled] = own
        ds = aim - s - s / lam * dlam
        # As close to the boundary as the path allows: 0.9 far out, 1 - mu near the end.
        keep = max(0.9, 1.0 - max(mu, NEAREST)) if phase else 1.0
        step_s, step_lam = (
            min(1.0, keep / max(float(np.max(-change / value)), 1e-300))
            for change, value in ((ds, s), (dlam, lam))
        )
        if phase == 0:
            affine = (lam + step_lam * dlam) @ (s + step_s * ds) / omega.sum()
            tau = max((affine / mu) ** 3 * mu, least / omega.sum())
    _spread(problem.first, problem.second, system.v, dlam, system.pull)
    hat = state.both[:, : state.phi.shape[1]]
    dphi = hat - state.phi - state.M @ system.pull
    return Step(dlam, ds, dphi, step_s, step_lam), direct


def nonnegative(problem: PairList, state: State, allowance: Allowance) -> Float64:
    """Return the multipliers of a step of newton.py, from `lam`; hat is in `phi`, M beside it.

    Its system is solved by conjugate gradients, which go on where they were when pairs change
    sides.
    """
    first, second, M, lam = problem.first, problem.second, state.M, state.lam
    system = _System(problem, state, np.zeros_like(lam), allowance)
    w = np.sqrt(np.sum(system.v * system.v, axis=1))
    diagonal = (M[first, first] + M[second, second] - 2.0 * M[first, second]) * w * w
    rest = w * w * (w / problem.rho - 1.0)
    free = lam + 2.0 * rest / diagonal > 0.0
    enough, left = _ROUGH**2 * float(rest @ (rest / diagonal)), _PRODUCTS
    for _ in range(PIVOTS):
        out = np.where(free, 0.0, -lam)
        lam, rest = lam + out, rest - system.product(out)
        move, rest, left = system.solve(rest, np.where(free, diagonal, np.inf), enough, left)
        lam = lam + move
        wrong = np.where(free, lam < 0.0, rest > 0.0)
        if left <= 0 or not wrong.any():
            break
        free = free != wrong
    return np.maximum(lam, 0.0)


class _System:
    """The Newton system over the pairs, applied and not stored: (b_e' M b_f)(v_e . v_f) + ratio."""

    def __init__(
        self, problem: PairList, state: State, ratio: Float64, allowance: Allowance
    ) -> None:
        self.problem, self.M, self.ratio, self.allowance = problem, state.M, ratio, allowance
        self.v = state.phi[problem.first] - state.phi[problem.second]
        self.pull = np.empty_like(state.phi)
        self.cost = state.phi.shape[1] * len(state.phi) ** 2 + _PAIR * ratio.size

    def product(self, x: Float64) -> Float64:
        """Return the matrix times x."""
        self.allowance.spend(self.cost)
        first, second, out = self.problem.first, self.problem.second, np.empty_like(x)
        _spread(first, second, self.v, x, self.pull)
        _collect(first, second, self.v, self.M @ self.pull, self.ratio, x, out)
        return out

    def solve(
        self, rhs: Float64, diagonal: Float64, enough: float, most: int
    ) -> tuple[Float64, Float64, int]:
        """Solve by conjugate gradients, the diagonal scaled to 1.

        Entries whose diagonal is infinite stay zero. Returns the solution, what is left of the
        right-hand side, and how many of the products are left: none if they did not suffice.
        """
        x, r = np.zeros_like(rhs), rhs
        p = z = r / diagonal
        size = float(r @ z)
        while size > enough:
            if most <= 0 or self.allowance.left < 0.0:
                return x, r, 0
            change = self.product(p)
            bend = float(p @ change)
            if not bend > 0.0:  # singular: the caller sees what that is worth
                return x, r, 0
            length = size / bend
            x, r = x + length * p, r - length * change
            z = r / diagonal
            size, before = float(r @ z), size
            p, most = z + (size / before) * p, most - 1
        return x, r, most


def _factor(problem: PairList, state: State, coupled: Int64, allowance: Allowance) -> Float64:
    """Return the Cholesky factor of the Newton system over the coupled pairs."""
    ridge = 1e-12  # dependent constraints leave it singular; this is below its rounding
    while True:
        allowance.spend(coupled.size**3 / 6 + coupled.size**2)
        H = hessian(
            problem.first,
            problem.second,
            problem.rho,
            state.lam,
            state.s,
            state.phi,
            state.both,
            coupled,
            ridge,
        )
        try:
            return np.asarray(np.linalg.cholesky(H, upper=True), np.float64)
        except np.linalg.LinAlgError:
            if ridge > 1e-3 or allowance.left < 0.0:
                raise
            ridge *= 100.0


@sweep
def _spread(first: Int64, second: Int64, v: Float64, x: Float64, pull: Float64) -> None:
    """Fill pull with the forces on the points of forces x v on the pairs."""
    pull[:] = 0.0
    for e in range(x.size):
        i, j = first[e], second[e]
        for c in range(v.shape[1]):
            force = x[e] * v[e, c]
            pull[i, c] += force
            pull[j, c] -= force


@sweep
def _collect(
    first: Int64, second: Int64, v: Float64, u: Float64, ratio: Float64, x: Float64, out: Float64
) -> None:
    """Fill out with how far the moves u of the points take the pairs, and with ratio x."""
    for e in range(x.size):
        i, j = first[e], second[e]
        total = ratio[e] * x[e]
        for c in range(v.shape[1]):
            total += v[e, c] * (u[i, c] - u[j, c])
        out[e] = total
