"""Claims: a sentence, its owner, a number, what it must be, a verdict.

A comparison is a mean difference with its standard error, and the chance of a wrong verdict is
one in a thousand:

    increases      every difference is positive: each of them is shown to be
    equivalent     every difference is within a margin: so is its whole confidence interval
    no_worse       the same, on one side: no difference exceeds the margin

If all comparisons must hold, it is enough to test each at that level. A single one refutes the
claim, and there the level is divided by their number (Bonferroni). What is neither shown nor
refuted has too few runs to judge, whichever way the numbers lean.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

if TYPE_CHECKING:
    from coco_denoiser.experiments.experiment import Curve

LEVEL = 1e-3
FEWEST = 5  # a standard error from fewer runs says nothing
MARGIN = 0.05  # "the same", where a sentence gives no other measure


class Verdict(Enum):
    """What the numbers say about a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "too few runs to judge"


@dataclass(frozen=True)
class Claim:
    """What is said, by whom, what was measured, and the verdict.

    Attributes:
        sentence: the claim.
        measure: what the number is.
        number: what came out.
        relation: "<=" or ">=", how the number must compare with the threshold.
        threshold: a quantile, a margin, or from theory where the claim is exact.
        verdict: whether it does.
        theory: whether the claim is proved, so that it is never refuted at any size.
        note: why it does not hold, if that is known; empty for another verdict.
        figure: the number of the paper's figure that shows it; None for a claim of ours.
    """

    sentence: str
    measure: str
    number: float
    relation: str
    threshold: float
    verdict: Verdict
    theory: bool = False
    note: str = ""
    figure: int | None = None

    @property
    def owner(self) -> str:
        """Whose claim it is: the paper's, or ours."""
        return "ours" if self.figure is None else "paper"

    def as_dict(self) -> dict[str, Any]:
        """Return what `claims.json` holds; JSON has no infinity, so it is null there."""
        content = {"owner": self.owner} | asdict(self) | {"verdict": self.verdict.value}
        for name in ("number", "threshold"):
            content[name] = content[name] if math.isfinite(content[name]) else None
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Claim":
        """Read what `as_dict` wrote."""
        fields = {name: value for name, value in content.items() if name != "owner"}
        for name in ("number", "threshold"):
            fields[name] = math.inf if fields[name] is None else fields[name]
        return cls(**{**fields, "verdict": Verdict(fields["verdict"])})


def critical(comparisons: int, runs: int) -> float:
    """Return the t statistic that chance exceeds once in a thousand claims of this many."""
    if runs < FEWEST:
        return math.inf
    return float(stats.t.isf(LEVEL / max(comparisons, 1), runs - 1))


def increases(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    measure: str = "smallest difference, in standard errors",
    note: str = "",
    theory: bool = False,
    figure: int | None = None,
) -> Claim:
    """Claim that every difference is positive: each is shown to be, one is not, or open."""
    t = _statistics(differences)
    lowest, each = float(t.min()), critical(1, runs)
    verdict = _verdict(shown=lowest >= each, refuted=lowest <= -critical(t.size, runs))
    return _claim(
        sentence, measure, lowest, ">=", each, verdict, theory=theory, note=note, figure=figure
    )


def somewhere_negative(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    measure: str = "smallest difference, in standard errors",
    note: str = "",
    figure: int | None = None,
) -> Claim:
    """Claim that one of the differences is negative: shown, refuted by all of them, or open."""
    t = _statistics(differences)
    threshold, lowest = -critical(t.size, runs), float(t.min())
    verdict = _verdict(shown=lowest <= threshold, refuted=lowest >= critical(1, runs))
    return _claim(sentence, measure, lowest, "<=", threshold, verdict, note=note, figure=figure)


def equivalent(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    margin: float = MARGIN,
    measure: str = "largest deviation that the runs leave possible, as a share",
    theory: bool = False,
    note: str = "",
    figure: int | None = None,
) -> Claim:
    """Claim that every difference is 0 within a margin: so is its interval, one is not, or open."""
    mean, sem = _moments(differences)
    return _within(
        sentence, np.abs(mean), sem, runs, margin, measure, theory=theory, note=note, figure=figure
    )


def no_worse(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    margin: float = MARGIN,
    measure: str = "largest excess that the runs leave possible, as a share",
    theory: bool = False,
    note: str = "",
    figure: int | None = None,
) -> Claim:
    """Claim that no difference exceeds a margin: no interval does, one is beyond it, or open."""
    mean, sem = _moments(differences)
    return _within(
        sentence, mean, sem, runs, margin, measure, theory=theory, note=note, figure=figure
    )


def at_most(
    sentence: str,
    number: float,
    threshold: float,
    *,
    measure: str,
    theory: bool = False,
    note: str = "",
    figure: int | None = None,
) -> Claim:
    """Claim that a number, which is exact, does not exceed a threshold."""
    verdict = Verdict.HOLDS if number <= threshold else Verdict.FAILS
    return _claim(
        sentence, measure, number, "<=", threshold, verdict, theory=theory, note=note, figure=figure
    )


def _within(
    sentence: str,
    mean: NDArray[np.float64],
    sem: NDArray[np.float64],
    runs: int,
    margin: float,
    measure: str,
    *,
    theory: bool,
    note: str,
    figure: int | None,
) -> Claim:
    """Compare the upper ends of confidence intervals with a margin, and the lower to refute."""
    exact = bool(np.all(sem == 0))
    reach = 0.0 if exact else critical(1, runs)
    sure = 0.0 if exact else critical(mean.size, runs)
    enough = math.isfinite(reach)
    highest = float(np.max(mean + reach * sem)) if enough else float(mean.max())
    beyond = enough and float(np.max(mean - sure * sem)) > margin
    verdict = _verdict(shown=enough and highest <= margin, refuted=beyond)
    return _claim(
        sentence, measure, highest, "<=", margin, verdict, theory=theory, note=note, figure=figure
    )


def _verdict(*, shown: bool, refuted: bool) -> Verdict:
    if shown:
        return Verdict.HOLDS
    return Verdict.FAILS if refuted else Verdict.OPEN


def _claim(
    sentence: str,
    measure: str,
    number: float,
    relation: str,
    threshold: float,
    verdict: Verdict,
    *,
    theory: bool = False,
    note: str = "",
    figure: int | None = None,
) -> Claim:
    note = note if verdict is Verdict.FAILS else ""
    return Claim(sentence, measure, number, relation, threshold, verdict, theory, note, figure)


def _moments(differences: Sequence["Curve"]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean = np.concatenate([curve.mean for curve in differences])
    return mean, np.concatenate([curve.sem for curve in differences])


def _statistics(differences: Sequence["Curve"]) -> NDArray[np.float64]:
    return np.concatenate([t_statistic(curve.mean, curve.sem) for curve in differences])


def t_statistic(mean: ArrayLike, sem: ArrayLike) -> NDArray[np.float64]:
    """Return mean / sem; 0 for 0 / 0, and for a single run, which cannot tell."""
    m, s = np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(sem, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num(m / s, nan=0.0, posinf=np.inf, neginf=-np.inf))
