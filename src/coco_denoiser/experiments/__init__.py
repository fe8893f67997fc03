"""Experiments: every figure of the paper, recomputed, with every claim checked."""


class ExperimentError(Exception):
    """An experiment cannot be done as asked; the message is one line, for the user."""
