"""COCO for PyTorch: around any torch.optim optimizer, or between backward and step."""

try:
    import torch as _torch  # noqa: F401  # PyTorch itself: imports are absolute
except ImportError as error:
    raise ImportError(
        "coco_denoiser.torch needs PyTorch. Install it with pip install 'coco-denoiser[torch]'."
    ) from error

from coco_denoiser.torch.curvature import hessian_bounds
from coco_denoiser.torch.denoiser import Diagnostics, GradientDenoiser
from coco_denoiser.torch.optimizer import CocoOptimizer

__all__ = ["CocoOptimizer", "Diagnostics", "GradientDenoiser", "hessian_bounds"]
