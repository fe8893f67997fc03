"""The experiments at the paper's sizes, in the order in which they are run and shown."""

from coco_denoiser.paper.experiments.constraints import Constraints
from coco_denoiser.paper.experiments.counterexample import Counterexample
from coco_denoiser.paper.experiments.elementwise_mse import ElementwiseError
from coco_denoiser.paper.experiments.experiment import Experiment
from coco_denoiser.paper.experiments.fold import Fold
from coco_denoiser.paper.experiments.gaussian import GaussianModel
from coco_denoiser.paper.experiments.logistic import Logistic
from coco_denoiser.paper.experiments.mse_vs_variance import ErrorByNoise
from coco_denoiser.paper.experiments.pair_errors import PairErrors
from coco_denoiser.paper.experiments.rivals import Rivals
from coco_denoiser.paper.experiments.synthetic import (
    SyntheticAdam,
    SyntheticSGD,
    TunedStep,
    VarianceReduction,
)
from coco_denoiser.paper.experiments.two_points import Tightness
from coco_denoiser.paper.experiments.warm_start import WarmStart

_ORDERED: tuple[Experiment, ...] = (
    SyntheticSGD(),
    SyntheticAdam(late=8),
    Logistic(runs=100, data="fourclass"),
    Logistic(published=True, offset=0.05),
    # What the paper means to run, from so far away that both regimes show.
    Logistic(offset=3.0),
    ErrorByNoise(),
    ElementwiseError(),
    Counterexample(),
    Tightness(runs=1),
    PairErrors(),
    WarmStart(),
    TunedStep(),
    VarianceReduction(),
    Fold(),
    GaussianModel(),
    Rivals(),
    Rivals(problem="fourclass", calls=400, start=1.0, adam_step=80 / 5656),
    Rivals(problem="mushrooms", calls=300, start=1.0, adam_step=0.1),
    Rivals(problem="breast-cancer", calls=300, start=1.0, adam_step=0.1),
    Constraints(),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ORDERED}
