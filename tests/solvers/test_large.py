"""What the method for large windows does besides solving small ones, which the contract tests."""

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import _linalg
from coco_denoiser.solvers import large
from tests.families import box, path


@pytest.mark.parametrize("make", [box, path])
def test_a_large_window_is_solved_exactly_on_few_of_its_pairs(make: object) -> None:
    assert callable(make)
    points, gradients = make(np.random.default_rng(0), 300, 10)
    solution = coco.solve(points, gradients, L=1.0)
    assert solution.method == "large"
    assert max(solution.gap, solution.violation) <= 1e-9
    # The certificate is over all pairs, by code that the solver does not share.
    phi = solution.gradients - 0.5 * points
    apart = np.linalg.norm(phi[:, None] - phi, axis=2)
    bound = 0.5 * np.linalg.norm(points[:, None] - points, axis=2)
    assert (apart <= bound * (1.0 + 1e-8) + 1e-9).all()
    assert np.count_nonzero(solution.multipliers) <= 20 * 300


@pytest.mark.parametrize("strongest", [1.0, 1e15])
def test_matrix_products_eliminate_as_node_by_node(
    strongest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    K, q = 211, 3
    rng = np.random.default_rng(3)
    a = np.triu(strongest ** rng.random((K, K)) * (rng.random((K, K)) < 0.05), 1)
    n = rng.uniform(0.1, 1.0, K)
    b = rng.random((K, q))
    found = []
    for many in (_linalg.MANY, K + 1):
        monkeypatch.setattr(_linalg, "MANY", many)
        x, inverse, alone = b.copy(), np.empty((K, K)), b.copy()
        _linalg.solve_laplacian(a, n, x, inverse)
        _linalg.solve_laplacian(a, n, alone)
        np.testing.assert_allclose(alone, x, rtol=1e-13)
        found.append(np.hstack((x, inverse)))
    plain, fast = found
    # Nothing is subtracted, so that every entry keeps its digits, however strong the pulls.
    np.testing.assert_allclose(fast, plain, rtol=1e-11)


def test_a_window_that_costs_too_much_is_given_up_with_a_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points, gradients = box(np.random.default_rng(4), 40, 4)
    solved = coco.solve(points, gradients, L=1.0, method="large")
    monkeypatch.setattr(large, "_ALLOWED", 1.0)
    monkeypatch.setattr(large, "_MOST_SMALL", 1.0)
    given_up = coco.solve(points, gradients, L=1.0, method="large", throw=False)
    assert given_up.iterations < solved.iterations
    assert given_up.status is coco.Status.STALLED
    assert given_up.violation <= 1e-9
    assert given_up.gap > 1e-9
