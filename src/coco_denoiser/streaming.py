"""Denoiser: the sliding window between an oracle and an optimizer, for NumPy.

A step costs one pass over the window for the new rows of the tables, and one for the weighted
sum. What it does is in `window/engine.py`; the vectors are in `window/vectors.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.models.choice import ModelName, WindowSize, choose, size
from coco_denoiser.models.cocoercive import Bound
from coco_denoiser.models.gaussian import Gaussian, as_solution
from coco_denoiser.solution import Solution
from coco_denoiser.typing import Array, ArrayLike
from coco_denoiser.window import Engine, Step
from coco_denoiser.window.vectors import ArrayVectors


class Denoiser:
    r"""Denoise a stream of gradients, each together with the K - 1 observed before it.

    Without L, the gradients are those of a field with a random slope (`model="gaussian"`):
    $g_i = \theta + E (x_i - x) + n_i$ with Gaussian E and n, whose sizes are estimated from the
    window, and the newest $\theta$ is estimated by generalised least squares. Use it between
    oracle and optimizer:

        denoiser = Denoiser(window=32)
        x = x - step * denoiser(x, g)

    With L (`model="cocoercive"`), they are projected onto the gradients that a function of
    such curvature can have. At every call, over the last K points $x_i$ with their noisy
    gradients $g_i$,

    $$\begin{align*}
    \operatorname{argmin}_\theta\quad & \sum_i \|\theta_i - g_i\|^2 / v_i \\
    \text{subject to}\quad & \|\theta_m - \theta_l - c\,(x_m - x_l)\| \le r\,\|x_m - x_l\|
    \quad\text{for all pairs } m, l
    \end{align*}$$

    with $c = (L + \mu) / 2$ and $r = (L - \mu) / 2$; the newest $\theta$ is returned.

    Args:
        L: upper bound on the curvature of the objective, or a function that
            returns it. The Gaussian model takes it as a cap on its slope.
        window: how many observations are kept, K; None keeps all of them, and "auto" is 32 for
            the Gaussian model, 16 for the other.
        model: "gaussian" or "cocoercive"; None is the latter if L is given.
        mu: lower bound, or a function: 0 convex, > 0 strongly convex, -L merely smooth.
        tol: relative duality gap to reach at every step. A step that falls short warns
            (ConvergenceWarning) and uses the best answer found.
        forget: what to do with the observation that leaves the window: "drop" it, as the paper
            does, or "fold" it into its successor, whose noise variance falls accordingly. With
            window=2, folding is a recursive filter, which keeps two vectors and one number. Not
            with the Gaussian model.
        noise_std: the standard deviation of every coordinate of the noise, if it is known;
            otherwise it is estimated too. For the Gaussian model.
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
        noise_std: float | None = None,
    ) -> None:
        self._model = choose(model, L, mu, tol=tol, noise_std=noise_std)
        kept = size(window, self._model, otherwise=16)
        self._engine = Engine(self._model, window=kept, forget=forget)
        self._vectors = ArrayVectors(self._engine.slots)
        self._shape: tuple[int, ...] | None = None

    @property
    def L(self) -> float:  # noqa: N802
        """The upper bound in use; infinite where there is none."""
        return math.nan if self._model.bounds is None else self._model.bounds[0]

    @property
    def mu(self) -> float:
        """The lower bound in use; for the Gaussian model -L, as its slope has either sign."""
        return math.nan if self._model.bounds is None else self._model.bounds[1]

    @property
    def std(self) -> float:
        """Standard error of every coordinate of the last gradient returned; NaN if unknown.

        The Gaussian model knows it from its third observation on, or from the first if
        noise_std is given.
        """
        if not isinstance(self._model, Gaussian) or not len(self):
            return math.nan
        engine, noise = self._engine, self._model.noise_std
        if len(self) == 1:
            return math.nan if noise is None else noise * math.sqrt(engine.tables.variances.item())
        last = engine.last
        if last is None:  # restored: the window tells what it told before
            last = self._model.average(engine.snapshot(self._vectors.points.shape[1]))
        return math.nan if last.std is None else last.std

    @property
    def window(self) -> int | None:
        """How many observations are kept, K; None for all of them."""
        return self._engine.window

    def __repr__(self) -> str:
        """Show the settings, and how many observations are held."""
        engine = self._engine
        own = {"window": engine.window, "forget": engine.forget}
        given = {**self._model.settings, **own}
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"<Denoiser({settings}) with {len(self)} observations>"

    def reset(self) -> None:
        """Forget every observation."""
        self._engine.reset()
        self._vectors.reset()
        self._shape = None

    def __len__(self) -> int:
        """Return the number of observations that are held; folded ones count as one."""
        return len(self._engine)

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
        vectors = self._vectors
        vectors.hold(x, g)
        try:
            if self._engine.observe(vectors, variance=noise_variance) is Step.REFUSED:
                raise self._refusal(x, g)
            theta = vectors.theta
        finally:
            vectors.release()
        self._shape = g.shape
        if theta.dtype != g.dtype and g.dtype.kind == "f":
            theta = theta.astype(g.dtype)
        return theta.reshape(g.shape) if g.ndim != 1 else theta

    @property
    def solution(self) -> Solution:
        """The last step's window, solved: all its gradients, (K, *shape), oldest first.

        With folding, the oldest of a full window also stands for everything before it: its
        row is the gradient at its own point, and its weight that of all of them together. With
        window=2 there is one row, the gradient that was returned.
        """
        if self._shape is None:
            raise ValueError("solution: there is no solution before the first observation.")
        engine, model, count = self._engine, self._model, len(self)
        if model.bounds is None:
            model.begin(1.0)
        points, residuals = (
            ring[:count] for ring in (self._vectors.points, self._vectors.residuals)
        )
        d = points.shape[1]
        window = engine.snapshot(d, (points, residuals) if d < count else None)
        order = window.order
        if isinstance(model, Gaussian):
            fitted = model.fit(window, order)
            fitted = fitted._replace(weights=fitted.weights[:, order])
            g = np.asarray(residuals[order] + engine.centre * points[order], np.float64)
            theta = (g[0] + fitted.weights @ (g - g[0])).reshape(-1, *self._shape)
            return as_solution(fitted, theta, d, model.tol)
        found = model.solve(window)
        W = found.weights[np.ix_(order, order)]
        x, h = (np.asarray(v[order], np.float64) for v in (points, residuals))
        raw = h + engine.centre * x
        h = h - (model.centre - engine.centre) * x
        gradients = raw + (W @ h - h)
        return replace(
            found,
            gradients=gradients.reshape(-1, *self._shape),
            weights=W,
            multipliers=found.multipliers[np.ix_(order, order)] / window.variances.min(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain arrays and numbers; 0 stands for None."""
        used = slice(len(self))
        return {
            **self._settings(),
            **self._engine.state_dict(),
            "shape": np.array(self._shape or (), dtype=np.int64),
            "points": self._vectors.points[used].copy(),
            "residuals": self._vectors.residuals[used].copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state of a denoiser with the same settings, and continue as it would.

        Raises:
            ValueError: if the state is damaged or of other settings; nothing has changed.
        """
        for name in ("shape", "points", "residuals"):
            if name not in state:
                raise ValueError(f"state lacks {name}: it is not the state of a Denoiser.")
        saved, mine = state.get("model"), self._model.settings["model"]
        if saved != mine:
            raise ValueError(f"state was saved with model={saved}, this one has model={mine}.")
        found = self._engine.checked(state, self._settings())
        count, shape = found["count"], check.saved_shape(state)
        points = check.saved(state, "points", (count, math.prod(shape)), kind=None)
        residuals = check.saved(state, "residuals", points.shape, kind=points.dtype)
        self._engine.load_state_dict(found)
        self._vectors.load(points, residuals)
        self._shape = shape if count else None

    def _settings(self) -> dict[str, Any]:
        """Return what a state must have been saved with; bounds that change may be others."""
        return {
            name: 0 if value is None else value
            for name, value in self._model.settings.items()
            if not callable(value)
        }

    def _refusal(self, x: Array, g: Array) -> ValueError:
        check.finite_array("point", x)
        check.finite_array("gradient", g)
        limit, narrow = self._vectors.limit, self._vectors.limit < 1e300
        return ValueError(
            f"point, gradient and gradient - c * point must be at most {limit:.1e} in "
            f"{'float32' if narrow else 'float64'}, got {np.abs(x).max():.1e} and "
            f"{np.abs(g).max():.1e} with c = (L + mu) / 2 = {self._model.centre}: it overflows. "
            f"Scale the problem{', or pass float64' if narrow else ''}."
        )
