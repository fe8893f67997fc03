"""Experiments: every figure of the paper, recomputed, with every claim checked."""
