"""The experiments, in the order in which they are run and shown."""

from coco_denoiser.paper.experiments import (
    constraints,
    counterexample,
    elementwise_mse,
    fold,
    gaussian,
    logistic,
    mse_vs_variance,
    pair_errors,
    rivals,
    synthetic,
    two_points,
    warm_start,
)
from coco_denoiser.paper.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *synthetic.SGD_AND_ADAM,
        *logistic.EXPERIMENTS,
        mse_vs_variance.EXPERIMENT,
        elementwise_mse.EXPERIMENT,
        counterexample.EXPERIMENT,
        two_points.EXPERIMENT,
        pair_errors.EXPERIMENT,
        warm_start.EXPERIMENT,
        *synthetic.OTHERS,
        fold.EXPERIMENT,
        gaussian.EXPERIMENT,
        *rivals.EXPERIMENTS,
        constraints.EXPERIMENT,
    )
}
