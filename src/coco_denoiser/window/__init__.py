"""The sliding window of a stream: history, tables, vectors, and the engine that runs them."""

from coco_denoiser.window.engine import Engine, Step

__all__ = ["Engine", "Step"]
