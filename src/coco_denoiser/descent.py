"""minimize(): from a noisy gradient and a budget of calls to a point, its gradient and its error.

The answer, the gradient there and its error are those of a `path`. A path that leads ever further
away along gradients that do not shrink is ended.
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coco_denoiser import _validation as check
from coco_denoiser.oracle import FunctionOracle, GradientFunction
from coco_denoiser.path import Path, Project, Prox, length
from coco_denoiser.typing import ArrayLike, Float64

_SHOWN = 0.2  # seconds between two lines of progress
_UNKNOWN = "the error of the gradient is not known."
_WITHIN = "the gradient is within its standard error."
_LARGER = "the gradient is still larger than its error: more calls would help."


@dataclass(frozen=True, repr=False)
class MinimizeResult:
    """What `minimize` found, under the names that SciPy uses.

    Attributes:
        x: the answer, of the shape of x0.
        success: whether all calls were made and the gradient at x, or the gradient mapping if there
            is a projection or a proximal map, is within its standard error.
        message: a sentence on how it ended.
        nfev: how many gradients were asked for, earlier runs included.
        grad: the gradient at x, denoised; NaN if none was seen.
        std: standard error of each coordinate of `grad`; NaN where the linear field of gradients
            does not hold, or calls are too few or coordinates too many to fit it.
        history: (nfev,), the length of every noisy gradient, in the order of the calls.
    """

    x: Float64
    success: bool
    message: str
    nfev: int
    grad: Float64
    std: Float64
    history: Float64
    _path: Path

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
    rng: np.random.Generator | None = None,
    progress: bool = False,
    callback: Callable[[Float64, int], object] | None = None,
    resume: MinimizeResult | None = None,
) -> MinimizeResult:
    r"""Minimise a smooth function of which only noisy gradients can be had.

    $$\operatorname{argmin}_x\ f(x) + \psi(x), \qquad \mathrm{E}\,\text{gradient}(x) = \nabla f(x)$$

    There is nothing to tune: stochastic gradient descent finds its own step, and a linear field of
    gradients is fitted to all calls. Where the field holds, its minimum is the answer, and it tells
    the gradient there with standard errors. Where it does not, as when the minimum moves, the
    answer and its gradient are averages over the last part of the path, and the errors are NaN.

    The first step is 10% of the length of x0, or 0.1 if x0 is zero. If the minimum is far nearer
    than that, start from a point whose size says so.

    Examples:
        >>> import numpy as np
        >>> from coco_denoiser import minimize
        >>> rng = np.random.default_rng(0)
        >>> result = minimize(lambda x: x - 1.0 + rng.normal(size=3), [10.0, 10.0, 10.0], calls=500)
        >>> bool(np.abs(result.x - 1.0).max() < 0.5), result.nfev
        (True, 500)

    Args:
        gradient: returns a noisy gradient at x, of the shape of x; called as gradient(x), or as
            gradient(x, rng) if it takes a generator.
        x0: the starting point, of any shape.
        calls: how many gradients may be asked for.
        project: project(x) returns the nearest point of a set that the answer must be in.
        prox: prox(x, step) returns the minimiser z of $\psi(z) + \|z - x\|^2 / (2\,\text{step})$,
            for a penalty $\psi$ that is not part of f.
        rng: passed on to `gradient`, for which it must be given if it takes a generator.
        progress: whether to show the progress on the standard error stream.
        callback: called after every call with the answer so far and the number of calls; if it
            returns True, the run ends. Every answer costs 17 fits, each $d^3$ operations.
        resume: an earlier result, or that of an error, to go on from. The start is then its own,
            and so is the projection or proximal map, unless it is passed again. A result that was
            pickled has lost the map, which must then be passed.

    Raises:
        MinimizeError: if `gradient` fails, or returns NaN, infinity or another shape.

    References:
        Ivgi, Hinder and Carmon, [DoG is SGD's best friend](https://arxiv.org/abs/2302.12022),
        2023: the step.
    """
    given: tuple[object, object] = (gradient, x0)
    if not callable(given[0]) or callable(given[1]):  # called as SciPy's
        raise TypeError(
            f"minimize(gradient, x0, calls=500) takes one function, which returns a noisy gradient "
            f"at x, and no objective; got {gradient!r} as gradient and {x0!r} as x0."
        )
    start = check.finite_array("x0", x0)
    budget = check.count("calls", calls, optional=False) or 1
    oracle = FunctionOracle(gradient, start.shape[-1] if start.ndim else 1)
    if oracle.draws and not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng must be a numpy.random.Generator, which gradient(x, rng) takes, got {rng!r}."
        )
    path = _open(start, proximal_map(project, prox), resume)
    end, due = len(path.history) + budget, 0.0
    try:
        for asked in range(len(path.history) + 1, end + 1):
            try:
                g = check.finite_array("gradient", oracle.oracle(path.point, rng))
            except Exception as error:
                path.history.append(math.nan)
                reason = f"{type(error).__name__}: {error}".rstrip(": .")
                raise MinimizeError(_result(path, f"call {asked} failed: {reason}.")) from error
            path.step(g)
            if progress and time.monotonic() >= due:
                due = time.monotonic() + _SHOWN
                _show(path, end)
            if path.runs_away:
                return _result(
                    path,
                    f"diverged after {asked} calls: far from x0 the gradients are as long as at "
                    "the start, so that the objective seems unbounded below.",
                )
            if callback is not None and callback(path.answer().x, asked):
                return _result(path, f"the callback ended it after {asked} calls.")
    finally:
        if progress:
            _show(path, end, "\n")
    return _result(path)


def _result(path: Path, ended: str | None = None) -> MinimizeResult:
    """Return what a path has found, and how it ended; None if all calls were made."""
    x, g, std, stationary = path.answer()
    known = np.isfinite(std).all()
    outcome = _WITHIN if stationary else _LARGER if known else _UNKNOWN
    nfev, success = len(path.history), stationary and ended is None
    message = ended or f"used all {nfev} calls; {outcome}"
    return MinimizeResult(x, success, message, nfev, g, std, np.array(path.history), path)


def _show(path: Path, end: int, last: str = "") -> None:
    found = path.answer()
    line = f"minimize: {len(path.history)} of {end} calls"
    if path.points:
        line += f", |gradient| {length(found.gradient):.3g} ± {length(found.std):.2g}"
    sys.stderr.write(f"\r{line:60s}{last}")
    sys.stderr.flush()


def proximal_map(project: Project | None, prox: Prox | None) -> Prox | None:
    """Return a projection or a proximal map as a function of the point and the step."""
    if project is not None and prox is not None:
        raise ValueError("pass project or prox, not both: a proximal step includes the projection.")
    return prox if project is None else lambda x, _: project(x)


def _open(start: Float64, prox: Prox | None, resume: MinimizeResult | None) -> Path:
    """Return a new path, or the one of an earlier result, with a new map if there is one."""
    path = Path(start) if resume is None else resume._path.copy()  # noqa: SLF001 - made here
    if path.x.size != start.size:
        raise ValueError(f"x0 must have the size of resume.x, {path.x.size}, got {start.size}.")
    path.shape = start.shape
    if prox is not None:
        path.prox, path.constrained, path.curvatures = prox, True, None  # it follows plain steps
    elif path.constrained and path.prox is None:
        raise ValueError(
            "project or prox must be passed again: resume is of a run with one, and was saved "
            "without it."
        )
    return path
