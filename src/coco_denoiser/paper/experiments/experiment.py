"""What an experiment is: its configuration, and methods that compute, gather, draw and claim.

    unit(i)  ->  arrays                   independent pieces of Monte Carlo, i = 0, 1, …
    gather(units)  ->  curves             tidy statistics: panel, series, x, mean, sem
    panels(curves), claims(curves)        what is drawn and what is said, from the curves alone

A unit is a pure function of the configuration and its number, so that units may be computed
anywhere, in any order, and again. `Experiment.run` computes all of them here and now; how the
command spreads them over processes and keeps them on disk is the business of `units.py`.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

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
class Experiment(ABC):
    """A configuration, as fields whose defaults are the paper's, and what is done with it.

    Two configurations that differ in anything share nothing on disk.

    Attributes:
        quick: what differs from the defaults under --quick.
        seconds: how long the paper's configuration takes on one core, about; for the time left.
    """

    quick: ClassVar[Mapping[str, Any]] = {}
    seconds: ClassVar[float] = 5.0
    seed: int = 0
    runs: int = 1

    @property
    @abstractmethod
    def name(self) -> str:
        """The name on the command line and of the folder."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What is compared with what, in a sentence."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the paper's figures that it recomputes; () if it is ours."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Return the configuration by name."""
        return asdict(self)

    def check(self) -> None:  # noqa: B027 - few need anything
        """Raise if something that is needed is missing, before any work."""

    def count(self) -> int:
        """Return the number of units."""
        return self.runs

    @abstractmethod
    def unit(self, index: int) -> Unit:
        """Compute one piece of Monte Carlo."""

    @abstractmethod
    def gather(self, units: Sequence[Unit]) -> Curves:
        """Return the curves of all units."""

    @abstractmethod
    def panels(self, curves: Curves) -> list[Panel]:
        """Return what is drawn."""

    @abstractmethod
    def claims(self, curves: Curves) -> list[Claim]:
        """Return what is claimed, and what came out."""

    def run(self) -> Curves:
        """Compute every unit, here and one by one, and gather them."""
        return self.gather([self.unit(index) for index in range(self.count())])


class Entry(NamedTuple):
    """An experiment that was run, with what came out, how long it took and when."""

    experiment: Experiment
    curves: Curves
    claims: list[Claim]
    seconds: float
    date: str


def generator(experiment: Experiment, name: str, index: int) -> np.random.Generator:
    """Return the random numbers of one run: of the seed, the name and the run's number alone."""
    key = (zlib.crc32(name.encode()), index)
    return np.random.default_rng(np.random.SeedSequence(experiment.seed, spawn_key=key))
