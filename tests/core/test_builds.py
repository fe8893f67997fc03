"""The builds of the core give the same bits, and refuse what they cannot take."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from coco_denoiser._core import baseline, kernels
from coco_denoiser.models.cocoercive import Cocoercive
from coco_denoiser.problem import Problem
from tests import fuzz
from tests.families import FAMILIES, Case

BUILDS: list[Any] = [baseline]
if baseline.has_avx2():  # built on x86-64 only
    from coco_denoiser._core import avx2

    BUILDS.append(avx2)
BOTH = pytest.mark.skipif(len(BUILDS) < 2, reason="this processor has no AVX2")


def answers(build: Any, method: str, problem: Problem) -> list[Any]:
    """What a method and the certificate say, and what any multipliers answer."""
    found = build.solve(problem, 1e-9, 15, method)
    lam = found.multipliers
    certificate = build.certify(problem, 0.9 * found.phi, lam)
    finite = np.where(np.isinf(lam), 3.0, lam)
    return [*found, *certificate, *build.average(problem, finite, 1e-10)]


@BOTH
def test_both_builds_give_the_same_bits() -> None:
    names = list(FAMILIES)
    for k in range(2500):  # of all families, sizes and dimensions
        problem = fuzz.draw(names[k % len(names)], 0, k).reduced()
        method = "barrier" if k % 10 == 9 else "newton"
        method = "line" if problem.residuals.shape[1] == 1 else method
        for one, other in zip(*(answers(build, method, problem) for build in BUILDS), strict=True):
            np.testing.assert_array_equal(one, other)


def test_memory_that_is_used_again_is_as_good_as_new() -> None:
    """Nothing of one problem is left for the next, which may have fewer coordinates."""
    rng = np.random.default_rng(1)
    build: Any = kernels
    for q in (12, 3, 7, 1, 12, 2):
        problem = Case(rng.normal(size=(9, q)), 9.0 * rng.normal(size=(9, q))).reduced()
        used = build.solve(problem, 1e-9, None, "auto")
        kept = build._idle.copy()
        build._idle.clear()
        new = build.solve(problem, 1e-9, None, "auto")
        build._idle.update(kept)
        for one, other in zip(used, new, strict=True):
            np.testing.assert_array_equal(one, other)


H, BOUNDS, N = np.zeros((3, 2)), np.ones((3, 3)), np.ones(3)
BAD: list[tuple[Any, type[Exception]]] = [
    ((H[:2], BOUNDS, N), ValueError),
    ((H, BOUNDS[:2], N), ValueError),
    ((H, BOUNDS, N[:2]), ValueError),
    ((H.astype(np.float32), BOUNDS, N), TypeError),
    ((H.astype(int), BOUNDS, N), TypeError),
]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("given", "error"), BAD)
def test_arrays_of_other_sizes_and_types_are_refused(
    build: Any, given: Any, error: type[Exception]
) -> None:
    h, bounds, n = given
    problem = Problem(h, bounds, n, np.ones(2))
    with pytest.raises(error):
        build.solve(problem, 1e-9, 15, "auto")
    with pytest.raises(error):
        build.certify(problem, H, BOUNDS)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("folds", [False, True])
def test_a_step_is_refused_where_there_is_no_room(build: Any, folds: bool) -> None:
    window, x, model = build.Window(1 if folds else 4, folds), np.ones(2), Cocoercive(1.0)
    tables = np.zeros((3, 4, 4)), np.ones(4)
    window.points, window.residuals = np.zeros((1, 2)), np.zeros((1, 2))

    def step(x: Any, theta: Any) -> None:
        build.step(window, x, np.ones(2), theta, 1.0, 1e150, model.fixed, model, None)

    with pytest.raises(IndexError):  # no tables yet
        step(x, np.empty(2))
    for counts in ((5, 0, 0), (2, 3, 0), (1, -1, 0), (1, 0, 4), (-1, -1, 0), (1, 0, -2)):
        with pytest.raises(IndexError):
            window.hold(*tables, *counts)
    window.hold(*tables)
    with pytest.raises(ValueError, match="numbers"):
        step(np.ones(3), np.empty(2))
    frozen = np.empty(2)
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        step(x, frozen)
    step(x, np.empty(2))
    with pytest.raises(ValueError, match="numbers"):
        window.admit(np.zeros(4), 1.0, model.fixed, None)
    if not folds:
        with pytest.raises(IndexError):  # no vectors for a second one
            step(x, np.empty(2))
    window.hold(np.zeros((3, 1, 1)), np.ones(1), 1, int(not folds), 0)
    with pytest.raises(IndexError):
        window.admit(np.zeros(5), 1.0, model.fixed, None)


def test_a_core_that_is_missing_says_what_to_do() -> None:
    code = "import sys; sys.modules['coco_denoiser._core.baseline'] = None\nimport coco_denoiser"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "was not compiled for this Python" in last
    assert "pip install ." in last
