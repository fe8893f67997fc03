"""A custom model, and the four calls of a step: measure, admit, ask the model, commit."""

import math

import numpy as np

from coco_denoiser._core import kernels
from coco_denoiser.models.bounds import Limits
from coco_denoiser.solution import Status
from coco_denoiser.window import Estimate, Window


class Nearby:
    """The mean over all points no further away than `reach`, each weighted by its precision."""

    most = 0  # the core does not know this model
    tol = within = math.nan

    def __init__(self, reach):
        self.reach = reach

    def limits(self, _):
        """Return curvature bounds, which users may give as functions: this model has none."""
        return Limits(math.inf, -math.inf, 0.0, math.nan)  # residuals are the gradients

    def estimate(self, window, *_):
        """Return weights for the observations of a window."""
        near = window.point_distances[window.newest] <= self.reach
        weights = near / window.variances
        weights /= weights.sum()
        return Estimate(weights, std=math.nan, status=Status.ESTIMATED, method="nearby")


def denoised(points, gradients, model, K, largest=1e150):
    """Return the denoised gradients of a stream; NaN for those that are refused."""
    window, answers = Window(K), []
    for x, g in zip(points, gradients, strict=True):
        theta, limits = np.full_like(g, np.nan), model.limits(1.0)
        window.fit(x.shape, x.dtype)
        # True: `theta` is ready; False: the model answers; None: refused, and nothing has changed.
        ready = kernels.step(window, x, g, theta, 1.0, largest, limits, model)
        if ready is False:
            weights = model.estimate(window, limits).weights
            kernels.complete(window, x, g, theta, weights, limits)
        answers.append(theta)
    return np.array(answers)
