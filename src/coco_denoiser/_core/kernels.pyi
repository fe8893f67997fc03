# The functions of the compiled core, for type checkers.
from collections.abc import Sequence

from coco_denoiser.typing import Array, Float64

def has_avx2() -> bool: ...
def measure(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    limit: float,
    plan: Sequence[float],
    out: Float64,
) -> None: ...
def commit(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    centre: float,
    slot: int,
    average: tuple[Float64, float] | None,
    out: Array,
) -> None: ...
def merge(points: Array, residuals: Array, plan: Sequence[float]) -> None: ...
def smooth(
    points: Array,
    residuals: Array,
    x: Array,
    g: Array,
    centre: float,
    weight: float,
    shift: float,
    out: Array,
) -> None: ...
