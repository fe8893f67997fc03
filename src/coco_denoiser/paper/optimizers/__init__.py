"""The paper's baselines and others, as small NumPy classes that take an optional denoiser."""

from coco_denoiser.paper.optimizers.base import SGD, DenoiserLike, Optimizer, Schedule, decreasing
from coco_denoiser.paper.optimizers.driver import run, tail_average
from coco_denoiser.paper.optimizers.finite_sum import STRSAGA
from coco_denoiser.paper.optimizers.momentum import IGT, Adam, GradientEMA, HeavyBall, ScheduleFree
from coco_denoiser.paper.optimizers.proximal import (
    DualAveraging,
    FrankWolfe,
    GradientMean,
    project_l1_ball,
    project_simplex,
    soft_threshold,
)

__all__ = [
    "IGT",
    "SGD",
    "STRSAGA",
    "Adam",
    "DenoiserLike",
    "DualAveraging",
    "FrankWolfe",
    "GradientEMA",
    "GradientMean",
    "HeavyBall",
    "Optimizer",
    "Schedule",
    "ScheduleFree",
    "decreasing",
    "project_l1_ball",
    "project_simplex",
    "run",
    "soft_threshold",
    "tail_average",
]
