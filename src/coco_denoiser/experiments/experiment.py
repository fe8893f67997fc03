"""What an experiment is: seeded units of work, curves gathered from them, a drawing, claims.

    unit(config, i)  ->  arrays           independent pieces of Monte Carlo, i = 0, 1, …
    gather(config, units)  ->  curves     tidy statistics: panel, series, x, mean, sem
    panels(result), claims(result)        what is drawn and what is said, from the curves alone

A unit is a pure function of its configuration and its number, so that units may be computed
anywhere, in any order, and again. `Experiment.run` computes all of them here and now; how the
command spreads them over processes and keeps them on disk is the business of `units.py`.
"""

import csv
import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from coco_denoiser.experiments.claims import Claim
from coco_denoiser.experiments.panels import Panel
from coco_denoiser.typing import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Unit: TypeAlias = Mapping[str, Float64]

BEYOND = "none: beyond the paper"  # the figure of an experiment that the paper does not have
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


class Curve(NamedTuple):
    """A mean and its standard error for each x; the error of what is exact is 0."""

    x: Float64
    mean: Float64
    sem: Float64


class Curves(dict[tuple[str, str], Curve]):
    """Curves by (panel, series), in the order of drawing; `curves.csv` is this and no more."""

    def add(self, panel: str, series: str, x: ArrayLike, samples: Float64) -> None:
        """Add the statistics of samples (runs, len(x)); one run alone has no standard error."""
        runs = len(samples)
        spread = np.full(samples.shape[1], np.nan)
        if runs > 1:
            spread = samples.std(axis=0, ddof=1) / np.sqrt(runs)
        self.exact(panel, series, x, samples.mean(axis=0), spread)

    def exact(
        self, panel: str, series: str, x: ArrayLike, mean: ArrayLike, sem: ArrayLike = 0.0
    ) -> None:
        """Add a curve whose mean, and standard error if any, are known."""
        at, height = np.atleast_1d(np.asarray(x, float)), np.atleast_1d(np.asarray(mean, float))
        self[panel, series] = Curve(at, height, np.broadcast_to(np.asarray(sem, float), at.shape))

    def series(self, panel: str) -> list[str]:
        """Return the names of the series of a panel."""
        return [series for name, series in self if name == panel]

    def to_csv(self) -> bytes:
        """Return the table `panel,series,x,mean,sem`, every number to its last digit."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("panel", "series", "x", "mean", "sem"))
        for (panel, series), curve in self.items():
            for row in zip(*(column.tolist() for column in curve), strict=True):
                table.writerow((panel, series, *map(repr, row)))
        return text.getvalue().encode()

    @classmethod
    def from_csv(cls, content: bytes) -> "Curves":
        """Read such a table."""
        rows: dict[tuple[str, str], list[list[float]]] = {}
        for panel, series, *numbers in list(csv.reader(io.StringIO(content.decode())))[1:]:
            rows.setdefault((panel, series), []).append([float(number) for number in numbers])
        curves = cls()
        for key, table in rows.items():
            curves[key] = Curve(*np.array(table).T)
        return curves


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
        figure: the figure of the paper, by the label in its source.
        summary: what is compared with what, in a sentence.
        paper: the configuration of the paper.
        quick: what differs from it under --quick.
        count: the number of units of a configuration.
        unit, gather, panels, claims: see the module.
        check: raises if something that is needed is missing, before any work.
        seconds: what the units took on one core of our machine, at full size and under --quick.
    """

    name: str
    figure: str
    summary: str
    paper: Config
    quick: Mapping[str, Any]
    count: Callable[[Any], int]
    unit: Callable[[Any, int], Unit]
    gather: Callable[[Any, Sequence[Unit]], Curves]
    panels: Callable[[Result], list[Panel]]
    claims: Callable[[Result], list[Claim]]
    check: Callable[[Any], None] = lambda _: None
    seconds: tuple[float, float] = (25.0, 4.0)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the paper's figures that it recomputes; () if it is ours."""
        labels = [part.split(" (")[0] for part in self.figure.split(", ")]
        order = list(FIGURES)
        return tuple(order.index(label) + 1 for label in labels if label in FIGURES)

    def run(self, config: Config) -> Result:
        """Compute every unit, here and one by one, and gather them."""
        units = [self.unit(config, index) for index in range(self.count(config))]
        return Result(config, self.gather(config, units))

    def plot(self, result: Result) -> "Figure":
        """Draw the panels."""
        from coco_denoiser.experiments.drawing import draw

        return draw(self.panels(result), result.curves)


def generator(config: Config, name: str, index: int) -> np.random.Generator:
    """Return the random numbers of one run: of the seed, the name and the run's number alone."""
    key = (zlib.crc32(name.encode()), index)
    return np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=key))
