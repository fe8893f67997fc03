"""The experiments, in the order in which they are run and shown."""

from coco_denoiser.experiments import (
    curvature_bounds,
    elementwise_mse,
    fewer_constraints,
    fold,
    fold_variance,
    gaussian,
    interpolation,
    logistic,
    mse_vs_distance,
    mse_vs_variance,
    rivals,
    synthetic,
    tightness,
    unknown_curvature,
    warm_start,
)
from coco_denoiser.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *synthetic.EXPERIMENTS[:2],
        *logistic.EXPERIMENTS,
        *mse_vs_variance.EXPERIMENTS,
        *elementwise_mse.EXPERIMENTS,
        *tightness.EXPERIMENTS,
        *mse_vs_distance.EXPERIMENTS,
        *warm_start.EXPERIMENTS,
        *synthetic.EXPERIMENTS[2:],
        *fold.EXPERIMENTS,
        *fold_variance.EXPERIMENTS,
        *gaussian.EXPERIMENTS,
        *rivals.EXPERIMENTS,
        *fewer_constraints.EXPERIMENTS,
        *interpolation.EXPERIMENTS,
        *unknown_curvature.EXPERIMENTS,
        *curvature_bounds.EXPERIMENTS,
    )
}
