"""Exact co-coercive denoising of stochastic gradients, in batch and in a stream."""

from coco_denoiser._version import __version__
from coco_denoiser.batch import denoise, solve
from coco_denoiser.descent import MinimizeError, MinimizeResult, minimize
from coco_denoiser.models import Cocoercive, Gaussian
from coco_denoiser.solution import ConvergenceError, ConvergenceWarning, Solution, Status
from coco_denoiser.stream import Denoiser

__all__ = [
    "Cocoercive",
    "ConvergenceError",
    "ConvergenceWarning",
    "Denoiser",
    "Gaussian",
    "MinimizeError",
    "MinimizeResult",
    "Solution",
    "Status",
    "__version__",
    "denoise",
    "minimize",
    "solve",
]
