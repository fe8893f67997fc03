"""Denoiser: the sliding window, between an oracle and an optimizer.

A step costs one pass over the window for the new rows of the tables, and one for the weighted
sum. The window is a ring of K points and K residuals; nothing else has the length d.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser import folding
from coco_denoiser._passes import combine, is_storable, observe
from coco_denoiser.curvature import online
from coco_denoiser.curvature.online import StreamEstimate, ages
from coco_denoiser.denoise import with_gradients
from coco_denoiser.geometry import centre_and_radius
from coco_denoiser.solution import Answer, ConvergenceWarning, Solution
from coco_denoiser.solvers import closed_form
from coco_denoiser.tables import Tables
from coco_denoiser.typing import Array, ArrayLike

_VERSION = 1  # of state_dict
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
# The largest entry that is stored: in float64, no distance between two such vectors overflows.
_LIMITS = {_FLOAT32: float(np.finfo(np.float32).max), _FLOAT64: 1e300}


class Denoiser:
    r"""Denoise a stream of gradients, each together with the K - 1 observed before it.

    At every call, over the last K points $x_i$ with their noisy gradients $g_i$,

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 / v_i \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$; the newest $\theta$ is returned. Use it
    between oracle and optimizer:

        denoiser = Denoiser(L=1.0, window=16)
        x = x - step * denoiser(x, g)

    Args:
        L: upper bound on the curvature of the objective, or "auto" to estimate it from the
            stream: gradients are returned as they are until enough is known.
        window: how many observations are kept, K; None keeps all of them.
        mu: lower bound on the curvature: 0 convex, > 0 strongly convex, -L merely smooth.
        tol: relative duality gap to reach at every step. A step that falls short warns
            (ConvergenceWarning) and uses the best answer found.
        forget: what becomes of the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, whose noise variance falls accordingly. With
            window=2, folding is a recursive filter, which keeps two vectors and one number. Not
            with L="auto".
        neighbors: how many nearest points of the present window each point is constrained
            with; None for all of them.
        noise_std: for L="auto", the standard deviation of every coordinate of the noise, if it
            is known; otherwise the stream must tell that too.

    Attributes:
        L: the bound in use; for "auto" the last estimate, infinite while there is none.
    """

    def __init__(
        self,
        L: float | Literal["auto"],
        window: int | None = 16,
        *,
        mu: float = 0.0,
        tol: float = 1e-9,
        forget: Literal["drop", "fold"] = "drop",
        neighbors: int | None = None,
        noise_std: float | None = None,
    ) -> None:
        self._estimate: StreamEstimate | None = None
        if isinstance(L, str):
            check.one_of("L", L, ("auto",))
            self.mu, self._estimate = check.number("mu", mu), StreamEstimate()
        else:
            self.L, self.mu = check.curvature(L, mu)
            self._centre, self._radius = centre_and_radius(self.L, self.mu)
        self.noise_std = None if noise_std is None else check.positive("noise_std", noise_std)
        self.window = check.count("window", window, optional=True)
        self.tol = check.positive("tol", tol)
        self.neighbors = check.count("neighbors", neighbors, optional=True)
        self.forget = check.forgetting(forget, self.window)
        if self._estimate is not None:
            # What was folded is no gradient that was observed, and would tell a lower L.
            check.one_of("forget", forget, ("drop",))
        # With two, the fold is the answer itself: done at once, it leaves one slot in use.
        self._recursive = self.forget == "fold" and self.window == 2
        self._tables = Tables(1 if self._recursive else self.window, self.neighbors)
        self.reset()

    def reset(self) -> None:
        """Forget every observation."""
        self._tables.reset()
        self._shape: tuple[int, ...] | None = None
        self._points: Array = np.empty((0, 0), _FLOAT32)
        self._residuals: Array = np.empty((0, 0), _FLOAT32)
        self._answer: Answer | None = None
        if self._estimate is not None:
            self._estimate.reset()
            self._use_estimate(self._estimate)

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return self._tables.count

    def __call__(
        self, point: ArrayLike, gradient: ArrayLike, *, noise_variance: float = 1.0
    ) -> Array:
        """Take one observation and return its gradient, denoised.

        Args:
            point: where the gradient was observed; any shape, the same at every call.
            gradient: the noisy gradient, of the same shape.
            noise_variance: noise variance of this observation, relative to the others'.

        Returns:
            The denoised gradient: shape and floating dtype of `gradient`, float64 for integers.

        Raises:
            ValueError, TypeError: if the observation cannot be taken; the window is unchanged.
        """
        x, g = check.pair(point, gradient, self._shape)
        if noise_variance != 1.0:
            noise_variance = check.positive("noise_variance", noise_variance)
        shape, dtype = g.shape, g.dtype if g.dtype.kind == "f" else _FLOAT64
        stored = self._storage(x, g)
        x = np.ascontiguousarray(x, stored).reshape(-1)
        g = np.ascontiguousarray(g, stored).reshape(-1)
        # Nothing changes, no memory is taken and no type widened, before this has been passed.
        if not is_storable(x, g, self._centre, _LIMITS[stored]):
            raise self._refusal(x, g)
        slot = self._tables.next
        self._make_room(slot, x.size, stored)
        if self._recursive and len(self):
            theta = self._filtered(x, g, noise_variance)
        else:
            self._record(slot, x, g, noise_variance)
            if self._estimate is not None:
                self._learn_curvature(self._estimate, slot)
            theta = self._denoised(slot, g)
        self._shape = shape
        return theta.reshape(shape).astype(dtype, copy=False)

    @property
    def solution(self) -> Solution:
        """The last step's window, solved: all its gradients, (K, *shape), oldest first.

        With folding, the oldest of a full window stands for all that came before it too: its
        row is the gradient at its own point, and its weight that of all of them together. With
        window=2 there is one row, the gradient that was returned.
        """
        if self._shape is None:
            raise ValueError("solution: there is none before the first observation.")
        found = self._answer or self._tables.answer(self._radius, self.tol, self._residuals)
        order = self._tables.order()
        W = found.weights[np.ix_(order, order)]
        points = self._points[order].astype(np.float64)
        gradients = self._centre * points + W @ self._residuals[order]
        ordered = Answer(
            weights=W,
            multipliers=found.multipliers[np.ix_(order, order)],
            gap=found.gap,
            violation=found.violation,
            iterations=found.iterations,
            method=found.method,
            status=found.status,
        )
        return with_gradients(
            ordered, gradients.reshape(-1, *self._shape), self._tables.variances[order]
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain arrays and numbers; 0 stands for None."""
        used = slice(len(self))
        estimate = {} if self._estimate is None else {"estimate": self._estimate.state()}
        return {
            **estimate,
            "version": _VERSION,
            "L": self.L,
            "mu": self.mu,
            "tol": self.tol,
            "window": self.window or 0,
            "forget": self.forget,
            "neighbors": self.neighbors or 0,
            "shape": np.array(self._shape or (), dtype=np.int64),
            "points": self._points[used].copy(),
            "residuals": self._residuals[used].copy(),
            **self._tables.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a saved state, of a denoiser with the same settings; then go on as it would.

        Raises:
            ValueError: if the state is incomplete or of other settings; nothing has changed.
        """
        mine = self.state_dict()
        missing = sorted(mine.keys() - state.keys())
        if missing:
            raise ValueError(f"state lacks {', '.join(missing)}: not a state_dict of a Denoiser.")
        if "estimate" in state and self._estimate is None:
            raise ValueError(f"state was saved with L='auto', this denoiser has L={self.L}.")
        for name in ("version", "L", "mu", "tol", "window", "forget", "neighbors"):
            if state[name] != mine[name] and (name != "L" or self._estimate is None):
                raise ValueError(
                    f"state was saved with {name}={state[name]}, this denoiser has "
                    f"{name}={mine[name]}. Create it with the same settings."
                )
        tables = Tables.checked(state, self._tables.window)
        count, shape = int(tables["count"]), check.saved_shape(state)
        points = check.saved(state, "points", (count, math.prod(shape)), kind=None)
        residuals = check.saved(state, "residuals", points.shape, kind=points.dtype)
        estimate = None
        if self._estimate is not None:
            estimate = StreamEstimate.checked(state)
        self.reset()
        if count:
            self._shape = shape
            self._allocate(self._tables.window or count, points.shape[1], points.dtype)
            self._points[:count], self._residuals[:count] = points, residuals
        self._tables.load_state_dict(tables)
        if self._estimate is not None and estimate is not None:
            self._estimate.load_state(estimate)
            self._use_estimate(self._estimate)

    def _record(self, slot: int, x: Array, g: Array, variance: float) -> None:
        """Take an observation into its slot; fold what was there, if that is wanted."""
        fold = self._tables.leaving(self._radius) if self.forget == "fold" else None
        rows = np.empty((2, max(len(self), slot + 1)))
        observe(
            self._points,
            self._residuals,
            x,
            g,
            self._centre,
            slot,
            self._tables.heir,
            0.0 if fold is None else fold.weight,
            rows,
        )
        self._tables.insert(rows[0], rows[1], variance, fold)

    def _filtered(self, x: Array, g: Array, variance: float) -> Array:
        """Fold the past into an observation; the result is the answer, and the past from now."""
        distances = np.empty(2)
        point, residual = self._points[0], self._residuals[0]
        folding.measure(point, residual, x, g, self._centre, distances)
        rho = self._radius * distances.item(0)
        found = folding.fold(distances.item(1), rho, self._tables.variances.item(0), variance)
        theta = np.empty_like(g)
        folding.advance(point, residual, x, g, self._centre, found.weight, theta)
        self._tables.variances[0] = found.variance
        return theta

    def _refusal(self, x: Array, g: Array) -> ValueError:
        check.finite_array("point", x)
        check.finite_array("gradient", g)
        limit = _LIMITS[x.dtype]
        return ValueError(
            f"point, gradient and gradient - c * point must be at most {limit:.1e} in {x.dtype}, "
            f"got {np.abs(x).max():.1e} and {np.abs(g).max():.1e} with c = (L + mu) / 2 = "
            f"{self._centre}: it overflows. Scale the problem{_wider(x.dtype)}."
        )

    def _denoised(self, slot: int, g: Array) -> Array:
        tables = self._tables
        self._answer = None
        if tables.count == 1:
            return g.copy()
        if tables.count == 2:
            # The closed form, with no more than its two numbers: this is the fast path.
            other = 1 - slot
            pull = closed_form.pull(
                tables.residuals.item(0, 1), self._radius * tables.points.item(0, 1)
            )
            v, u = tables.variances.item(slot), tables.variances.item(other)
            share = pull * (v / (v + u))
            row = np.empty(2)
            row[slot], row[other] = 1.0 - share, share
        else:
            self._answer = found = tables.answer(self._radius, self.tol, self._residuals)
            if not found.status.success:
                warnings.warn(
                    f"{found.method} {found.status.value}: relative gap {found.gap:.1e}, "
                    f"tol={self.tol:.1e}.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
            row = found.weights[slot]
        if row[slot] == 1.0:
            return g.copy()
        out = np.empty_like(g)
        combine(self._residuals, g, row, slot, out)
        return out

    def _learn_curvature(self, estimate: StreamEstimate, slot: int) -> None:
        """Let the newest pairs speak; if that changes L, bring what is stored to its centre."""
        if self.noise_std is not None:
            estimate.noise = self._points.shape[1] * self.noise_std**2
        tables, used = self._tables, slice(len(self))
        slots = tables.order()[[-1 - age for age in ages(len(self))]]
        apart = online.gradient_distances(self._points, self._residuals, self._centre, slot, slots)
        variances = tables.variances[slot] + tables.variances[slots]
        estimate.observe(tables.points[slot, slots] ** 2, apart**2, variances)
        if estimate.L != self.L:
            before = self._centre
            self._use_estimate(estimate)
            shift = before - self._centre
            online.recentre(
                self._points[used], self._residuals[used], shift, tables.residuals[used, used]
            )

    def _use_estimate(self, estimate: StreamEstimate) -> None:
        self.L = estimate.L
        self._centre, self._radius = estimate.centre_and_radius(self.mu)

    def _storage(self, x: Array, g: Array) -> np.dtype[Any]:
        """Return how vectors are kept: in float32 as long as nothing wider has come."""
        narrow = all(array.dtype.kind == "f" and array.dtype.itemsize <= 4 for array in (x, g))
        return _FLOAT32 if narrow and self._points.dtype != _FLOAT64 else _FLOAT64

    def _make_room(self, slot: int, size: int, dtype: np.dtype[Any]) -> None:
        """Have a slot for vectors of this size and type."""
        slots = len(self._points)
        if slot >= slots or self._points.dtype != dtype:
            slots = slots if slot < slots else self._tables.window or max(16, 2 * slots)
            self._allocate(slots, size, dtype)

    def _allocate(self, slots: int, size: int, dtype: np.dtype[Any]) -> None:
        points, residuals = np.empty((slots, size), dtype), np.empty((slots, size), dtype)
        count = len(self)
        if count:
            points[:count], residuals[:count] = self._points[:count], self._residuals[:count]
        self._points, self._residuals = points, residuals


def _wider(dtype: np.dtype[Any]) -> str:
    return ", or pass float64" if dtype == _FLOAT32 else ""
