"""What an experiment is: seeded units of work, curves gathered from them, a drawing, claims.

    unit(config, i)  ->  arrays           independent pieces of Monte Carlo, i = 0, 1, …
    gather(config, units)  ->  curves     tidy statistics: panel, series, x, mean, sem
    panels(result), claims(result)        what is drawn and what is said, from the curves alone

A unit is a pure function of its configuration and its number, so that units may be computed
anywhere, in any order, and again. `Experiment.run` computes all of them here and now; how the
command spreads them over processes and keeps them on disk is the business of `units.py`.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from coco_denoiser.paper.experiments.claims import Claim
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.panels import Panel
from coco_denoiser.typing import Float64

Unit: TypeAlias = Mapping[str, Float64]

# The paper's figures in the order in which it numbers them: label in its source, and a name.
FIGURES = {
    "COCO_schematic": "the plug-in",
    "MSE_totalVsVariance": "error against noise, 1 to 10 points",
    "ElementwiseMSE": "error of each of 8 gradients",
    "synthetic_dataset_SGD&Adam_Performance": "SGD and Adam on a quadratic",
    "real_dataset": "logistic regression",
    "warm_starting": "the paper's solver and its warm start",
    "constraints_tightness": "how often a constraint is active",
    "theoretical_prob_constraints_sigma": "the same with twice the noise",
    "MSEvsDistance": "error against distance, L right and wrong",
    "ElementwiseMSE_SM": "error of each gradient, more instances",
    "MSE_singular_RndConfig_disposition": "the eight points in space",
    "Bias": "bias against distance",
    "COCOvstunedSStovariance": "COCO against smaller steps",
    "COCOvsOtherVR": "COCO against other variance reduction",
}


@dataclass(frozen=True)
class Config:
    """What is run. Two configurations that differ in anything share nothing on disk."""

    seed: int = 0
    runs: int = 1

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return asdict(self)


@dataclass(frozen=True)
class Result:
    """A configuration and the curves that came out of it."""

    config: Any
    curves: Curves


@dataclass(frozen=True)
class Experiment:
    """A family's functions, bound to one figure of the paper.

    Attributes:
        name: the name on the command line and of the folder.
        summary: what is compared with what, in a sentence.
        paper: the configuration of the paper.
        quick: what differs from it under --quick.
        unit, gather, panels, claims: see the module.
        numbers: the numbers of the paper's figures that it recomputes; () if it is ours.
        count: the number of units of a configuration.
        check: raises if something that is needed is missing, before any work.
        seconds: how long the paper's configuration takes on one core, about; for the time left.
    """

    name: str
    summary: str
    paper: Config
    quick: Mapping[str, Any]
    unit: Callable[[Any, int], Unit]
    gather: Callable[[Any, Sequence[Unit]], Curves]
    panels: Callable[[Result], list[Panel]]
    claims: Callable[[Result], list[Claim]]
    numbers: tuple[int, ...] = ()
    count: Callable[[Any], int] = lambda config: int(config.runs)
    check: Callable[[Any], object] = lambda _: None
    seconds: float = 5.0

    def run(self, config: Config) -> Result:
        """Compute every unit, here and one by one, and gather them."""
        units = [self.unit(config, index) for index in range(self.count(config))]
        return Result(config, self.gather(config, units))


class Entry(NamedTuple):
    """An experiment that was run, with what came out, how long it took and when."""

    experiment: Experiment
    result: Result
    claims: list[Claim]
    seconds: float
    date: str


def generator(config: Config, name: str, index: int) -> np.random.Generator:
    """Return the random numbers of one run: of the seed, the name and the run's number alone."""
    key = (zlib.crc32(name.encode()), index)
    return np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=key))
