# The functions of the compiled core, for type checkers.
from collections.abc import Callable
from typing import Literal, TypeAlias

from coco_denoiser.models.base import Limits, Model
from coco_denoiser.problem import Problem
from coco_denoiser.solution import Answer, Status
from coco_denoiser.typing import Array, Float64
from coco_denoiser.window import Estimate

# A method's name, or a function of residuals, bounds and precisions.
Way: TypeAlias = str | Callable[[Float64, Float64, Float64], tuple[Float64, int]]

UNCERTAINTY: float  # of a distance, relative to the size of its points

def has_avx2() -> bool: ...
def measure(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    centre: float,
    limit: float,
    skip: int,
    out: Float64,
) -> None: ...
def commit(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    centre: float,
    slot: int,
    average: tuple[Float64, float, bool] | None,
    out: Array,
) -> None: ...

class Window:
    slots: int | None
    folds: bool
    points: Array | None
    residuals: Array | None
    tables: Float64
    all_variances: Float64
    count: int
    members: int
    next: int
    newest: int
    d: int
    centre: float
    leaving: int
    work: Workspace
    def __init__(self, slots: int | None, folds: bool = ...) -> None: ...
    def hold(self, tables: Float64, variances: Float64, *counts: int) -> None: ...
    def distances(self, centre: float) -> Float64: ...
    def fold(self, limits: Limits) -> tuple[int, int, float, float, float] | None: ...
    def admit(
        self, sums: Float64, variance: float, limits: Limits, merged: Float64 | None
    ) -> None: ...
    def settle(self, limits: Limits) -> None: ...

class Workspace:
    least: float
    def problem(self) -> tuple[Float64, Float64, Float64]: ...
    def answer(self) -> Answer: ...
    def weights(self, i: int) -> tuple[Float64, float, float, int, str, Status]: ...
    def solve(self, method: Way = ...) -> None: ...

def status(gap: float, violation: float, tol: float, moved: bool, exhausted: bool) -> Status: ...
def solve(problem: Problem, tol: float, max_iter: int | None, method: Way) -> Answer: ...
def average(problem: Problem, multipliers: Float64, within: float) -> Answer: ...
def step(
    window: Window,
    x: Array,
    g: Array,
    theta: Array,
    variance: float,
    limit: float,
    limits: Limits,
    model: Model,
    before: Estimate | None,
) -> Estimate | Literal[True] | None: ...
def workspace(window: Window, limits: Limits, model: Model) -> Workspace: ...
def certify(problem: Problem, phi: Float64, multipliers: Float64) -> tuple[float, float]: ...
def distances(vectors: Float64) -> Float64: ...
def fits(points: Float64, gradients: Float64, c: float, limit: float) -> bool: ...

class Batch:
    gradients: Float64
    residuals: Float64
    coordinates: Float64
    bounds: Float64
    precisions: Float64
    scale: float
    least: float
    def __init__(
        self, points: Float64, gradients: Float64, variances: Float64, c: float, r: float
    ) -> None: ...
    def solve(self, tol: float, max_iter: int | None) -> tuple[Float64, Answer]: ...

def repair(batch: Batch, gradients: Float64, tol: float) -> tuple[bool, float]: ...

class Fdpg:
    def __init__(self, problem: Problem, dual: Float64, restart: bool) -> None: ...
    def iterate(self, count: int) -> None: ...
