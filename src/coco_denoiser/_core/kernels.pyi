# The functions of the compiled core, for type checkers.
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from coco_denoiser.typing import Array, Float64

# A method's name, or a function of residuals, bounds and precisions.
Way: TypeAlias = str | Callable[[Float64, Float64, Float64], tuple[Float64, int]]

class Limits(Protocol):
    @property
    def centre(self) -> float: ...
    @property
    def radius(self) -> float: ...

class Settings(Protocol):
    most: int
    tol: float
    within: float

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

CONSTANTS: dict[str, Any]  # numbers, integral or not

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
    def hold(self, tables: Float64, variances: Float64) -> None: ...
    def distances(self, centre: float) -> Float64: ...
    def fold(self, limits: Limits) -> tuple[int, int, float, float, float] | None: ...
    def admit(
        self, sums: Float64, variance: float, limits: Limits, merged: Float64 | None
    ) -> None: ...
    def settle(self, limits: Limits) -> None: ...

class Workspace:
    K: int
    q: int
    steps: int
    active: int
    gap: float
    violation: float
    shift: float
    radius: float
    tol: float
    within: float
    least: float
    def __init__(self, K: int, most: int) -> None: ...
    def load(
        self,
        residuals: Float64,
        bounds: Float64,
        precisions: Float64,
        shares: Float64 | None = None,
    ) -> None: ...
    def problem(self, residuals: Float64, bounds: Float64, precisions: Float64) -> None: ...
    def answer(self, weights: Float64, phi: Float64, multipliers: Float64) -> None: ...
    def weights(self, i: int) -> Float64: ...
    @property
    def method(self) -> str: ...
    def solve(self, max_iter: int = ..., method: Way = ...) -> bool: ...

def solve(
    residuals: Float64,
    bounds: Float64,
    precisions: Float64,
    shares: Float64 | None,
    tol: float,
    max_iter: int,
    within: float,
    method: Way,
) -> tuple[Float64, Float64, Float64, int, bool, float, float, str]: ...
def average(
    residuals: Float64,
    bounds: Float64,
    precisions: Float64,
    shares: Float64 | None,
    multipliers: Float64,
    within: float,
) -> tuple[Float64, Float64, float, float]: ...
def step(
    window: Window,
    x: Array,
    g: Array,
    theta: Array,
    variance: float,
    limit: float,
    limits: Limits,
    model: Settings,
) -> bool | None: ...
def complete(
    window: Window, x: Array, g: Array, theta: Array, weights: Float64, limits: Limits
) -> None: ...
def workspace(window: Window, limits: Limits, model: Settings) -> Workspace: ...
def certify(
    residuals: Float64,
    bounds: Float64,
    precisions: Float64,
    shares: Float64,
    phi: Float64,
    multipliers: Float64,
) -> tuple[float, float]: ...
def distances(vectors: Float64) -> Float64: ...
def fits(points: Float64, gradients: Float64, c: float, limit: float) -> bool: ...

class Batch:
    residuals: Float64
    coordinates: Float64
    bounds: Float64
    precisions: Float64
    scale: float
    least: float
    def __init__(
        self, points: Float64, gradients: Float64, variances: Float64, c: float, r: float
    ) -> None: ...
    def solve(
        self, tol: float, max_iter: int, within: float
    ) -> tuple[Float64, Float64, Float64, int, float, float, bool, str] | None: ...
    def restore(self, move: Float64 | None, tol: float) -> tuple[Float64, bool, float]: ...

class Fdpg:
    def __init__(
        self,
        residuals: Float64,
        bounds: Float64,
        precisions: Float64,
        dual: Float64,
        restart: bool,
    ) -> None: ...
    def iterate(self, count: int) -> None: ...
