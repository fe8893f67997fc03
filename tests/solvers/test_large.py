"""What the method for large windows does besides solving small ones, which the contract tests."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser._core import kernels
from coco_denoiser.solvers import interior_point, large
from tests.families import Case, box, path
from tests.fuzz import _stationary
from tests.windows import distances


@pytest.mark.parametrize("make", [box, path])
def test_a_large_window_is_solved_exactly_on_few_of_its_pairs(make: Any) -> None:
    points, gradients = make(np.random.default_rng(0), 300, 10)
    solution = coco.solve(points, gradients, L=1.0)
    assert solution.method == "large"
    assert max(solution.gap, solution.violation) <= 1e-9
    # The certificate is over all pairs, by code that the solver does not share.
    phi = solution.gradients - 0.5 * points
    assert (distances(phi) <= 0.5 * distances(points) * (1.0 + 1e-8) + 1e-9).all()
    assert np.count_nonzero(solution.multipliers) <= 20 * 300


@pytest.mark.parametrize("strongest", [1.0, 1e15])
def test_elimination_keeps_every_digit_however_strong_the_pulls(strongest: float) -> None:
    """Nothing is subtracted."""
    K, q = 211, 3
    rng = np.random.default_rng(3)
    a = np.triu(strongest ** rng.random((K, K)) * (rng.random((K, K)) < 0.05), 1)
    n, b = rng.uniform(0.1, 1.0, K), rng.random((K, q))
    x, inverse, alone = b.copy(), np.empty((K, K)), b.copy()
    kernels.solve_laplacian(a, n, x, inverse)
    kernels.solve_laplacian(a, n, alone)
    np.testing.assert_array_equal(alone, x)
    right = np.hstack((b, np.eye(K))).astype(np.longdouble)
    exact = _stationary((a + a.T).astype(np.longdouble), n.astype(np.longdouble), right)
    np.testing.assert_allclose(np.hstack((x, inverse)), exact.astype(float), rtol=1e-11)


@pytest.mark.parametrize(
    ("method", "limits"),
    [(large, {"_ALLOWED": 1.0, "_MOST_SMALL": 1.0}), (interior_point, {"ALLOWED": 1e-3})],
)
def test_a_window_that_costs_too_much_is_given_up_with_a_status(
    method: Any, limits: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(*box(np.random.default_rng(4), 40, 4))
    name = method.__name__.rpartition(".")[2].replace("_", "-")
    solved = case.solve(method=name)
    for limit, value in limits.items():
        monkeypatch.setattr(method, limit, value)
    given_up = case.solve(method=name, throw=False)
    assert given_up.iterations < solved.iterations
    assert given_up.status is coco.Status.STALLED
    assert given_up.violation <= 1e-9
    assert given_up.gap > 1e-9
