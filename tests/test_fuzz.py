"""A little of the fuzz in every run, and its judge put to the test."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
