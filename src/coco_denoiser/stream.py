"""Denoiser: the sliding window between an oracle and an optimizer, and its state machine.

A step compares the observation with the window, decides, asks the model for weights, and writes
the observation and the weighted sum. Nothing changes before an observation has been accepted.
The tables are in `window.py`, the vectors in `vectors.py`; PyTorch has vectors of its own. Where
all of it can be one compiled call, `Denoiser._step` makes it.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Literal, TypeAlias

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser._warnings import warn_user
from coco_denoiser.models import Model, choose
from coco_denoiser.models.bounds import Bound, Limits
from coco_denoiser.models.cocoercive import Cocoercive
from coco_denoiser.solution import ConvergenceWarning, Solution, Status
from coco_denoiser.solvers import LARGE, closed_form
from coco_denoiser.typing import Array, ArrayLike, Float64, ModelName
from coco_denoiser.vectors import ArrayVectors, Comparison, Vectors
from coco_denoiser.window import Estimate, Plan, Window, recentred

WindowSize: TypeAlias = int | Literal["auto"] | None
VERSION = 3  # of what a state holds
BUSY = (
    "this denoiser is in the middle of a step, in another thread or in a function that it calls. "
    "Use one denoiser for each thread."
)


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

        denoiser = Denoiser(L=4.0)
        x = x - step * denoiser(x, g)

    With `model="gaussian"`, the gradients are those of a field with a random slope:
    $g_i = \theta + E (x_i - x) + n_i$ with Gaussian E and n, whose sizes are estimated from the
    window, and the newest $\theta$ is estimated by generalised least squares. It needs no L.

    A denoiser belongs to one thread at a time: a second caller is refused.

    Args:
        L: upper bound on the curvature of the objective, or a function that
            returns it. The Gaussian model takes it as a cap on its slope.
        window: how many observations are kept, K; None keeps all of them, and "auto" is 16, or
            32 for the Gaussian model.
        model: "cocoercive", which needs L and is the default, or "gaussian".
        mu: lower bound, or a function: 0 convex, > 0 strongly convex, -L merely smooth.
        tol: relative duality gap to reach at every step. A step that falls short warns
            (ConvergenceWarning) and uses the best answer found.
        forget: what to do with the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, whose noise variance falls accordingly. With
            window=2, folding is a recursive filter, which keeps two vectors and one number. Not
            with the Gaussian model.
        method: "auto", or "fdpg": the paper's Algorithm 1, which starts each window from the
            multipliers of the one before. A restored denoiser starts from zero once.
    """

    def __init__(
        self,
        L: Bound | None = None,
        window: WindowSize = "auto",
        *,
        model: ModelName | None = None,
        mu: Bound = 0.0,
        tol: float = 1e-9,
        forget: Literal["drop", "fold"] = "drop",
        method: Literal["auto", "fdpg"] = "auto",
    ) -> None:
        self._model = choose(model, L, mu, tol=tol, method=method)
        self._stream = Stream(self._model, window=window, forget=forget)
        self._vectors = ArrayVectors(self._stream.window.slots)
        self._shape: tuple[int, ...] | None = None
        # Whether a step can be one compiled call.
        plain = forget == "drop" and method == "auto"
        self._compiled = plain and isinstance(self._model, Cocoercive)

    @property
    def L(self) -> float:  # noqa: N802
        """The upper bound in use; NaN where there is none."""
        return self._stream.limits.L

    @property
    def mu(self) -> float:
        """The lower bound in use; for the Gaussian model -L, as its slope has either sign."""
        return self._stream.limits.mu

    @property
    def std(self) -> float:
        """Standard error of every coordinate of the last gradient returned; NaN if unknown.

        The Gaussian model knows it from its second observation on.
        """
        found = self._stream.last()
        return found.std if found else math.nan

    @property
    def window(self) -> int | None:
        """How many observations are kept, K; None for all of them."""
        return self._stream.size

    def __repr__(self) -> str:
        """Show the settings, and how many observations are held."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self._stream.settings.items())
        return f"<Denoiser({settings}) with {len(self)} observations>"

    def reset(self) -> None:
        """Forget every observation."""
        with self._stream:
            self._stream.reset()
            self._vectors.reset()
            self._shape = None

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return self._stream.window.count

    def __bool__(self) -> bool:
        """Return True: an empty denoiser is a denoiser."""
        return True

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
            ValueError, TypeError: if the observation cannot be taken, for instance because it is
                not finite; the window is unchanged.
        """
        stream, vectors = self._stream, self._vectors
        x: Any = point
        g: Any = gradient
        shape = self._shape if stream.window.count else None
        arrays = type(x) is type(g) is np.ndarray and x.dtype.kind == g.dtype.kind == "f"
        if not (arrays and x.shape == g.shape == shape):
            x, g = check.pair(point, gradient, shape)
        if type(noise_variance) is not float or not 0.0 < noise_variance < math.inf:
            noise_variance = check.positive("noise_variance", noise_variance)
        if not stream.lock.acquire(blocking=False):
            raise RuntimeError(BUSY)
        try:
            limits = self._model.limits(1.0)
            vectors.hold(x, g)
            if self._compiled and stream.window.count < LARGE - 1:
                theta = self._step(limits, noise_variance)
                if theta is None:
                    raise self._refusal(x, g, limits)
            else:
                comparison = stream.compare(vectors, limits)
                if isinstance(comparison, Outcome):
                    raise self._refusal(x, g, limits)
                stream.accept(vectors, comparison, noise_variance)
                theta = vectors.theta
            self._shape = g.shape
        finally:
            vectors.release()
            stream.lock.release()
        stream.warn()
        if theta.dtype != g.dtype and g.dtype.kind == "f":
            theta = theta.astype(g.dtype)
        return theta.reshape(g.shape)

    def _step(self, limits: Limits, variance: float) -> Array | None:
        """Take the observation that is held in one compiled call; None if it is refused."""
        stream, vectors, window = self._stream, self._vectors, self._stream.window
        model: Any = self._model
        slot, empty = window.next, not window.count
        window.grow(slot + 1)
        ring = vectors.room(slot)
        theta = np.empty_like(vectors.g)
        window.centre = stream.reference(limits) if empty else window.centre
        room = model.prepare(window, limits, max(window.count, slot + 1))
        try:
            held = (ring.points, ring.residuals), (vectors.x, vectors.g)
            solved = kernels.step(room, window, *held, theta, variance, vectors.limit)
            if solved is None:
                return None
            vectors.ring, window.vectors = ring, None
            if window.d < window.count:
                window.vectors = ring.points[: window.count], ring.residuals[: window.count]
            if not solved:
                stream.answer(vectors, model.estimate_hard(window, limits))
                stream.limits = limits
                return vectors.theta
        except BaseException:
            # Tables and vectors may no longer belong together.
            stream.reset()
            vectors.reset()
            raise
        stream.limits, stream.estimate = limits, None
        if window.count > 1:
            stream.estimate = model.told(room, window, limits)
        return theta

    @property
    def solution(self) -> Solution:
        """The answer of the last step, with its certificate: all gradients, (K, *shape).

        They are in the order in which they were observed, and the last is the one that was
        returned, up to rounding. A denoiser that has just been copied or restored solves its
        window anew.

        With folding, the oldest of a full window also stands for everything before it: its
        row is the gradient at its own point, and its weight that of all of them together. With
        window=2 there is one row, the gradient that was returned.
        """
        if self._shape is None:
            raise ValueError("solution: there is no solution before the first observation.")
        window, model, limits = self._stream.window, self._model, self._stream.asked()
        ring, order = self._vectors.ring, window.order
        x, h = (np.asarray(v[order], np.float64) for v in (ring.points, ring.residuals))
        raw = h + window.centre * x
        h = h - (limits.centre - window.centre) * x
        found = model.solution(window, limits, self._stream.last(), raw, h)
        return replace(found, gradients=found.gradients.reshape(-1, *self._shape))

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain arrays and numbers; 0 stands for None."""
        used, ring = slice(len(self)), self._vectors.ring
        return {
            **self._saved_settings(),
            **self._stream.state_dict(),
            "shape": np.array(self._shape or (), dtype=np.int64),
            "points": ring.points[used].copy(),
            "residuals": ring.residuals[used].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state of a denoiser with the same settings, and continue as it would.

        Sizes, types, signs and symmetries are checked. Numbers that were changed to others just
        as plausible are not noticed: keep a checksum of the file where that may happen.

        Raises:
            ValueError: if the state is damaged or of other settings; nothing has changed.
        """
        for name in ("shape", "points", "residuals"):
            if name not in state:
                raise ValueError(f"state lacks {name}: it is not the state of a Denoiser.")
        self._stream.check_settings(state, self._saved_settings())
        tables = self._stream.window.checked(state)
        count, shape = tables["count"], check.saved_shape(state)
        points = check.saved(state, "points", (count, math.prod(shape)), kind=None)
        residuals = check.saved(state, "residuals", points.shape, kind=points.dtype)
        with self._stream:
            self._stream.load_state_dict(tables)
            self._vectors.load(points, residuals)
            self._shape, window, ring = shape, self._stream.window, self._vectors.ring
            window.d = math.prod(shape)
            if window.d < count:
                window.vectors = ring.points[:count], ring.residuals[:count]

    def _saved_settings(self) -> dict[str, Any]:
        """Return what a state must have been saved with; bounds that change may be others."""
        given = self._model.settings.items()
        return {name: 0 if value is None else value for name, value in given if not callable(value)}

    def _refusal(self, x: Array, g: Array, limits: Limits) -> ValueError:
        x, g = (v.astype(self._vectors.g.dtype) for v in (x, g))
        return check.refusal(x, g, limits.centre, "point", "gradient")


class Outcome(Enum):
    """What became of an observation."""

    REFUSED = "it is not finite or too large, and nothing has changed"
    IGNORED = "its gradient is zero while the optimizer stands still: no observation"
    UNCHANGED = "it is in the window, and its gradient is as it was"
    DENOISED = "it is in the window, and its denoised gradient is ready"


class Stream:
    """The state machine of a stream, without the vectors, which a backend holds.

    Folding merges the oldest observation into its successor instead of dropping it. The two, with
    residuals h_0 and h_1 and noise variances v_0 and v_1, may be rho = r ||x_1 - x_0|| apart.
    Their two-point problem has a closed form; its second half replaces the successor, with the
    variance that fixed weights would give it:

        h_1 <- h_1 + w (h_0 - h_1),                 w = t v_1 / (v_0 + v_1),
        v_1 <- (1 - w)^2 v_1 + w^2 v_0,             t = max(0, 1 - rho / ||h_1 - h_0||).

    At coinciding points (rho = 0) this is the recursive mean; where the bound holds, w = 0 and the
    oldest is dropped. With a window of two, the new h_1 is the denoised residual itself: one slot
    holds all of the past, and folding is a recursive filter.

    Args:
        model: what turns the window into weights.
        window: how many observations are kept, K; None keeps all of them.
        forget: what becomes of the observation that leaves the window: "drop" or "fold".

    Attributes:
        size: K.
        window: what a model sees of the window.
        estimate: how the last gradient was averaged; None before there are two.
        lock: held during a step.
    """

    def __init__(self, model: Model, *, window: WindowSize, forget: str) -> None:
        self.model = model
        if window == "auto":
            self.size: int | None = model.window
        else:
            self.size = check.count("window", window, optional=True)
        self.forget = check.forgetting(forget, self.size)
        if forget == "fold" and not model.folds:
            raise ValueError(
                "forget='fold' is only supported with model='cocoercive': folded gradients are "
                "not observations, and the Gaussian model would misjudge their noise."
            )
        self.recursive = forget == "fold" and self.size == 2
        self.window = Window(1 if self.recursive else self.size)
        self.lock = threading.Lock()
        self.reset()

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            raise RuntimeError(BUSY)

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def __getstate__(self) -> dict[str, Any]:
        found = self.estimate
        if found is not None:  # a workspace belongs to its window
            found = found._replace(source=found.whole())
        return {k: v for k, v in self.__dict__.items() if k != "lock"} | {"estimate": found}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.Lock()

    @property
    def settings(self) -> dict[str, object]:
        """What it was made with, by name."""
        return {**self.model.settings, "window": self.size, "forget": self.forget}

    def reset(self) -> None:
        """Forget every observation."""
        self.window.reset()
        self.limits = self.model.fixed or Limits(*[math.nan] * 4)
        self.estimate: Estimate | None = None
        self._moved = 0.0

    def compare(
        self, vectors: Vectors, limits: Limits, *, standing: Callable[[], bool] | None = None
    ) -> Outcome | Comparison:
        """Look at the observation that the vectors hold, and change nothing.

        Args:
            vectors: what holds the window's vectors and the observation.
            limits: what the model has asked for.
            standing: says whether the optimizer is made to stand still; zero gradients are then
                no observation. None if they always are one.

        Returns:
            What `accept` needs, or what becomes of the observation if it cannot be taken.
        """
        window, self.limits = self.window, limits
        if not window.count:
            plan = Plan(self.reference(limits), 0)
        elif window.count != window.slots or self.recursive:
            plan = Plan(window.centre, window.count)
        else:
            plan = Plan(window.centre, window.count, window.next)
            if self.forget == "fold":
                plan = self._fold(plan)
        sums = vectors.compare(plan)
        if sums is None:
            return Outcome.REFUSED
        zero = standing is not None and sums.item(-1) == 0.0  # the sum of |g|
        if zero and standing is not None and (not window.count or standing()):
            return Outcome.IGNORED
        return Comparison(plan, sums)

    def _fold(self, plan: Plan) -> Plan:
        """Return a plan that merges the oldest observation into its successor."""
        window = self.window
        oldest, successor = window.next, (window.next + 1) % window.count
        older, newer = window.variances[[oldest, successor]].tolist()
        weight, variance, _ = self._merge(window.tables[:, oldest, successor], older, newer)
        if weight == 0.0:
            return plan
        shift = self.limits.centre - window.centre
        return plan._replace(successor=successor, weight=weight, variance=variance, shift=shift)

    def _merge(self, pair: Float64, older: float, newer: float) -> tuple[float, float, float]:
        """Return weight and variance of two observations merged, and how far apart they are.

        Args:
            pair: what the tables hold of the two, (3,).
            older: noise variance of the observation that leaves.
            newer: noise variance of the one that stays.
        """
        points, cosines, residuals = pair
        shift = self.limits.centre - self.window.centre
        apart = recentred(points, cosines, residuals, shift).item()
        weight, variance = merge(apart, self.limits.radius * points.item(), older, newer)
        return weight, variance, apart

    def accept(self, vectors: Vectors, found: Comparison, variance: float) -> Outcome:
        """Take the observation that has just been compared, with its relative noise variance."""
        window, plan = self.window, found.plan
        try:
            window.centre, window.d = plan.centre, vectors.d
            if self.recursive and window.count:
                return self._filter(vectors, found, variance)
            window.admit(plan, found.sums, variance)
            if plan.successor >= 0:
                vectors.merge_oldest(plan)
            window.vectors = None
            if window.d < window.count:
                window.vectors = vectors.short(plan.centre, window.count, window.newest)
            if window.count == 1:
                return self.answer(vectors, None)
            return self.answer(vectors, self.model.estimate(window, self.limits, self.estimate))
        except BaseException:
            # Tables and vectors may no longer belong together.
            self.reset()
            vectors.reset()
            raise

    def answer(self, vectors: Vectors, estimate: Estimate | None) -> Outcome:
        """Write the newest observation, and its gradient as a model averages it."""
        window, weights, shift = self.window, None, 0.0
        self.estimate = estimate
        if estimate is not None:
            shift = estimate.centre - window.centre
            weights = None if estimate.weights.item(window.newest) == 1.0 else estimate.weights
        vectors.write(window.centre, window.newest, weights, shift)
        return Outcome.UNCHANGED if weights is None else Outcome.DENOISED

    def warn(self) -> None:
        """Warn if the last step fell short of the tolerance; all is written by now."""
        found = self.estimate
        if found is not None and not found.status.success:
            reached = f"relative gap {found.gap:.1e}, tol={self.model.tol:.1e}"
            warn_user(f"{found.method} {found.status}: {reached}.", ConvergenceWarning)

    def _filter(self, vectors: Vectors, found: Comparison, variance: float) -> Outcome:
        """Merge the past into the observation; the result is the answer, and the past from now."""
        window, centre, older = self.window, self.limits.centre, self.window.variances.item(0)
        row = window.admit(found.plan, found.sums, variance)
        w, merged, apart = self._merge(row[:3], older, variance)
        window.variances[0] = merged
        rho = self.limits.radius * row.item(0)
        gap, violation = closed_form.certify(apart, rho, (older, variance), w)
        status = Status.SOLVED if w > 0.0 else Status.UNCHANGED
        self.estimate = Estimate(
            np.array([w, 1.0 - w]),
            centre,
            gap=gap,
            violation=violation,
            status=status,
            method="closed-form",
        )
        self._moved = w * apart
        if w == 0.0:
            vectors.write(window.centre, 0, None, 0.0)
            return Outcome.UNCHANGED
        vectors.filter(window.centre, w, centre - window.centre)
        return Outcome.DENOISED

    def reference(self, limits: Limits) -> float:
        """Return c0 of the residuals that an empty window begins to store.

        The gradients themselves where c may change, and with it by much.
        """
        return 0.0 if self.model.fixed is None else limits.centre

    def asked(self) -> Limits:
        """Return the bounds of the last step; those of now if it was before a restart."""
        if math.isnan(self.limits.L):
            self.limits = self.model.limits(1.0)
        return self.limits

    def last(self) -> Estimate | None:
        """Return how the last gradient was averaged, after a restart too; None before two."""
        if self.estimate is None and self.window.count > 1:
            self.estimate = self.model.estimate(self.window, self.asked())
        return self.estimate

    def weights(self) -> Float64:
        """Return how the last gradient was averaged, oldest first."""
        if self.estimate is None:
            return np.ones(min(self.window.count, 1))
        return self.estimate.weights if self.recursive else self.estimate.weights[self.window.order]

    def moved(self) -> float:
        """Return the distance between the last gradient and the denoised one."""
        if self.recursive or self.estimate is None:
            return self._moved
        # ||sum_i w_i h_i - h||^2 from distances alone: the coefficients add up to zero.
        v = self.estimate.weights.copy()
        v[self.window.newest] -= 1.0
        square = -0.5 * v @ self.window.distances(self.estimate.centre) ** 2 @ v
        return math.sqrt(max(0.0, float(square)))

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the vectors as plain arrays and numbers; 0 stands for None."""
        return {**self._saved_settings(), **self.window.state_dict()}

    def _saved_settings(self) -> dict[str, Any]:
        return {"version": VERSION, "window": self.size or 0, "forget": self.forget}

    def check_settings(self, state: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Raise ValueError if a saved state is of other settings, or lacks something.

        Args:
            state: what was saved.
            settings: further entries that must be the same.
        """
        wanted = {**settings, **self._saved_settings()}
        for name, mine in wanted.items():
            if name in state and state[name] != mine:
                raise ValueError(
                    f"state was saved with {name}={state[name]}, this one has {name}={mine}. "
                    f"Use the same {name}, or start with an empty window."
                )
        missing = sorted((self.state_dict().keys() | wanted) - state.keys())
        if missing:
            raise ValueError(f"state lacks {', '.join(missing)}: it is not the state of a stream.")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that has been checked."""
        self.reset()
        self.window.load_state_dict(state)


def merge(apart: float, rho: float, older: float, newer: float) -> tuple[float, float]:
    """Merge one observation into the next; return its weight and the variance of the result.

    Args:
        apart: the distance of the two residuals.
        rho: how far apart they may be.
        older: noise variance of the observation that leaves.
        newer: noise variance of the one that stays.
    """
    # At coinciding points, even equal gradients count as two observations.
    t = closed_form.pull(apart, rho) if rho > 0.0 else 1.0
    w = t * (newer / (older + newer))
    return w, (1.0 - w) ** 2 * newer + w**2 * older
