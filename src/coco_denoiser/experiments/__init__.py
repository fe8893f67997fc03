"""Experiments: each module computes with `run` and draws with `plot`, and keeps the two apart."""


class ExperimentError(Exception):
    """An experiment cannot be done as asked; the message is one line, for the user."""
