"""The experiments, in the order in which they are run and shown."""

from coco_denoiser.experiments import (
    constraints,
    counterexample,
    elementwise_mse,
    fewer_constraints,
    fold,
    gaussian,
    logistic,
    mse_vs_distance,
    mse_vs_variance,
    rivals,
    synthetic,
    tightness,
    warm_start,
)
from coco_denoiser.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *synthetic.EXPERIMENTS[:2],
        *logistic.EXPERIMENTS,
        mse_vs_variance.EXPERIMENT,
        elementwise_mse.EXPERIMENT,
        counterexample.EXPERIMENT,
        tightness.EXPERIMENT,
        mse_vs_distance.EXPERIMENT,
        warm_start.EXPERIMENT,
        *synthetic.EXPERIMENTS[2:],
        fold.EXPERIMENT,
        gaussian.EXPERIMENT,
        *rivals.EXPERIMENTS,
        fewer_constraints.EXPERIMENT,
        constraints.EXPERIMENT,
    )
}
