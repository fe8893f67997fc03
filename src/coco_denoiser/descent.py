"""minimize(): from a noisy gradient and a budget of calls to a point, its gradient and its error.

The method is stochastic gradient descent that finds its own step, and averages its path.

- The step is that of DoG, "distance over gradients" (Ivgi, Hinder and Carmon, 2023): the largest
  distance from x0 so far, over the root of the sum of all squared gradients so far. It begins
  with 10% of the length of x0, grows while the path travels, and shrinks once it stays
  where it is. L plays no part in it: a step of at most 1 / L is far too short where L is loose.
- While successive stretches of the path point the same way, momentum grows, up to 1/2.
- The answer is the average of the last part of the path. The longest part would average out the
  most noise, so the part is chosen by its mean gradient, which tells whether the path was still
  travelling, and by its noise. If a long part contains a move of the minimum, its two halves lie
  further apart than noise explains, given the curvature that the last points show. That part,
  and all longer ones, are then left out.
- A projection or a proximal map follows every step. It turns noise into bias, which averages keep;
  so the answer is one more step, from the average point along the average gradient. In the place
  of a mean gradient g at x stands the gradient mapping (x - prox(x - s g, s)) / s, which is zero
  at a solution.

The last call is spent at the answer. From it and from the last points of the path, the Gaussian
model estimates the gradient there and its standard error. A path that leads ever further away
along gradients that do not shrink is ended.
"""

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.batch import solve
from coco_denoiser.oracle import FunctionOracle, GradientFunction
from coco_denoiser.typing import Array, ArrayLike, Float64

Project: TypeAlias = Callable[[Array], Array]
Prox: TypeAlias = Callable[[Array, float | Array], Array]

# Chosen on the problems of `python -m benchmarks minimize` that are named so there.
_FIRST = 0.1  # the first distance, as a share of the length of x0
_BLOCK, _BLOCKS = 8, 32  # the first size of a block, and how many of them before they are joined
_FASTER, _SLOWER = 0.1, 0.5  # log change of the speed for a cosine of 1 and of -1
_FASTEST = 2.0
_SHORTEST = 0.2  # of the path, in the answer
_TRAVEL = 30.0  # weight of the mean gradient: it points where curvature is small, unlike noise
_APART = 3.5  # standard errors by which the two halves of the answer's part may differ
_FAR = 1e8  # first distances from x0, beyond which a path diverges unless its gradients shrink
_WINDOW = 32  # points from which curvature, and the gradient at the answer, are estimated
_SHOWN = 0.2  # seconds between two lines of progress

_WITHIN = "the gradient is within its standard error."
_LARGER = "the gradient is still larger than its error: more calls would help."
_TOO_FEW = "they are too few to estimate the error of the gradient."


def _length(v: Float64) -> float:
    """Return ||v||, whatever its scale."""
    largest = float(np.abs(v).max())
    return largest * float(np.linalg.norm(v / largest)) if largest > 0.0 else 0.0


@dataclass
class _Block:
    """Consecutive points of a path: their number, their mean and that of their gradients."""

    count: int
    x: Float64
    g: Float64
    spread: float = 0.0  # root of the sum of squared distances of the gradients from their mean
    degrees: int = 0  # of freedom of that sum

    def join(self, other: "_Block") -> "_Block":
        """Return both as one. The spread stays that within each."""
        count = self.count + other.count
        share = other.count / count
        return _Block(
            count,
            self.x + share * (other.x - self.x),
            self.g + share * (other.g - self.g),
            math.hypot(self.spread, other.spread),
            self.degrees + other.degrees,
        )

    def add(self, x: Float64, g: Float64) -> "_Block":
        """Return the block with one more point."""
        distance = _length(g - self.g) * math.sqrt(self.count / (self.count + 1))
        return self.join(_Block(1, x, g, distance, 1))

    @property
    def noise(self) -> float:
        """The root mean square length of the noise."""
        return self.spread / math.sqrt(max(self.degrees, 1))

    def steady(self, later: "_Block", slope: float) -> bool:
        """Say whether noise explains how far the points before `later` are from those in it."""
        before = self.count - later.count
        if before == 0:
            return True
        # The means of the two differ by self.count / before times this.
        gap = slope * _length(self.x - later.x)
        return gap * math.sqrt(self.count * later.count / before) <= _APART * self.noise


@dataclass
class _Path:
    """Where a descent is, and all that it remembers."""

    start: Float64
    x: Float64
    velocity: Float64
    turn: Float64  # where the present block began
    first: float  # the distance it began with
    reach: float  # the largest distance from the start
    L: float | None = None
    prox: Callable[[Float64, float], Float64] | None = None
    constrained: bool = False  # whether it has a prox, which is not saved
    way: Float64 | None = None  # of the last block
    gradients: float = 0.0  # root of the sum of their squared lengths
    latest: float = 0.0  # the same for the present block
    typical: float = 0.0  # length of a gradient in the last block
    initial: float = 0.0  # and in the first
    speed: float = 1.0
    gain: float = 0.0  # the sum of the weights of the gradients in the velocity
    size: float = 0.0  # of the last step
    block: int = _BLOCK
    blocks: list[_Block] = field(default_factory=list)  # the last one may be incomplete
    steps: int = 0
    history: list[float] = field(default_factory=list)  # lengths of gradients, by call
    recent: deque[tuple[Float64, Float64]] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    @classmethod
    def begin(cls, x: Float64) -> "_Path":
        first = _FIRST * (_length(x) or 1.0)
        return cls(x, x, np.zeros_like(x), x, first, first)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"prox": None}  # most functions cannot be pickled

    def step(self, g: Float64) -> None:
        """Take one step along a noisy gradient at x."""
        self.recent.append((self.x, g))
        if self.blocks and self.blocks[-1].count < self.block:
            self.blocks[-1] = self.blocks[-1].add(self.x, g)
        else:
            self.blocks.append(_Block(1, self.x, g))
        length = _length(g)
        self.gradients = math.hypot(self.gradients, length)
        self.latest = math.hypot(self.latest, length)
        self.steps += 1
        self._choose_size()
        kept = 1.0 - 1.0 / self.speed
        self.velocity, self.gain = kept * self.velocity + g, kept * self.gain + 1.0
        self.x = self.x - self.size * self.velocity
        if self.prox is not None:
            self.x = self.prox(self.x, self.size * self.gain)
        self.reach = max(self.reach, _length(self.x - self.start))
        if self.blocks[-1].count == self.block:
            self._turn()

    def _choose_size(self) -> None:
        # By the last block, not the present one: a step that depends on its own gradient is biased.
        past = max(self.gradients, math.sqrt(self.steps) * self.typical)
        self.size = self.reach / past if past > 0.0 else 0.0

    def _turn(self) -> None:
        """End a block."""
        way, self.turn = self.x - self.turn, self.x
        if self.way is not None:
            size = _length(way) * _length(self.way)
            cosine = float(way @ self.way) / size if size > 0.0 else 0.0
            change = math.exp((_FASTER if cosine > 0.0 else _SLOWER) * cosine)
            self.speed = min(max(self.speed * change, 1.0), _FASTEST)
        self.way = way
        self.typical, self.latest = self.latest / math.sqrt(self.block), 0.0
        self.initial = self.initial or self.typical
        if len(self.blocks) == _BLOCKS:
            pairs = zip(self.blocks[::2], self.blocks[1::2], strict=True)
            self.blocks = [first.join(second) for first, second in pairs]
            self.block *= 2

    @property
    def runs_away(self) -> bool:
        """Whether the path leads far away along gradients that do not shrink."""
        return self.reach > _FAR * self.first and self.typical >= 0.5 * self.initial

    def estimate(self) -> tuple[Float64, float]:
        """Return the gradient at the last point, by the Gaussian model, and its standard error."""
        points, gradients = (np.array(v) for v in zip(*self.recent, strict=True))
        found = solve(points, gradients, L=self.L, model="gaussian")
        return found.gradients[-1], float(found.std[-1])

    def answer(self) -> Float64:
        """Return the average of the last part of the path, which is as long as the data advise."""
        if not self.gradients > 0.0:
            return self.x
        parts: list[_Block] = []
        for block in reversed(self.blocks):
            parts.append(block.join(parts[-1]) if parts else block)
        slope, fit = self._slope(), list[_Block]()
        for part in parts:
            if part.count >= _SHORTEST * self.steps:
                half = min(parts, key=lambda other: abs(2 * other.count - part.count))
                if fit and not part.steady(half, slope):
                    break
                fit.append(part)
        best = min(fit, key=self._score)
        return self.mapping(best.x, best.g)[1]

    def _score(self, part: _Block) -> float:
        """Estimate how bad the mean point of a part is."""
        # In units of the gradients, lest squares overflow.
        g, noise = self.mapping(part.x, part.g)[0] / self.gradients, part.noise / self.gradients
        return float(_TRAVEL * (g @ g) + noise**2 / part.count)

    def is_stationary(self, x: Float64, g: Float64, std: float) -> bool:
        """Return whether a gradient with this standard error may be zero; not if that is NaN."""
        # The largest of d normal numbers is rarely beyond sqrt(2 log d) + 2.
        limit = (math.sqrt(2.0 * math.log(g.size)) + 2.0) * std
        return bool(np.abs(self.mapping(x, g)[0]).max() <= limit)

    def mapping(self, x: Float64, g: Float64) -> tuple[Float64, Float64]:
        """Return the gradient mapping for g at x, and the point to which it leads."""
        if self.prox is None:
            return g, x
        slope = self._slope()
        step = 1.0 / slope if slope > 0.0 else self.size
        after = self.prox(x - step * g, step)
        return (x - after) / step, after

    def _slope(self) -> float:
        """Regress the last gradients on their points: how much noise, and no move, explains."""
        x, g = (np.array(v) - np.mean(v, axis=0) for v in zip(*self.recent, strict=True))
        spread = _length(x.reshape(-1))
        if spread == 0.0:
            return 0.0
        return float(np.vdot(x / spread, g / self.gradients)) * (self.gradients / spread)


@dataclass(frozen=True, repr=False)
class MinimizeResult:
    """What `minimize` found, under the names that SciPy uses.

    Attributes:
        x: the answer, of the shape of x0.
        success: whether the gradient at x, or the gradient mapping if there is a projection or a
            proximal map, is within its standard error.
        message: a sentence on how it ended.
        nfev: how many gradients were asked for, earlier runs included.
        grad: the gradient at x, denoised; NaN where the run ended early.
        std: standard error of every coordinate of `grad`; NaN where it is not known.
        history: (nfev,), the length of every noisy gradient, in the order of the calls.
    """

    x: Float64
    success: bool
    message: str
    nfev: int
    grad: Float64
    std: float
    history: Float64
    _path: _Path

    def __repr__(self) -> str:
        names = ("message", "success", "nfev", "x", "grad", "std")
        rows = {name: getattr(self, name) for name in names}
        with np.printoptions(threshold=10):
            return "\n".join(f"{name:>7s}: {value}" for name, value in rows.items())


class MinimizeError(RuntimeError):
    """A call to the gradient failed; `result` is the best point so far."""

    def __init__(self, result: MinimizeResult) -> None:
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
    project: Project | None = None,
    prox: Prox | None = None,
    L: float | None = None,
    rng: np.random.Generator | None = None,
    progress: bool = False,
    callback: Callable[[Float64, int], object] | None = None,
    resume: MinimizeResult | None = None,
) -> MinimizeResult:
    r"""Minimise a smooth function of which only noisy gradients can be had.

    $$\operatorname{argmin}_x\ f(x) + \psi(x), \qquad \mathrm{E}\,\text{gradient}(x) = \nabla f(x)$$

        result = minimize(gradient, x0, calls=500)
        result.x, result.grad, result.std, result.message

    There is nothing to tune: it is stochastic gradient descent that finds its own step and
    averages the last part of its path (`coco_denoiser.descent` says how). The steps are not
    denoised; the Gaussian model of `Denoiser` gives the gradient at the answer and its error. L is
    not needed, and no calls are spent on estimating it: the curvature at x0 may be far from the
    one that matters. If you know L, it improves the estimate of the gradient at the answer; the
    answer itself does not depend on it, so that a loose L does no harm.

    The first step is 10% of the length of x0, or 0.1 if x0 is zero. If the minimum is far nearer
    than that, start from a point whose size says so.

    Args:
        gradient: returns a noisy gradient at x, of the shape of x; called as gradient(x), or as
            gradient(x, rng) if it takes a generator.
        x0: the starting point, of any shape.
        calls: how many gradients may be asked for.
        project: project(x) returns the nearest point of a set that the answer must be in.
        prox: prox(x, step) returns the minimiser z of psi(z) + |z - x|^2 / (2 step), for a penalty
            psi of which f has no part.
        L: upper bound on the curvature of f, if known, for `grad` and `std`. Err upwards.
        rng: passed on to `gradient`, for which it must be given if it takes a generator.
        progress: whether to show the progress on the standard error stream.
        callback: called after every call with the answer so far and the number of calls; if it
            returns True, the run ends.
        resume: an earlier result, or that of an error, to go on from. The start is then its own,
            and so are L and the projection or proximal map, unless they are passed again. A result
            that was pickled has lost the map, which must then be passed.

    Raises:
        MinimizeError: if `gradient` fails, or returns NaN, infinity or another shape.
    """
    _check_call(gradient, x0)
    start = check.finite_array("x0", x0)
    budget = check.count("calls", calls, optional=False) or 1
    known = None if L is None else check.positive("L", L)
    oracle = FunctionOracle(gradient, start.shape[-1] if start.ndim else 1)
    if oracle.draws and not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng must be a numpy.random.Generator, which gradient(x, rng) takes, got {rng!r}."
        )
    path = _open(start, known, proximal_map(project, prox), resume)
    end, due = len(path.history) + budget, 0.0

    def ask(point: Float64) -> Float64:
        path.history.append(math.nan)
        try:
            g = oracle.oracle(point.reshape(start.shape), rng)  # type: ignore[arg-type]
            if not np.isfinite(g).all():
                raise ValueError(f"gradient must be finite, got {g}.")  # noqa: TRY301
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": .")
            raise MinimizeError(stop(f"call {len(path.history)} failed: {reason}.")) from error
        flat = np.asarray(g.reshape(-1), np.float64)
        path.history[-1] = _length(flat)
        return flat

    def stop(message: str) -> MinimizeResult:
        unknown = np.full(start.size, np.nan)
        return _result(path, start.shape, path.answer(), unknown, math.nan, message)

    def show(last: str = "") -> None:
        line = f"minimize: {len(path.history)} of {end} calls"
        if path.recent:
            theta, std = path.estimate()
            line += f", |gradient| {_length(theta):.3g} ± {math.sqrt(theta.size) * std:.2g}"
        sys.stderr.write(f"\r{line:60s}{last}")
        sys.stderr.flush()

    try:
        while len(path.history) < end - 1:
            path.step(ask(path.x))
            asked = len(path.history)
            if progress and time.monotonic() >= due:
                due = time.monotonic() + _SHOWN
                show()
            if path.runs_away:
                return stop(
                    f"diverged after {asked} calls: far from x0 the gradients are as long as at "
                    "the start, so that the objective seems unbounded below."
                )
            if callback is not None and callback(path.answer().reshape(start.shape), asked):
                return stop(f"the callback ended it after {asked} calls.")
        answer = path.answer()
        path.recent.append((answer, ask(answer)))
        theta, std = path.estimate()
    finally:
        if progress:
            show("\n")
    within = path.is_stationary(answer, theta, std)
    found = _TOO_FEW if math.isnan(std) else _WITHIN if within else _LARGER
    message = f"used all {len(path.history)} calls; {found}"
    return _result(path, start.shape, answer, theta, std, message, success=within)


def proximal_map(project: Project | None, prox: Prox | None) -> Prox | None:
    """Return a projection or a proximal map as a function of the point and the step."""
    if project is not None and prox is not None:
        raise ValueError("pass project or prox, not both: a proximal step includes the projection.")
    return prox if project is None else lambda x, _: project(x)


def _check_call(gradient: object, x0: object) -> None:
    """Say what `minimize` takes, to those who call it as SciPy's."""
    if callable(x0):
        got = f"the function {x0!r} as x0"
    elif not callable(gradient):
        got = f"{gradient!r} as gradient"
    else:
        return
    raise TypeError(
        f"minimize(gradient, x0, calls=500) takes one function, which returns a noisy gradient at "
        f"x, and no objective; got {got}."
    )


def _open(start: Array, L: float | None, map_: Prox | None, resume: MinimizeResult | None) -> _Path:
    """Return a new path, or the one of an earlier result, with what is new of L and the map."""
    x = start.reshape(-1).astype(np.float64)
    path = _Path.begin(x)
    if resume is not None:
        earlier = resume._path  # noqa: SLF001
        path = deepcopy(earlier)
        path.prox = earlier.prox
    if path.x.size != x.size:
        raise ValueError(f"x0 must have the size of resume.x, {path.x.size}, got {x.size}.")
    path.L = L or path.L
    if map_ is not None:
        path.constrained = True
        path.prox = lambda z, step: np.asarray(
            map_(z.reshape(start.shape), step), dtype=np.float64
        ).reshape(z.shape)
    elif path.constrained and path.prox is None:
        raise ValueError(
            "project or prox must be passed again: resume is of a run with one, and was saved "
            "without it."
        )
    return path


def _result(
    path: _Path,
    shape: tuple[int, ...],
    x: Float64,
    g: Float64,
    std: float,
    message: str,
    *,
    success: bool = False,
) -> MinimizeResult:
    x, g, history = x.reshape(shape).copy(), g.reshape(shape), np.array(path.history)
    return MinimizeResult(x, success, message, len(history), g, std, history, path)
