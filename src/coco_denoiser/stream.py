"""Denoiser: the sliding window between an oracle and an optimizer, and what is around a step.

A step compares the observation with the window, admits it, asks the model for weights, and writes
the observation and the weighted sum. Nothing changes before an observation has been accepted. All
of it is in the core; PyTorch makes the same calls for vectors of its own.
"""

import math
import threading
from dataclasses import replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser._core import kernels
from coco_denoiser._warnings import warn_user
from coco_denoiser.models import Model, choose
from coco_denoiser.models.base import Bound, Limits
from coco_denoiser.solution import ConvergenceWarning, Solution
from coco_denoiser.typing import Array, ArrayLike, Saved, State
from coco_denoiser.window import FLOAT32, FLOAT64, Estimate, Window

WindowSize: TypeAlias = int | Literal["auto"] | None
VERSION = 4  # of what a state holds
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

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$; the newest $\theta$ is returned.

    A denoiser belongs to one thread at a time: a second caller is refused.

    Examples:
        Put it between oracle and optimizer, as in `x = x - step * denoiser(x, g)`. The second
        gradient must not be smaller than the first, so both move to their mean:

        >>> from coco_denoiser import Denoiser
        >>> denoiser = Denoiser(L=1.0)
        >>> denoiser([0.0], [0.5])
        array([0.5])
        >>> denoiser([1.0], [0.1])
        array([0.3])

    Args:
        L: upper bound on the curvature of the objective, or a function that returns it: short for
            `model=Cocoercive(L)`.
        window: how many observations are kept, K; None keeps all of them, and "auto" is 16, or
            32 for the Gaussian model.
        model: `Cocoercive`, with its options, or `Gaussian`, which needs no L. A step that falls
            short of its tolerance warns (ConvergenceWarning) and uses the best answer found.
        forget: what to do with the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, whose noise variance falls accordingly. With
            window=2, folding is a recursive filter, which keeps two vectors and one number. Not
            with the Gaussian model.

    References:
        Madeira, Negrinho, Xavier and Aguiar, [COCO denoiser: using co-coercivity for variance
        reduction in stochastic convex optimization](https://arxiv.org/abs/2109.03207), 2021.
    """

    def __init__(
        self,
        L: Bound | None = None,
        window: WindowSize = "auto",
        *,
        model: Model | None = None,
        forget: Literal["drop", "fold"] = "drop",
    ) -> None:
        self._model = choose(L, model)
        self._stream = Stream(self._model, window=window, forget=forget)

    @property
    def L(self) -> float:  # noqa: N802 - the paper's letter
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
        return f"<Denoiser({self._stream}) with {len(self)} observations>"

    def reset(self) -> None:
        """Forget every observation."""
        with self._stream:
            self._stream.reset()

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return self._stream.window.count

    def __bool__(self) -> bool:
        """Return True, even when empty."""
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
        stream = self._stream
        x: Any = point  # checked below
        g: Any = gradient
        window = stream.window
        shape = window.points.shape[1:] if window.count and window.points is not None else None
        arrays = type(x) is type(g) is np.ndarray and x.dtype.kind == g.dtype.kind == "f"
        if not (arrays and x.shape == g.shape == shape):
            x, g = check.pair(point, gradient, shape)
        variance = check.positive("noise_variance", noise_variance)
        if not stream.lock.acquire(blocking=False):
            raise RuntimeError(BUSY)
        try:
            theta = self._step(x, g, variance)
        finally:
            stream.lock.release()
        stream.warn()
        return theta if theta.dtype == g.dtype or g.dtype.kind != "f" else theta.astype(g.dtype)

    def _step(self, x: Array, g: Array, variance: float) -> Array:
        """Take an observation, and return its gradient, denoised."""
        stream, window, model = self._stream, self._stream.window, self._model
        limits, held = model.limits(1.0), (window.points, window.residuals)
        wide = x.dtype.itemsize > 4 or g.dtype.itemsize > 4 or x.dtype.kind + g.dtype.kind != "ff"
        if window.count and window.points is not None and window.points.dtype == FLOAT64:
            wide = True
        dtype = FLOAT64 if wide else FLOAT32
        own_x: Array
        own_g: Array
        own_x, own_g = np.asarray(x, dtype, order="C"), np.asarray(g, dtype, order="C")
        theta: Array = np.empty(g.shape, dtype)
        window.fit(g.shape, dtype)
        stream.begin(limits)
        before, limit = stream.estimate, check.LIMITS[dtype]
        try:
            found = kernels.step(
                window, own_x, own_g, theta, variance, limit, limits, model, before
            )
            if found is not None:
                if found is True:  # the core has answered, or there was nothing to ask
                    found = window.found() if window.members > 1 else None
                stream.limits, stream.estimate = limits, found
                return theta
        except BaseException:
            stream.reset()  # tables and vectors may no longer belong together
            raise
        window.points, window.residuals = held
        raise check.refusal(own_x, own_g, limits.centre, "point", "gradient")

    @property
    def solution(self) -> Solution:
        """The answer of the last step, with its certificate: all gradients, (K, *shape).

        They are in the order in which they were observed, and the last is the one that was
        returned, up to rounding. A denoiser that has just been restored solves its window anew:
        where window=2 folds, that is one observation, which nothing moves.

        With folding, the oldest of a full window also stands for everything before it: its
        row is the gradient at its own point, and its weight that of all of them together. With
        window=2 there is one row, the gradient that was returned.
        """
        with self._stream as stream:
            window = stream.window
            if window.points is None or window.residuals is None or not window.count:
                raise ValueError("solution: there is no solution before the first observation.")
            limits, order, shape = stream.asked(), window.order, window.points.shape[1:]
            x, h = (
                np.asarray(v[order], np.float64).reshape(len(order), -1)
                for v in (window.points, window.residuals)
            )
            raw, h = h + window.centre * x, h - (limits.centre - window.centre) * x
            found = self._model.solution(window, limits, stream.last(), raw, h)
        return replace(found, gradients=found.gradients.reshape(-1, *shape))

    def state_dict(self) -> State:
        """Return everything as plain arrays and numbers; 0 stands for None."""
        with self._stream as stream:
            window = stream.window
            vectors = {"points": window.points, "residuals": window.residuals}
            return {
                **self._saved_settings(),
                **stream.state_dict(),
                **{
                    name: np.zeros(0) if held is None else held[: window.count].copy()
                    for name, held in vectors.items()
                },
            }

    def load_state_dict(self, state: Saved) -> None:
        """Restore a saved state of a denoiser with the same settings, and continue as it would.

        Sizes, types, signs and symmetries are checked. Numbers that were changed to others just
        as plausible are not noticed: keep a checksum of the file where that may happen.

        Raises:
            ValueError: if the state is damaged or of other settings; nothing has changed.
        """
        for name in ("points", "residuals"):
            if name not in state:
                raise ValueError(f"state lacks {name}: it is not the state of a Denoiser.")
        self._stream.check_settings(state, self._saved_settings())
        tables = self._stream.window.checked(state)
        shape = (tables["count"], *np.shape(state["points"])[1:])
        points = check.saved(state, "points", shape, kind=None)
        residuals = check.saved(state, "residuals", shape, kind=points.dtype)
        with self._stream:
            self._stream.load_state_dict(tables)
            window = self._stream.window
            window.points, window.residuals, window.d = points, residuals, math.prod(shape[1:])
            window.move(points.shape[1:], points.dtype)

    def _saved_settings(self) -> State:
        """Return what a state must have been saved with; bounds that change may be others."""
        given = self._model.settings.items()
        return {name: 0 if value is None else value for name, value in given if not callable(value)}


class Stream:
    """The state of a stream, and what is said of its last step, for every interface.

    Args:
        model: what turns the window into weights.
        window: how many observations are kept, K; None keeps all of them.
        forget: what becomes of the observation that leaves the window: "drop" or "fold".

    Attributes:
        size: K.
        window: all that is remembered.
        limits: the curvature bounds of the last step; NaN if there was none.
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
                "forget='fold' is only supported by Cocoercive: folded gradients are not "
                "observations, and the Gaussian model would misjudge their noise."
            )
        check.one_of("method", model.settings.get("method", "auto"), ("auto", "fdpg"))
        folds = forget == "fold"
        self.window = Window(1 if folds and self.size == 2 else self.size, folds)
        self.lock = threading.Lock()
        self.reset()

    def __enter__(self) -> Self:
        if not self.lock.acquire(blocking=False):
            raise RuntimeError(BUSY)
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def __getstate__(self) -> State:
        found = self.estimate
        if found is not None:  # a workspace belongs to its window
            found = found._replace(source=found.whole())
        return {k: v for k, v in self.__dict__.items() if k != "lock"} | {"estimate": found}

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state)
        self.lock = threading.Lock()

    def __str__(self) -> str:
        """Return the settings."""
        return f"model={self.model!r}, window={self.size}, forget={self.forget!r}"

    def reset(self) -> None:
        """Forget every observation."""
        self.window.reset()
        self.limits = self.model.fixed or Limits(*[math.nan] * 4)
        self.estimate: Estimate | None = None

    def begin(self, limits: Limits) -> None:
        """Choose c0 of the residuals that an empty window begins to store.

        The gradients themselves where c may change, and with it by much.
        """
        if not self.window.count:
            self.window.centre = 0.0 if self.model.fixed is None else limits.centre

    def warn(self) -> None:
        """Warn if the last step fell short of the tolerance; call it when all is written."""
        found = self.estimate
        if found is not None and not found.status.success:
            reached = f"relative gap {found.gap:.1e}, tol={self.model.tol:.1e}"
            warn_user(f"{found.method} {found.status}: {reached}.", ConvergenceWarning)

    def asked(self) -> Limits:
        """Return the bounds of the last step; those of now if it was before a restart."""
        if math.isnan(self.limits.L):
            self.limits = self.model.limits(1.0)
        return self.limits

    def last(self) -> Estimate | None:
        """Return how the last gradient was averaged, after a restart too; None before two."""
        if self.estimate is None and self.window.members > 1:
            self.estimate = self.model.estimate(self.window, self.asked())
        return self.estimate

    def state_dict(self) -> State:
        """Return everything but the vectors as plain arrays and numbers; 0 stands for None."""
        return {**self._saved_settings(), **self.window.state_dict()}

    def _saved_settings(self) -> State:
        return {"version": VERSION, "window": self.size or 0, "forget": self.forget}

    def check_settings(self, state: Saved, settings: Saved) -> None:
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

    def load_state_dict(self, state: Saved) -> None:
        """Go back to a state that has been checked."""
        self.reset()
        self.window.load_state_dict(state)
