"""Claims: a sentence of the paper, a number, a threshold from the statistics, a verdict.

A comparison is a mean difference with its standard error. Divided by it, the difference is a
t statistic, and the threshold is the quantile that chance alone exceeds once in a thousand
times, corrected for the number of comparisons that the claim makes (Bonferroni). So no
threshold is a matter of taste.
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


class Verdict(Enum):
    """What the numbers say of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not resolved"  # the runs are too few to tell


@dataclass(frozen=True)
class Claim:
    """What is said, what was measured, and the verdict.

    Attributes:
        sentence: the claim.
        measure: what the number is.
        number: what came out.
        relation: "<=" or ">=", how the number must compare with the threshold.
        threshold: from the standard errors, or from theory where the claim is exact.
        verdict: whether it does.
        theory: whether the claim is proved, so that it must hold at any size.
        note: why it does not hold, if that is known.
    """

    sentence: str
    measure: str
    number: float
    relation: str
    threshold: float
    verdict: Verdict
    theory: bool = False
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return what `claims.json` holds; JSON has no infinity, so it is null there."""
        content = asdict(self) | {"verdict": self.verdict.value}
        for name in ("number", "threshold"):
            content[name] = content[name] if math.isfinite(content[name]) else None
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Claim":
        """Read what `as_dict` wrote."""
        numbers = {
            name: math.inf if content[name] is None else content[name]
            for name in ("number", "threshold")
        }
        return cls(**{**content, **numbers, "verdict": Verdict(content["verdict"])})


def critical(comparisons: int, runs: int) -> float:
    """Return the t statistic that chance exceeds once in a thousand claims of this many."""
    if runs < 2:
        return math.inf
    return float(stats.t.isf(LEVEL / max(comparisons, 1), runs - 1))


def increases(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    measure: str = "smallest difference, in standard errors",
    note: str = "",
) -> Claim:
    """Claim that every difference is positive: shown, refuted by one of them, or open."""
    t = _statistics(differences)
    threshold = critical(t.size, runs)
    lowest = float(t.min())
    verdict = Verdict.OPEN
    if lowest >= threshold:
        verdict = Verdict.HOLDS
    elif lowest <= -threshold:
        verdict = Verdict.FAILS
    return _claim(sentence, measure, lowest, ">=", threshold, verdict, note=note)


def somewhere_negative(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    measure: str = "smallest difference, in standard errors",
) -> Claim:
    """Claim that one of the differences is negative: shown, refuted by all of them, or open."""
    t = _statistics(differences)
    threshold, lowest = critical(t.size, runs), float(t.min())
    verdict = Verdict.OPEN
    if lowest <= -threshold:
        verdict = Verdict.HOLDS
    elif lowest >= threshold:
        verdict = Verdict.FAILS
    return _claim(sentence, measure, lowest, "<=", -threshold, verdict)


def nowhere_positive(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    theory: bool = False,
    measure: str = "largest difference, in standard errors",
    note: str = "",
) -> Claim:
    """Claim that no difference is positive: it holds unless one of them is, beyond chance."""
    t = _statistics(differences)
    return at_most(
        sentence, float(t.max()), critical(t.size, runs), measure=measure, theory=theory, note=note
    )


def agrees(
    sentence: str,
    differences: Sequence["Curve"],
    runs: int,
    *,
    theory: bool = False,
    measure: str = "largest deviation, in standard errors",
    note: str = "",
) -> Claim:
    """Claim that every difference is zero: it holds unless one of them is not, beyond chance."""
    t = np.abs(_statistics(differences))
    threshold = critical(2 * t.size, runs)
    return at_most(sentence, float(t.max()), threshold, measure=measure, theory=theory, note=note)


def at_most(
    sentence: str,
    number: float,
    threshold: float,
    *,
    measure: str,
    theory: bool = False,
    note: str = "",
) -> Claim:
    """Claim that a number does not exceed a threshold."""
    verdict = Verdict.HOLDS if number <= threshold else Verdict.FAILS
    return _claim(sentence, measure, number, "<=", threshold, verdict, theory=theory, note=note)


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
) -> Claim:
    note = "" if verdict is Verdict.HOLDS else note
    return Claim(sentence, measure, number, relation, threshold, verdict, theory, note)


def _statistics(differences: Sequence["Curve"]) -> NDArray[np.float64]:
    return np.concatenate([t_statistic(curve.mean, curve.sem) for curve in differences])


def t_statistic(mean: ArrayLike, sem: ArrayLike) -> NDArray[np.float64]:
    """Return mean / sem; 0 for 0 / 0, and for a single run, which cannot tell."""
    m, s = np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(sem, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num(m / s, nan=0.0, posinf=np.inf, neginf=-np.inf))
