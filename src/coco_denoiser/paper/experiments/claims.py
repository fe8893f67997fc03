"""Claims: a sentence, its owner, a number, what it must be, a verdict.

A comparison is a mean difference with its standard error, and the chance of a wrong verdict is
one in a thousand:

    increases      every difference is positive: each of them is shown to be
    equivalent     every difference is within a margin: so is its whole confidence interval
    no_worse       the same, on one side: no difference exceeds the margin
    ratio_at_most  the same for geometric means of ratios, by their logarithms
    seldom_above   few ratios exceed a limit, each tested both ways

If all comparisons must hold, it is enough to test each at that level. A single one refutes the
claim, and there the level is divided by their number (Bonferroni). What is neither shown nor
refuted has too few runs to judge, whichever way the numbers lean.

Doing no harm is easy for a method that does nothing. A sentence such as "the bias regime is not
compromised" is therefore judged with a premise, that something is gained: it holds only if the
premise does too.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from coco_denoiser.paper.experiments.curves import Curve
from coco_denoiser.typing import Float64

LEVEL = 1e-3
FEWEST = 5  # a standard error from fewer runs says nothing
MARGIN = 0.05  # "the same", where a sentence gives no other measure
_SMALLEST = "smallest difference, in standard errors"


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
    verdict: Verdict = Verdict.OPEN
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
    return float(-stdtrit(runs - 1, LEVEL / max(comparisons, 1)))


class ClaimOptions(TypedDict, total=False):
    """What may be said of a claim beside its sentence and its curves; see `Claim`.

    `provided` is the premise without which the sentence says nothing; `margin`, which only
    `equivalent` and `no_worse` have, is `MARGIN` unless it is given.
    """

    margin: float
    measure: str
    theory: bool
    note: str
    provided: Claim


@dataclass(frozen=True)
class Judge:
    """Makes claims from the results of a number of runs.

    Attributes:
        runs: how many there were.
        figure: the number of the paper's figure that shows it; None for claims of ours.
    """

    runs: int
    figure: int | None = None

    def increases(
        self, sentence: str, differences: Sequence[Curve], **about: Unpack[ClaimOptions]
    ) -> Claim:
        """Claim that every difference is positive: each is shown to be, one is not, or open."""
        t = t_statistic(*_moments(differences))
        lowest, each = float(t.min()), critical(1, self.runs)
        said = Claim(sentence, _SMALLEST, lowest, ">=", each)
        refuted = lowest <= -critical(t.size, self.runs)
        return self._judged(said, about, shown=lowest >= each, refuted=refuted)

    def premise(self, gain: str, differences: Sequence[Curve]) -> Claim:
        """Claim that something is gained, for claims that are to be `provided` this."""
        return self.increases("", differences, measure=gain)

    def decreases_somewhere(
        self, sentence: str, differences: Sequence[Curve], **about: Unpack[ClaimOptions]
    ) -> Claim:
        """Claim that one of the differences is negative: shown, refuted by all of them, or open."""
        t = t_statistic(*_moments(differences))
        threshold, lowest = -critical(t.size, self.runs), float(t.min())
        said = Claim(sentence, _SMALLEST, lowest, "<=", threshold)
        refuted = lowest >= critical(1, self.runs)
        return self._judged(said, about, shown=lowest <= threshold, refuted=refuted)

    def equivalent(
        self, sentence: str, differences: Sequence[Curve], **about: Unpack[ClaimOptions]
    ) -> Claim:
        """Claim that every difference is 0 within a margin: shown, one is not, or open."""
        mean, sem = _moments(differences)
        return self._within(sentence, "deviation", np.abs(mean), sem, about)

    def no_worse(
        self, sentence: str, differences: Sequence[Curve], **about: Unpack[ClaimOptions]
    ) -> Claim:
        """Claim that no difference exceeds a margin: shown, one is beyond it, or open."""
        return self._within(sentence, "increase", *_moments(differences), about)

    def ratio_at_most(
        self, sentence: str, ratios: Sequence[Curve], limit: float, **about: Unpack[ClaimOptions]
    ) -> Claim:
        """Claim that no ratio of `Curves.ratios` exceeds a limit: shown, one is beyond it, or open.

        A ratio is a geometric mean, so its logarithm is a mean of runs and has Student's t.
        """
        about.setdefault("measure", "largest ratio that the runs leave possible")
        about["margin"] = math.log(limit)
        found = self.no_worse(sentence, [ratio.log() for ratio in ratios], **about)
        return replace(found, number=float(np.exp(found.number)), threshold=limit)

    def seldom_above(
        self,
        sentence: str,
        ratios: Sequence[Curve],
        limit: float,
        share: float,
        **about: Unpack[ClaimOptions],
    ) -> Claim:
        """Claim that at most a share of the ratios exceeds a limit: shown, refuted, or open.

        Every ratio is tested both ways, at the level divided by their number. One that is shown
        neither to exceed the limit nor to respect it may do either.
        """
        mean, sem = _moments([ratio.log() for ratio in ratios])
        t, limit = critical(mean.size, self.runs), math.log(limit)
        enough = math.isfinite(t)
        reach = t * sem if enough else 0.0
        surely, perhaps = (float(np.mean(mean + side > limit)) for side in (-reach, reach))
        said = Claim(sentence, "largest share that the runs leave possible", perhaps, "<=", share)
        shown, refuted = perhaps <= share, surely > share
        return self._judged(said, about, shown=enough and shown, refuted=enough and refuted)

    def at_most(
        self, sentence: str, number: float, threshold: float, **about: Unpack[ClaimOptions]
    ) -> Claim:
        """Claim that a number, which is exact, does not exceed a threshold."""
        said, shown = Claim(sentence, "", number, "<=", threshold), number <= threshold
        return self._judged(said, about, shown=shown, refuted=not shown)

    def _within(
        self, sentence: str, what: str, mean: Float64, sem: Float64, about: ClaimOptions
    ) -> Claim:
        """Compare the upper ends of confidence intervals with a margin, and the lower to refute."""
        margin = about.pop("margin", MARGIN)
        exact = bool(np.all(sem == 0))
        reach = 0.0 if exact else critical(1, self.runs)
        sure = 0.0 if exact else critical(mean.size, self.runs)
        enough = math.isfinite(reach)
        highest = float(np.max(mean + reach * sem)) if enough else float(mean.max())
        beyond = enough and float(np.max(mean - sure * sem)) > margin
        measure = f"largest {what} that the runs leave possible, as a share"
        said = Claim(sentence, measure, highest, "<=", margin)
        return self._judged(said, about, shown=enough and highest <= margin, refuted=beyond)

    def _judged(self, said: Claim, about: ClaimOptions, *, shown: bool, refuted: bool) -> Claim:
        premise = about.pop("provided", None)
        found = replace(said, figure=self.figure, **about)  # type: ignore[misc]  # mypy: a dictionary may lack keys
        if premise is not None:
            found = replace(found, measure=f"{found.measure}; also: {premise.measure}")
        if shown:
            verdict = Verdict.HOLDS if premise is None else premise.verdict
        else:
            verdict = Verdict.FAILS if refuted else Verdict.OPEN
        note = found.note if verdict is Verdict.FAILS else ""
        return replace(found, verdict=verdict, note=note)


def _moments(differences: Sequence[Curve]) -> tuple[Float64, Float64]:
    mean = np.concatenate([curve.mean for curve in differences])
    return mean, np.concatenate([curve.sem for curve in differences])


def t_statistic(mean: ArrayLike, sem: ArrayLike) -> Float64:
    """Return mean / sem; 0 for 0 / 0, and for a single run, which cannot tell."""
    m, s = np.atleast_1d(np.asarray(mean, float)), np.atleast_1d(np.asarray(sem, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num(m / s, nan=0.0, posinf=np.inf, neginf=-np.inf))
