"""minimize(): from a noisy gradient and a budget of calls to a point, its gradient and its error.

The method is stochastic gradient descent that finds its own step, and averages its path.

- The step is that of DoG, "distance over gradients" (Ivgi, Hinder and Carmon, 2023): the largest
  distance from x0 so far, over the root of the sum of all squared gradients so far. It begins
  with 3% of the length of x0, grows while the path travels, and shrinks once it stays
  where it is. If L is known, the step is at most 2 / L, and at least 1 / (2 L) once that moves
  the path by little.
- It is multiplied by a speed. Every twentieth of the calls, the last two stretches of the path
  are compared: if they point the same way, the speed goes up; if they point against each other,
  the path circles the minimum and the speed goes down. Beyond 1, it becomes momentum.
- The answer is an average of the path in which step k has the weight k^3, so that the start is
  forgotten and the noise averages out.

The last call is spent at the answer. From it and from the last points of the path, the Gaussian
model of `Denoiser` estimates the gradient there and its standard error.
"""

import math
import sys
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.oracle import FunctionOracle, GradientFunction
from coco_denoiser.streaming import Denoiser
from coco_denoiser.typing import ArrayLike, Float64

# Chosen on the problems of `python -m benchmarks minimize` that are named so there.
_FIRST = 0.03  # the first distance, as a share of the length of x0
_SHORTEST, _LONGEST = 0.5, 2.0  # step if L is known, as a multiple of 1 / L
_LENGTHENED = 0.2  # up to this share of the largest distance, lest too small an L do harm
_BLOCKS = 20  # comparisons of directions in a run
_FASTER, _SLOWER = 0.15, 0.5  # log change of the speed for a cosine of 1 and of -1
_FASTEST = 2.0
_WEIGHT = 3  # step k has the weight k^3 in the answer
_WINDOW = 32  # points from which the gradient at the answer is estimated


def _length(v: Float64) -> float:
    """Return ||v||, whatever its scale."""
    largest = float(np.abs(v).max())
    return largest * float(np.linalg.norm(v / largest)) if largest > 0.0 else 0.0


@dataclass
class _Path:
    """Where a descent is, and all that it remembers."""

    start: Float64
    L: float | None
    block: int  # calls between two comparisons
    x: Float64
    velocity: Float64
    mean: Float64
    turn: Float64  # where the present block began
    way: Float64 | None  # of the last block
    reach: float  # the largest distance from the start
    gradients: float = 0.0  # root of the sum of their squared lengths
    latest: float = 0.0  # the same for the present block
    least: float = 0.0  # step in the present block
    speed: float = 1.0
    steps: int = 0
    weights: float = 0.0
    calls: int = 0
    recent: deque[tuple[Float64, Float64]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    @classmethod
    def begin(cls, x: Float64, L: float | None, calls: int) -> "_Path":
        reach = _FIRST * (_length(x) or 1.0)
        zero = np.zeros_like(x)
        return cls(x, L, max(4, calls // _BLOCKS), x, zero, x.copy(), x, None, reach)

    def step(self, g: Float64) -> None:
        """Take one step along a noisy gradient at x."""
        self.recent.append((self.x, g))
        length = _length(g)
        self.gradients = math.hypot(self.gradients, length)
        self.latest = math.hypot(self.latest, length)
        size = self.reach / self.gradients if self.gradients > 0.0 else 0.0
        if self.L is not None:
            size = min(max(size, self.least), _LONGEST / self.L)
        self.velocity = max(0.0, 1.0 - 1.0 / self.speed) * self.velocity + g
        self.x = self.x - (size * min(self.speed, 1.0)) * self.velocity
        self.reach = max(self.reach, _length(self.x - self.start))
        self.steps += 1
        weight = float(self.steps) ** _WEIGHT
        self.weights += weight
        self.mean += (weight / self.weights) * (self.x - self.mean)
        if self.steps % self.block == 0:
            self._compare()

    def _compare(self) -> None:
        way, self.turn = self.x - self.turn, self.x
        if self.way is not None:
            size = _length(way) * _length(self.way)
            cosine = float(way @ self.way) / size if size > 0.0 else 0.0
            change = math.exp((_FASTER if cosine > 0.0 else _SLOWER) * cosine)
            self.speed = min(self.speed * change, _FASTEST)
        self.way = way
        if self.L is not None:
            # By the last block alone: a step that depends on its own gradient is biased.
            move = _SHORTEST / self.L * self.latest / math.sqrt(self.block)
            self.least = _SHORTEST / self.L if move <= _LENGTHENED * self.reach else 0.0
        self.latest = 0.0


@dataclass(frozen=True, repr=False)
class Minimum:
    """What `minimize` found.

    Attributes:
        x: the answer, of the shape of x0.
        gradient: the gradient there, denoised; NaN where the run ended early.
        std: standard error of every coordinate of `gradient`.
        message: a sentence on how it ended.
        calls: how many gradients were asked for, earlier runs included.
    """

    x: Float64
    gradient: Float64
    std: float
    message: str
    calls: int
    _path: _Path

    def __repr__(self) -> str:
        rows = {
            "message": self.message,
            "x": np.array2string(self.x, threshold=10, prefix=" " * 10),
            "gradient": np.array2string(self.gradient, threshold=10, prefix=" " * 10),
            "std": f"{self.std:.4g}",
            "calls": self.calls,
        }
        return "\n".join(f"{name:>8s}: {value}" for name, value in rows.items())


class MinimizeError(RuntimeError):
    """A call to the gradient failed; `result` is the best point so far."""

    def __init__(self, result: Minimum) -> None:
        self.result = result
        super().__init__(
            f"{result.message} The error carries the best point so far as `result`; to go on from "
            "it, pass resume=error.result."
        )


def minimize(
    gradient: GradientFunction,
    x0: ArrayLike,
    calls: int = 500,
    *,
    L: float | None = None,
    noise_std: float | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    callback: Callable[[Float64, int], object] | None = None,
    resume: Minimum | None = None,
) -> Minimum:
    r"""Minimise a smooth function of which only noisy gradients can be had.

    $$\operatorname{argmin}_x\ f(x), \qquad \mathrm{E}\,\text{gradient}(x) = \nabla f(x)$$

        result = minimize(gradient, x0, calls=500)
        result.x, result.gradient, result.std, result.message

    There is nothing to tune: it is stochastic gradient descent that finds its own step and
    averages its path (`coco_denoiser.descent` says how). L is not needed, and no calls are spent
    on estimating it. If you know it, pass it: it keeps steps from becoming too long or too short,
    which helps most where gradients are far larger at the start than at the minimum.

    Without L, the first step is 3% of the length of x0, or 0.03 if x0 is zero. If the
    minimum is far nearer than that, start from a point whose size says so, or pass L.

    Args:
        gradient: returns a noisy gradient at x, of the shape of x; called as gradient(x), or as
            gradient(x, rng) if it takes a generator.
        x0: the starting point, of any shape.
        calls: how many gradients may be asked for.
        L: upper bound on the curvature, if known. Err upwards.
        noise_std: standard deviation of every coordinate of the noise, if known.
        rng: passed on to `gradient`, for which it must be given if it takes a generator.
        progress: whether to show the progress on the standard error stream.
        callback: called after every call with the answer so far and the number of calls; if it
            returns True, the run ends.
        resume: an earlier result, or that of an error, to go on from; x0 and L are then its own.

    Raises:
        MinimizeError: if `gradient` fails, or returns NaN, infinity or another shape.
    """
    start = check.finite_array("x0", x0)
    budget = check.count("calls", calls, optional=False) or 1
    known = None if L is None else check.positive("L", L)
    noise = None if noise_std is None else check.positive("noise_std", noise_std)
    if not callable(gradient):
        raise TypeError(f"gradient must be a function of x, got {gradient!r}.")
    oracle = FunctionOracle(gradient, start.shape[-1] if start.ndim else 1)
    if oracle.draws and not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng must be a numpy.random.Generator, which gradient(x, rng) takes, got {rng!r}."
        )
    x = start.reshape(-1).astype(np.float64)
    path = _Path.begin(x, known, budget) if resume is None else deepcopy(resume._path)  # noqa: SLF001
    if path.x.size != x.size:
        raise ValueError(f"x0 must have the size of resume.x, {path.x.size}, got {x.size}.")
    end = path.calls + budget

    def ask(point: Float64) -> Float64:
        path.calls += 1
        try:
            g = oracle.oracle(point.reshape(start.shape), rng)  # type: ignore[arg-type]
            if not np.isfinite(g).all():
                raise ValueError(f"gradient must be finite, got {g}.")  # noqa: TRY301
        except Exception as error:
            message = f"call {path.calls} failed: {type(error).__name__}: {error}"
            raise MinimizeError(_early(path, start.shape, message)) from error
        if progress:
            length = float(np.linalg.norm(g))
            sys.stderr.write(f"\rminimize: {path.calls} of {end} calls, |gradient| {length:.3g} ")
            sys.stderr.flush()
        return np.asarray(g.reshape(-1), np.float64)

    try:
        while path.calls < end - 1:
            path.step(ask(path.x))
            if callback is not None and callback(path.mean.reshape(start.shape), path.calls):
                return _early(path, start.shape, f"the callback ended it after {path.calls} calls.")
        g = ask(path.mean)
    finally:
        if progress:
            sys.stderr.write("\n")
    path.recent.append((path.mean.copy(), g))
    denoiser = Denoiser(L=path.L, window=_WINDOW, model="gaussian", noise_std=noise)
    theta = g
    for point, seen in path.recent:
        theta = np.asarray(denoiser(point, seen), np.float64)
    return _result(path, theta.reshape(start.shape), denoiser.std)


def _result(path: _Path, theta: Float64, std: float) -> Minimum:
    message = f"used all {path.calls} calls"
    # The largest of d normal numbers is rarely beyond sqrt(2 log d) + 2.
    limit = (math.sqrt(2.0 * math.log(theta.size)) + 2.0) * std if theta.size > 1 else 2.0 * std
    if np.abs(theta).max() > limit:
        message += "; the gradient is still larger than its error: more calls would help."
    elif math.isnan(std):
        message += ", too few to estimate the error of the gradient."
    else:
        message += "; the gradient cannot be told from noise any more."
    x = path.mean.reshape(theta.shape).copy()
    return Minimum(x, theta, std, message, path.calls, path)


def _early(path: _Path, shape: tuple[int, ...], message: str) -> Minimum:
    x = path.mean.reshape(shape).copy()
    return Minimum(x, np.full(shape, np.nan), math.nan, message, path.calls, path)
