"""What turns a window of observations into weights: one model per file."""

from coco_denoiser.models.base import Averaging, Model, Snapshot

__all__ = ["Averaging", "Model", "Snapshot"]
