"""Windows that some method gave up once, or answered wrongly: points near others, and far ones."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import solvers
from coco_denoiser._core import kernels
from coco_denoiser.problem import Problem
from tests import fuzz
from tests.families import Case
from tests.test_streaming import follow
from tests.windows import plain

# By family, seed and number. All pairs at their bounds, distances over many decades, bounds broken
# by a few roundings, and precisions over twelve decades besides.
GIVEN_UP = [
    *(("nested", 1, 819), ("geometric", 1, 639), ("geometric", 1, 1474), ("rotated tight", 1, 451)),
    *(("geometric, variances 1e±6", 1, 721), ("clusters, variances 1e±6", 1, 724)),
]
# A step that is too long has to be taken back.
TOO_LONG = [("one outlier", 5, 0), ("one outlier", 5, 4), ("clusters, variances 1e±6", 5, 5)]
# Curvature 1 = L: noise decides whether the bound to the far point is broken.
FAR = [("very far point", *each) for each in ((1, 13), (1, 305), (1, 1114), (2, 4), (2, 1133))]
# Gradients near 0 far from the most central point.
RUNGS = ("ladder", 1, 32)
# From runs on fourclass, whose gradients fall far below the curvature times the steps.
CURVATURE, Y = 5656.074264619303, float.fromhex("0x1.700a899220812p-4")
LAST_BIT = Case(
    np.array(
        [
            [float.fromhex("0x1.22dff4f8bab7ap-2"), float.fromhex("0x1.95b2c8c25884ap-4")],
            *([float.fromhex("0x1.171b6139a9368p-2"), Y + k * 2.0**-56] for k in range(3)),
        ]
    ),
    np.array([[65.0, 52.0], [-3.557e-13, -2.254e-13], [-1.5e-15, -2.6e-15], [-1.6e-17, -2.3e-17]]),
    CURVATURE,
)
NEAR = Case(  # as one, the first two cost 6e-6 more
    np.array([[-0.47, 0.0], [-0.46999999999669817, 0.0], [0.68, 0.0]]),
    np.array([[-0.235, 0.0], [-0.23499958442901214, 0.0], [0.34, 0.0]]),
    mu=-1.0,
)
GROUP = Case(  # three points as good as one, and all of the four with noise of their own
    np.array([[1e-12, -4e-12], [-3e-12, 2e-12], [5e-12, 1e-12], [1.0, 1.0]]),
    np.array([[0.3, 0.3 + 9e-12], [0.3 - 2e-11, 0.3], [0.3 + 6e-12, 0.3], [-0.9, 0.4]]),
    noise_variance=np.array([100.0, 300.0, 500.0, 1.0]),
)


@pytest.mark.parametrize(
    ("window", "methods"),
    [
        *((window, ("auto", "barrier")) for window in (*GIVEN_UP, *TOO_LONG, NEAR, GROUP)),
        *((window, ("auto", "line")) for window in FAR),
        *((window, ("auto",)) for window in (RUNGS, LAST_BIT)),
    ],
)
def test_what_was_given_up_once_is_solved(window: Any, methods: tuple[str, ...]) -> None:
    case = window if isinstance(window, Case) else fuzz.draw(*window)
    for method in methods:
        found, _ = fuzz.attempt(case, method)
        assert found.status is coco.Status.SOLVED, found
        assert not fuzz.judge(case, found).wrong
        assert np.isfinite(found.multipliers).all() or case is not NEAR


def test_a_stream_solves_what_a_batch_does() -> None:
    stream = coco.Denoiser(CURVATURE, 4)
    follow(stream, LAST_BIT.points, LAST_BIT.gradients)
    found = stream.solution
    assert max(found.gap, found.violation) <= 1e-9
    assert not fuzz.judge(LAST_BIT, found).wrong


@pytest.mark.parametrize("case", [fuzz.draw("geometric", 1, 1474), NEAR], ids=["apart", "near"])
def test_where_newtons_method_falls_short_the_barrier_follows_in_the_same_call(case: Case) -> None:
    problem = case.reduced()
    newton, both = solvers.solve(problem, method="newton"), solvers.solve(problem)
    assert not newton.status.success
    assert both.status.success
    assert both.method == "barrier"


def _problem(residuals: list[list[float]], bounds: list[float]) -> Problem:
    """Residuals, and their bounds row by row above the diagonal."""
    table = np.zeros((len(residuals),) * 2)
    table[np.triu_indices(len(table), 1)] = bounds
    return plain(np.array(residuals), table + table.T)


# From SGD and logistic regression on fourclass, where single examples hardly disagree.
FOURCLASS = {
    "broken by 1e-14 of the largest residual": _problem(
        [
            [0.0, 0.0],
            [3.930434151552546e-13, 5.404346958384751e-13],
            [-8.164139823678839e-01, -1.0],
            [-2.751343210428298e-08, -7.164144806272820e-08],
        ],
        [
            *(7.6755707244487598e-13, 1.2909422104051540, 7.6742947949417308e-08),
            *(1.2909422104059176, 7.6743649196906691e-08, 1.2909421375097712),
        ],
    ),
    "below rounding next to 1, not next to 1e-13": _problem(
        [
            [1.0, 0.36611297453854935],
            [0.0, 0.0],
            [0.0, 1.0939496500255844e-15],
            [-5.250958320122805e-14, -7.3294626551714155e-14],
        ],
        [*3 * [1.0649125363735024], *2 * [1.5106104644284669e-15], 0.0],
    ),
}


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
@pytest.mark.parametrize("name", FOURCLASS)
def test_bounds_next_to_rounding_are_obeyed(name: str, tol: float) -> None:
    problem = FOURCLASS[name]
    found = solvers.solve(problem, tol=tol)
    assert found.status is coco.Status.SOLVED, found
    assert kernels.certify(problem, found.phi, found.multipliers) == (found.gap, found.violation)
