"""COCO for JAX: an Optax gradient transformation, and the batch solver it is made of.

tx = optax.chain(coco_denoise(L=4.0, window=8), optax.adam(1e-2))
"""

try:
    import jax as _jax  # noqa: F401
    import optax as _optax  # noqa: F401  # Optax itself: imports are absolute
except ImportError as error:
    raise ImportError(
        "coco_denoiser.optax needs JAX and Optax. Install them with "
        "pip install 'coco-denoiser[jax]'."
    ) from error

from coco_denoiser.optax._curvature import hessian_bounds
from coco_denoiser.optax.batch import denoise
from coco_denoiser.optax.transformation import CocoState, FoldState, coco_denoise

__all__ = ["CocoState", "FoldState", "coco_denoise", "denoise", "hessian_bounds"]
