"""COCO for JAX: an Optax gradient transformation.

tx = optax.chain(coco_denoise(L=4.0), optax.sgd(0.1))
"""

try:
    import jax as _jax  # noqa: F401  # to say what is missing
    import optax as _optax  # noqa: F401  # Optax itself: imports are absolute
except ImportError as error:
    raise ImportError(
        "coco_denoiser.optax needs JAX and Optax. Install them with "
        "pip install 'coco-denoiser[jax]'."
    ) from error

from coco_denoiser.optax.state import CocoState
from coco_denoiser.optax.transform import coco_denoise, gaussian_denoise
from coco_denoiser.optax.tree import hessian_bounds

__all__ = ["CocoState", "coco_denoise", "gaussian_denoise", "hessian_bounds"]
