"""The models: what turns the tables of a window into weights. A model keeps its options only."""

from coco_denoiser.models.base import Bound, Model
from coco_denoiser.models.cocoercive import Cocoercive
from coco_denoiser.models.gaussian import Gaussian

__all__ = ["Cocoercive", "Gaussian", "Model", "choose"]


def choose(L: Bound | None, model: Model | None) -> Model:
    """Return the model that an interface was given; L alone stands for `Cocoercive(L)`."""
    if model is None:
        if L is None:
            raise ValueError(
                "Pass L for the paper's method, or model=Gaussian(), which needs none."
            )
        return Cocoercive(L)
    if not isinstance(model, Model):
        raise TypeError(
            f"model must be a model, such as Gaussian() or Cocoercive(L), got {model!r}."
        )
    if L is not None:
        raise ValueError(
            f"L is an option of the model: pass {type(model).__name__}(L=...) as model, and no L."
        )
    return model
