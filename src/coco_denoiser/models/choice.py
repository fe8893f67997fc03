"""Which model a user has asked for: by its name, or by giving L or not."""

from typing import Literal, TypeAlias

from coco_denoiser import _validation as check
from coco_denoiser.models.cocoercive import Bound, CoCoercive
from coco_denoiser.models.gaussian import Gaussian

ModelName: TypeAlias = Literal["gaussian", "cocoercive"]
WindowSize: TypeAlias = int | Literal["auto"] | None
GAUSSIAN_WINDOW = 32  # chosen by measurement: docs/gaussian.md


def choose(
    model: str | None,
    L: Bound | None,
    mu: Bound,
    *,
    tol: float,
    noise_std: float | None,
) -> CoCoercive | Gaussian:
    """Return the model that some settings ask for; refuse settings that it has no use for.

    Args:
        model: "gaussian", "cocoercive", or None: co-coercive if L is given, else Gaussian.
        L: upper bound on the curvature, a function, or None.
        mu: lower bound, or a function.
        tol: relative gap to reach.
        noise_std: standard deviation of the noise, if it is known.
    """
    name = named(model, given=L is not None)
    if name == "cocoercive":
        if L is None:
            raise ValueError(
                "model='cocoercive' needs L, an upper bound on the curvature. Pass L, or use "
                "model='gaussian', which needs none."
            )
        check.absent("noise_std", noise_std, "model='gaussian'")
        return CoCoercive(L, mu, tol=tol)
    if callable(mu) or mu != 0.0:
        raise ValueError(f"mu goes with model='cocoercive' only, got mu={mu}. Leave it out.")
    return Gaussian(L=L, noise_std=noise_std, tol=tol)


def named(model: str | None, *, given: bool) -> ModelName:
    """Return the name of the model, from what was asked for and whether L is given."""
    if model is None:
        return "cocoercive" if given else "gaussian"
    found = check.one_of("model", model, ("gaussian", "cocoercive"))
    return "gaussian" if found == "gaussian" else "cocoercive"


def size(window: WindowSize, model: CoCoercive | Gaussian, otherwise: int) -> int | None:
    """Return how many observations are kept: "auto" is a default of the model's own."""
    if window == "auto":
        return GAUSSIAN_WINDOW if isinstance(model, Gaussian) else otherwise
    return check.count("window", window, optional=True)
