"""Small versions of the experiments, which need no data from outside."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coco_denoiser.paper.experiments import logistic
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.experiment import Experiment
from coco_denoiser.paper.problems import Dataset

SMALL: dict[str, dict[str, Any]] = {
    "constraint-tightness": {},
    "mse-vs-variance": {"runs": 6, "most_points": 4, "variances": (0.0, 100.0)},
    "elementwise-mse": {"runs": 12},
    "mse-vs-distance": {"runs": 300},
    "logistic-fourclass": {"runs": 3, "calls": 40},
    "logistic-mushrooms-published": {"runs": 3, "calls": 40},
    "logistic-mushrooms": {"runs": 3, "calls": 40},
    "fold": {"runs": 2},
    "warm-start": {"runs": 3, "iterations": 200},
    "constraints": {
        "runs": 2,
        "slow_runs": 2,
        "calls": 10,
        "steps": (0.1, 1.0),
        "problems": ("box", "lasso", "quadratic"),
        "frank_wolfe": ("traffic",),
    },
    "gaussian": {
        "runs": 3,
        "calls": 40,
        "steps": (0.1, 1.0, 3.0),
        "problems": ("quadratic", "least squares"),
    },
    **{
        f"rivals-{problem}": {"runs": 2, "tuning_runs": 2, "calls": 10, "steps": (0.25, 1.0, 8.0)}
        for problem in ("quadratic", "fourclass", "mushrooms", "breast-cancer")
    },
}


def small(name: str) -> Experiment:
    """Return an experiment of a size that takes a moment."""
    return replace(EXPERIMENTS[name], **SMALL.get(name, {"runs": 3}))


@pytest.fixture(scope="module")
def own_fourclass() -> Iterator[None]:
    """Put two overlapping clouds in the place of fourclass, which may not be there."""
    rng = np.random.default_rng(5)
    labels = np.where(rng.random(120) < 0.5, -1.0, 1.0)
    features = rng.normal(size=(120, 2)) * 40 + 80 + 30 * labels[:, None] * np.array([1.0, -1.0])
    data = Dataset("fourclass", features, labels)
    logistic.regression.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(logistic._SOURCES, "fourclass", lambda: data)
        yield
    logistic.regression.cache_clear()
