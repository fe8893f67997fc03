"""The models: what turns the tables of a window into weights. A model keeps options only."""

from typing import Protocol

from coco_denoiser import _validation as check
from coco_denoiser.models.bounds import Bound, Limits
from coco_denoiser.models.cocoercive import Cocoercive
from coco_denoiser.models.gaussian import Gaussian
from coco_denoiser.solution import Solution
from coco_denoiser.typing import Float64
from coco_denoiser.window import Estimate, Window


class Model(Protocol):
    """What turns a window into weights: functions of tables and numbers.

    Attributes:
        name: what users call it.
        window: how many observations are kept unless they say otherwise.
        folds: whether an observation may stand for several.
        tol: what an answer must reach.
        within: by what share of it an answer may break a bound.
        most: up to how many observations Newton's method in the core answers; 0 for never.
        settings: what it was made with, by name.
        fixed: what `limits` returns, if that never changes.
    """

    name: str
    window: int
    folds: bool
    tol: float
    within: float
    most: int
    settings: dict[str, object]
    fixed: Limits | None

    def limits(self, sign: float) -> Limits:
        """Ask for what may change from step to step; called once for every observation.

        Args:
            sign: -1 if the objective is maximised, and its negative has the curvature assumed.
        """

    def estimate(self, window: Window, limits: Limits, before: Estimate | None = None) -> Estimate:
        """Return the weights of the newest observation of a window of two or more.

        Args:
            window: the tables, with the observation.
            limits: the curvature bounds.
            before: the estimate of the last step, to start from.
        """

    def solution(
        self, window: Window, limits: Limits, found: Estimate | None, g: Float64, h: Float64
    ) -> Solution:
        """Return what is known of all gradients, from the oldest to the newest.

        Args:
            window: the tables, after a step.
            limits: the curvature bounds of that step.
            found: its estimate; None if the window had one observation.
            g: (count, d), the gradients, in this order.
            h: (count, d), their residuals at the centre of the limits.
        """


def choose(
    name: str | None, L: Bound | None, mu: Bound, *, tol: float, method: str = "auto"
) -> Cocoercive | Gaussian:
    """Return the model that some settings ask for; refuse settings that it has no use for."""
    own = {"mu": mu or None, "method": None if method == "auto" else method}
    chosen = check.model(name, L, cocoercive=own)
    if chosen == "gaussian" or L is None:
        return Gaussian(L, tol=tol)
    return Cocoercive(L, mu, tol=tol, method=method)
