"""Objectives with their oracles, and the data sets of the paper."""

from coco_denoiser.paper.problems.base import FiniteSum, Problem
from coco_denoiser.paper.problems.datasets import (
    Dataset,
    DatasetError,
    breast_cancer,
    fourclass,
    mushrooms,
    signed_labels,
)
from coco_denoiser.paper.problems.logistic import LogisticRegression
from coco_denoiser.paper.problems.quadratic import Quadratic

__all__ = [
    "Dataset",
    "DatasetError",
    "FiniteSum",
    "LogisticRegression",
    "Problem",
    "Quadratic",
    "breast_cancer",
    "fourclass",
    "mushrooms",
    "signed_labels",
]
