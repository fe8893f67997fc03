"""A custom model: the newest gradient as a mean over near points."""

from coco_denoiser import Denoiser
from coco_denoiser.models import Model
from coco_denoiser.solution import Status
from coco_denoiser.window import Estimate


class Nearby(Model):
    """The mean over all points no further away than `reach`, each weighted by its precision."""

    def __init__(self, reach):
        self.reach = reach

    def estimate(self, window, *_):
        """Return weights for the observations of a window."""
        near = window.point_distances[window.newest] <= self.reach
        weights = near / window.variances
        weights /= weights.sum()
        return Estimate(weights, status=Status.ESTIMATED, method="nearby")


denoiser = Denoiser(model=Nearby(reach=0.5), window=8)
