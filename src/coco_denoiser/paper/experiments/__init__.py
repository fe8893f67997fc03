"""Experiments: every figure of the paper, recomputed, with every claim checked."""

from coco_denoiser.paper.files import RefusedError


class ExperimentError(RefusedError):
    """An experiment cannot be done as asked; the message is one line, for the user."""
