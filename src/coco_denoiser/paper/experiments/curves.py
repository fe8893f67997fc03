"""What comes out of an experiment: a mean and its standard error along every curve."""

import csv
import io
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from coco_denoiser.typing import Float64


class Curve(NamedTuple):
    """A mean and its standard error for each x; the error of what is exact is 0."""

    x: Float64
    mean: Float64
    sem: Float64

    def part(self, which: slice) -> "Curve":
        """Return the curve at some of its x."""
        return Curve(*(column[which] for column in self))

    def shifted(self, by: float | Float64) -> "Curve":
        """Return the curve moved up by this much."""
        return Curve(self.x, self.mean + by, self.sem)

    def times(self, factor: float | Float64) -> "Curve":
        """Return the curve, scaled."""
        return Curve(self.x, self.mean * factor, self.sem * np.abs(factor))

    def over(self, scale: float | Float64) -> "Curve":
        """Return the curve in units of a positive scale."""
        return Curve(self.x, self.mean / scale, self.sem / scale)

    def log(self) -> "Curve":
        """Return the logarithms of what `Curves.ratios` added."""
        return Curve(self.x, np.log(self.mean), self.sem / self.mean)

    def minus(self, other: "Curve") -> "Curve":
        """Return the difference to a curve of independent runs."""
        return Curve(self.x, self.mean - other.mean, np.hypot(self.sem, other.sem))

    def falls(self) -> "Curve":
        """Return by how much the curve falls from each x to the next, of independent runs."""
        return self.part(slice(-1)).minus(self.part(slice(1, None)))


class Curves(dict[tuple[str, str], Curve]):
    """Curves by (panel, series), in the order of drawing; `curves.csv` is this and no more."""

    def add(self, panel: str, series: str, x: ArrayLike, samples: Float64) -> None:
        """Add the statistics of samples (runs, len(x)); one run alone has no standard error."""
        runs = len(samples)
        spread = np.full(samples.shape[1], np.nan)
        if runs > 1:
            spread = samples.std(axis=0, ddof=1) / np.sqrt(runs)
        self.exact(panel, series, x, samples.mean(axis=0), spread)

    def ratios(self, panel: str, series: str, x: ArrayLike, logs: Float64) -> None:
        """Add the geometric means of samples whose logarithms (runs, len(x)) are given.

        The standard error is that of the mean logarithm, times the mean: what is judged is the
        logarithm, which `Curve.log` returns.
        """
        self.add(panel, series, x, logs)
        at, mean, sem = self[panel, series]
        self[panel, series] = Curve(at, np.exp(mean), sem * np.exp(mean))

    def exact(
        self, panel: str, series: str, x: ArrayLike, mean: ArrayLike, sem: ArrayLike = 0.0
    ) -> None:
        """Add a curve whose mean, and standard error if any, are known."""
        at, height = np.atleast_1d(np.asarray(x, float)), np.atleast_1d(np.asarray(mean, float))
        self[panel, series] = Curve(at, height, np.broadcast_to(np.asarray(sem, float), at.shape))

    def compare(self, panel: str, x: ArrayLike, samples: Mapping[str, Float64]) -> None:
        """Add samples (runs, len(x)) by series, and the differences of all pairs, run by run."""
        for series, values in samples.items():
            self.add(panel, series, x, values)
        for a, b in combinations(samples, 2):
            self.add(panel, f"{a} minus {b}", x, samples[a] - samples[b])

    def series(self, panel: str) -> list[str]:
        """Return the names of the series of a panel."""
        return [series for name, series in self if name == panel]

    def panel(self, panel: str) -> list[Curve]:
        """Return all curves of a panel."""
        return [self[panel, series] for series in self.series(panel)]

    def difference(self, panel: str, a: str, b: str) -> Curve:
        """Return the mean of a - b, whichever way round it was saved."""
        if (panel, f"{a} minus {b}") in self:
            return self[panel, f"{a} minus {b}"]
        return self[panel, f"{b} minus {a}"].times(-1.0)

    def relative(self, panel: str, a: str, b: str) -> Curve:
        """Return the mean of a - b as a share of b."""
        return self.difference(panel, a, b).over(self[panel, b].mean)

    def percent(self, panel: str, a: str, b: str) -> str:
        """Return by how much a is above b, in per cent of b."""
        return f"{self.relative(panel, a, b).mean[0]:+.1%}"

    def percents(self, panel: str, names: Iterable[str], base: str) -> str:
        """Return by how much each of some series is above one of them."""
        return ", ".join(self.percent(panel, name, base) for name in names)

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
