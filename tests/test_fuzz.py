"""A little of the fuzz in every run, and its judge put to the test."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from tests import fuzz
from tests.families import FAMILIES


@given(name=st.sampled_from(list(FAMILIES)), seed=st.integers(0, 2**32), size=st.integers(2, 8))
@settings(max_examples=200)
def test_what_is_called_solved_is_solved(name: str, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    case = FAMILIES[name](rng, size, int(rng.choice(fuzz.DIMENSIONS)))
    solution, _ = fuzz.attempt(case)
    verdict = fuzz.judge(case, solution)
    assert verdict.violation <= 1.0  # whatever the status
    assert case.drift(solution.gradients) <= 1e-9
    assert not (solution.status.success and verdict.wrong), verdict


def test_a_window_that_warns_is_told_from_one_that_is_solved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = ("grid", 1, 0)
    assert fuzz.examine(window).verdict == "solved"
    real = coco.solve

    def warns(*given: Any, **options: Any) -> coco.Solution:
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
        return real(*given, **options)

    monkeypatch.setattr(coco, "solve", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as in the processes of the fuzz
        found = fuzz.examine(window)
    assert found.verdict == "raised"
    assert "overflow" in fuzz.report([found], 1)


@pytest.mark.parametrize("name", ["path with step 0.7", "duplicates in groups", "clusters"])
def test_the_judge_sees_answers_that_are_wrong(name: str) -> None:
    case = FAMILIES[name](np.random.default_rng(1), 8, 5)
    right, _ = fuzz.attempt(case)
    assert not fuzz.judge(case, right).wrong
    centroid = right.gradients.mean(axis=0)
    c = (case.L + case.mu) / 2
    middle = c * (case.points - case.points.mean(axis=0)) + centroid
    # Feasible, as every mixture with the centroid of the residuals is, but not the best.
    worse = replace(right, gradients=0.999 * right.gradients + 0.001 * middle)
    assert fuzz.judge(case, worse).gap > 1.0
    assert fuzz.judge(case, worse).violation <= 1.0
    broken = replace(right, gradients=1.001 * right.gradients - 0.001 * middle)
    assert fuzz.judge(case, broken).violation > 1.0
    weaker = replace(right, multipliers=np.where(np.isinf(right.multipliers), np.inf, 0.0))
    assert fuzz.judge(case, weaker).gap > 1.0
