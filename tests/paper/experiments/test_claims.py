"""Verdicts follow from standard errors, and chance rarely overturns them."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from coco_denoiser.paper.experiments import claims
from coco_denoiser.paper.experiments.claims import Judge, Verdict
from coco_denoiser.paper.experiments.curves import Curve


def _curve(*means: float, sem: float = 1.0) -> Curve:
    m = np.array(means)
    return Curve(np.arange(m.size, dtype=float), m, np.full(m.size, sem))


def test_a_difference_is_shown_refuted_or_left_open() -> None:
    for means, verdict, negative in (
        ((9.0, 8.0), Verdict.HOLDS, Verdict.FAILS),
        ((9.0, 1.0), Verdict.OPEN, Verdict.OPEN),
        ((9.0, -1.0), Verdict.OPEN, Verdict.OPEN),
        ((9.0, -8.0), Verdict.FAILS, Verdict.HOLDS),
    ):
        assert Judge(100).decreases_somewhere("", [_curve(*means)]).verdict is negative
        claim = Judge(100).increases("up.", [_curve(*means)], note="why")
        assert claim.verdict is verdict
        assert claim.number == min(means)
        assert claim.note == ("why" if verdict is Verdict.FAILS else "")


def test_where_all_must_hold_each_at_its_level_suffices_and_one_refutes_beyond_chance() -> None:
    each, one_of_many = claims.critical(1, 50), claims.critical(40, 50)
    assert Judge(50).increases("", [_curve(*[each + 0.01] * 40)]).verdict is Verdict.HOLDS
    between = -0.5 * (each + one_of_many)
    assert Judge(50).increases("", [_curve(between, *[9.0] * 39)]).verdict is Verdict.OPEN
    assert Judge(50).increases("", [_curve(between)]).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    ("mean", "sem", "same", "no_more"),
    [
        (0.0, 0.005, Verdict.HOLDS, Verdict.HOLDS),
        (0.03, 0.001, Verdict.HOLDS, Verdict.HOLDS),  # a difference, and within the margin
        (0.03, 0.02, Verdict.OPEN, Verdict.OPEN),
        (0.09, 0.001, Verdict.FAILS, Verdict.FAILS),
        (-0.09, 0.001, Verdict.FAILS, Verdict.HOLDS),
        (0.09, 0.03, Verdict.OPEN, Verdict.OPEN),
        (0.0, 0.3, Verdict.OPEN, Verdict.OPEN),  # not refuted is not shown
        (0.05, 0.0, Verdict.HOLDS, Verdict.HOLDS),  # what is exact is judged as it is
        (0.05 + 1e-9, 0.0, Verdict.FAILS, Verdict.FAILS),
    ],
)
def test_the_same_is_within_a_margin_by_its_confidence_interval(
    mean: float, sem: float, same: Verdict, no_more: Verdict
) -> None:
    curves = [_curve(mean, sem=sem)]
    assert Judge(100).equivalent("", curves, margin=0.05).verdict is same
    assert Judge(100).no_worse("", curves, margin=0.05).verdict is no_more


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [(9.0, Verdict.HOLDS), (0.0, Verdict.OPEN), (1.0, Verdict.OPEN), (-9.0, Verdict.FAILS)],
)
def test_no_harm_counts_only_where_something_is_gained(gain: float, verdict: Verdict) -> None:
    premise = Judge(100).increases("", [_curve(gain)], measure="a gain")
    harmless = [_curve(0.0, sem=0.0)]
    claim = Judge(100).no_worse("", harmless, measure="excess", provided=premise)
    assert claim.verdict is verdict
    assert claim.measure == "excess; also: a gain"
    assert Judge(100).no_worse("", [_curve(9.0)], provided=premise).verdict is Verdict.FAILS


@pytest.mark.parametrize("name", ["increases", "decreases_somewhere", "equivalent", "no_worse"])
def test_too_few_runs_judge_nothing_either_way(name: str) -> None:
    assert Judge(5).increases("", [_curve(1e9)]).verdict is Verdict.HOLDS
    for runs, mean in product((2, 4), (-1e9, 1e9)):
        claim = getattr(Judge(runs), name)("", [_curve(mean)])
        assert claim.verdict is Verdict.OPEN
        assert abs(claim.threshold) < 50 or claim.as_dict()["threshold"] is None


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [
        (0.3, Verdict.HOLDS),
        (0.45, Verdict.OPEN),  # below the limit, and not shown to be
        (0.55, Verdict.OPEN),
        (0.7, Verdict.FAILS),
    ],
)
def test_a_ratio_is_judged_by_the_interval_of_its_logarithm(mean: float, verdict: Verdict) -> None:
    sem = 0.05
    # As `Curves.ratios` adds them, with standard errors of their logarithms.
    ratios = [_curve(ratio, sem=sem * ratio) for ratio in (0.1, mean)]
    claim = Judge(20).ratio_at_most("", ratios, 0.5)
    assert claim.verdict is verdict
    assert claim.number == pytest.approx(mean * np.exp(claims.critical(1, 20) * sem))
    assert claim.threshold == 0.5


def test_seldom_is_judged_by_how_many_surely_and_how_many_perhaps() -> None:
    below, perhaps, above = 0.5, 1.04, 2.0
    for ratios, verdict in (
        ([below] * 9 + [above], Verdict.HOLDS),
        ([below] * 8 + [perhaps, above], Verdict.OPEN),
        ([below] * 9 + [perhaps], Verdict.HOLDS),
        ([below] * 8 + [above, above], Verdict.FAILS),
    ):
        curves = [_curve(ratio, sem=0.05 * ratio) for ratio in ratios]
        assert Judge(20).seldom_above("", curves, 1.05, 0.1).verdict is verdict
        assert Judge(4).seldom_above("", curves, 1.05, 0.1).verdict is Verdict.OPEN


def test_a_claim_says_whose_it_is() -> None:
    for figure, owner in ((None, "ours"), (4, "paper")):
        claim = Judge(50, figure).increases("", [_curve(9.0)])
        assert claim.owner == claim.as_dict()["owner"] == owner


def test_the_threshold_is_the_quantile_of_students_distribution() -> None:
    assert stats.t.sf(claims.critical(7, 20), 19) == pytest.approx(1e-3 / 7)


def test_what_is_exact_does_not_make_other_curves_exact() -> None:
    curves = [_curve(0.0, sem=0.0), _curve(0.03, sem=0.02)]
    assert Judge(100).equivalent("", curves, margin=0.05).verdict is Verdict.OPEN
