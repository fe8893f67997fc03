"""Where L and mu come from if you do not know them.

From the data of a linear model (`linear_model`), or from Hessian-vector products of any loss
(`spectrum`). A stream of gradients needs neither with the Gaussian model (`models/gaussian.py`).
"""

from coco_denoiser.curvature.bounds import Curvature
from coco_denoiser.curvature.exact import linear_model
from coco_denoiser.curvature.krylov import spectrum

__all__ = ["Curvature", "linear_model", "spectrum"]
