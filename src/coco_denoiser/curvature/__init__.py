"""Where L and mu come from when nobody has told them.

From the data of a linear model (`linear_model`), from Hessian-vector products of any loss
(`spectrum`), or from the stream of gradients itself (`Denoiser(L="auto")`, `online.py`).
"""

from coco_denoiser.curvature.bounds import Curvature
from coco_denoiser.curvature.exact import linear_model
from coco_denoiser.curvature.krylov import spectrum

__all__ = ["Curvature", "linear_model", "spectrum"]
