"""minimize(): from a noisy gradient and a budget of calls to a point, its gradient and its error.

The method is stochastic gradient descent that finds its own speed. Speed s means a step of
min(s, 1) / L, with momentum 1 - 1 / s where s > 1. Every twentieth of the calls, the way gone
since the last time is compared with the way gone before: if both point the same way, the path is
still travelling and the speed goes up; if they point against each other, it dances around the
minimum and the speed goes down. The answer is an average of the path in which step k has the
weight k^3, so that the start is forgotten and the noise averages out.

The last call is spent at the answer. With the last points of the path it tells the gradient
there and its standard error, by the Gaussian model of `Denoiser`.
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
_BLOCKS = 20  # comparisons of directions in a run
_FASTER, _SLOWER = 0.35, 1.5 * 0.35  # log change of the speed for a cosine of 1 and of -1
_SLOWEST, _FASTEST = 1 / 8, 8.0
_WEIGHT = 3  # step k has the weight k^3 in the answer
_WINDOW = 32  # points that tell the gradient at the answer
_GROWTH, _SAFETY = 4.0, 1.5  # of the probes for L, and of what they find
_REPEATS = 6  # calls at x0 that tell the noise, if it is not known


@dataclass
class _Path:
    """Where a descent is, and all that it remembers."""

    x: Float64
    L: float
    block: int  # calls between two comparisons
    velocity: Float64
    mean: Float64
    from_: Float64  # where the present block began
    way: Float64 | None = None  # of the last block
    speed: float = 1.0
    steps: int = 0
    weights: float = 0.0
    calls: int = 0
    longest: float = 0.0  # of the first gradients
    recent: deque[tuple[Float64, Float64]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    @classmethod
    def start(cls, x: Float64, L: float, calls: int) -> "_Path":
        zero = np.zeros_like(x)
        return cls(x.copy(), L, max(4, calls // _BLOCKS), zero, x.copy(), x.copy())

    def step(self, g: Float64) -> None:
        """Take one step along a noisy gradient at x."""
        self.recent.append((self.x.copy(), g))
        length = float(np.linalg.norm(g))
        if self.steps < self.block:
            self.longest = max(self.longest, length)
        elif length > 4.0 * self.longest:
            # Far more than the path began with: the steps are too long for this noise, or for L.
            self.speed *= 0.5
            self.x, self.velocity, g = self.mean.copy(), np.zeros_like(g), np.zeros_like(g)
        self.velocity = max(0.0, 1.0 - 1.0 / self.speed) * self.velocity + g
        self.x = self.x - (min(self.speed, 1.0) / self.L) * self.velocity
        self.steps += 1
        weight = float(self.steps) ** _WEIGHT
        self.weights += weight
        self.mean += (weight / self.weights) * (self.x - self.mean)
        if self.steps % self.block == 0:
            self._compare()

    def _compare(self) -> None:
        way, self.from_ = self.x - self.from_, self.x.copy()
        if self.way is not None:
            size = float(np.linalg.norm(way) * np.linalg.norm(self.way))
            cosine = float(way @ self.way) / size if size > 0.0 else 0.0
            change = math.exp((_FASTER if cosine > 0.0 else _SLOWER) * cosine)
            self.speed = min(max(self.speed * change, min(self.speed, _SLOWEST)), _FASTEST)
        self.way = way


@dataclass(frozen=True, repr=False)
class Minimum:
    """What `minimize` found.

    Attributes:
        x: the answer, of the shape of x0.
        gradient: the gradient there, denoised; NaN where the run ended early.
        std: standard error of every coordinate of `gradient`.
        message: a sentence on how it ended.
        calls: how many gradients were asked for, earlier runs included.
        L: the curvature bound in use, as given or estimated.
    """

    x: Float64
    gradient: Float64
    std: float
    message: str
    calls: int
    L: float
    _path: _Path

    def __repr__(self) -> str:
        rows = {
            "message": self.message,
            "x": np.array2string(self.x, threshold=10, prefix=" " * 10),
            "gradient": np.array2string(self.gradient, threshold=10, prefix=" " * 10),
            "std": f"{self.std:.4g}",
            "calls": self.calls,
            "L": f"{self.L:.4g}",
        }
        return "\n".join(f"{name:>8s}: {value}" for name, value in rows.items())


class MinimizeError(RuntimeError):
    """The gradient could not be had; `result` is the best point so far."""

    def __init__(self, result: Minimum) -> None:
        self.result = result
        super().__init__(
            f"{result.message} The best point so far is in the error's `result`; to go on from "
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

    There is nothing to tune: stochastic gradient descent with momentum that finds its own speed,
    and an average of its path (`coco_denoiser.descent` says how). Without L, a tenth of the
    calls, and 12 at least, go to finding it: six at x0 for the noise, the others at growing
    distance downhill, until the change of the gradient stands out from the noise. With single
    examples as noise such an L may be wrong by far: pass L where you can.

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
    path = _Path.start(x, 1.0, budget) if resume is None else deepcopy(resume._path)  # noqa: SLF001
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
        if resume is None:
            path.L = (
                _curvature(ask, x, min(max(budget // 10, 2 * _REPEATS), budget // 2), noise)
                if known is None
                else known
            )
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
        message += "; the gradient still stands out from its error: more calls would help."
    elif math.isnan(std):
        message += ", too few for an error of the gradient."
    else:
        message += "; what is left of the gradient cannot be told from noise."
    x = path.mean.reshape(theta.shape).copy()
    return Minimum(x, theta, std, message, path.calls, path.L, path)


def _early(path: _Path, shape: tuple[int, ...], message: str) -> Minimum:
    x = path.mean.reshape(shape).copy()
    return Minimum(x, np.full(shape, np.nan), math.nan, message, path.calls, path.L, path)


def _curvature(
    ask: Callable[[Float64], Float64], x: Float64, calls: int, noise_std: float | None
) -> float:
    """Estimate L from the change of the gradient over growing distances from x, downhill."""
    answers = np.stack([ask(x) for _ in range(_REPEATS if noise_std is None else 1)])
    g, used = answers.mean(axis=0), len(answers)
    variance = float(answers.var(axis=0, ddof=1).mean()) if noise_std is None else noise_std**2
    noise = 2.0 * x.size * variance  # of the squared change between two points
    direction, found = -g, 0.0
    reach = max(float(np.linalg.norm(x)), 1.0)
    distance = 1e-4 * reach
    while used < calls:
        length = float(np.linalg.norm(direction))
        if length == 0.0:
            break
        there = x + (distance / length) * direction
        change = ask(there) - g
        used += 1
        stands_out = float(change @ change) > 4.0 * noise and change.any()
        if stands_out and used < calls:
            # Asked again: noise alone does not point the same way twice.
            again = ask(there) - g
            used += 1
            product = float(change @ again)
            stands_out = product > 0.5 * float(np.linalg.norm(change) * np.linalg.norm(again))
            if stands_out:
                # The change points to where the curvature is larger: look there next.
                found = max(found, math.sqrt(product) / distance)
                direction = change + again
        if found == 0.0:
            # Not beyond the length of x: further away the curvature may be another.
            distance = min(_GROWTH * distance, reach)
        elif not stands_out:
            break
    if found == 0.0:
        found = math.sqrt(max(noise, 1e-300)) / distance
    return _SAFETY * found
