"""An ordinary window: what is said of it is what the parts say one by one."""

from typing import Any

import numpy as np
import pytest

from coco_denoiser import Denoiser, geometry
from coco_denoiser.certificate import certify
from coco_denoiser.constraints import averages
from coco_denoiser.geometry import NONE, Window
from coco_denoiser.solvers import METHODS, ordinary
from coco_denoiser.typing import Float64


def observed(K: int, d: int = 5) -> tuple[Window, tuple[Float64, Float64]]:
    rng = np.random.default_rng(K)
    points, gradients = rng.normal(size=(K, d)), 5.0 * rng.normal(size=(K, d))
    window = geometry.batch_window(points, gradients, 1.0, 0.0, rng.uniform(0.5, 2.0, K))[0]
    return window, (points, gradients)


@pytest.mark.parametrize("K", [2, 3, 8])
def test_it_answers_as_method_average_and_certificate_do(K: int) -> None:
    window, _ = observed(K)
    W, phi, lam, gap, violation, _ = ordinary.settle(
        window.residuals, window.bounds, window.precisions, 1e-9, 100
    )
    method = METHODS["closed-form" if K == 2 else "newton"]
    np.testing.assert_allclose(lam, method.solve(window, tol=1e-9, max_iter=100)[0], rtol=1e-9)
    assert (lam > 0.0).any()
    np.testing.assert_allclose(W, averages.weights(lam, window), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(phi, W @ window.residuals, atol=1e-14)
    assert (gap, violation) == certify(window, phi, lam)
    assert gap <= 1e-9


def test_points_that_coincide_are_left_to_others() -> None:
    window, _ = observed(4)
    window.bounds[0, 1] = window.bounds[1, 0] = 0.0
    *_, gap, _, _ = ordinary.settle(window.residuals, window.bounds, window.precisions, 1e-9, 100)
    assert gap == np.inf


@pytest.mark.parametrize("K", [2, 6])
def test_tables_and_vectors_give_the_same_weights(K: int) -> None:
    _, (points, gradients) = observed(K)
    h = gradients - 0.5 * points
    dx, dh = (np.linalg.norm(v[:, None] - v, axis=2) for v in (points, h))
    v = np.linspace(1.0, 2.0, K)
    by_vectors, by_tables = (
        ordinary.settle(*geometry.reduced(dx, distances, residuals, 0.5, v), 1e-9, 100)
        for distances, residuals in ((NONE, h), (dh, NONE))
    )
    np.testing.assert_allclose(by_vectors[0], by_tables[0], atol=1e-6)
    assert np.count_nonzero(by_vectors[2]) == np.count_nonzero(by_tables[2]) > 0


def test_a_step_that_the_compiled_call_cannot_take_is_taken_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, observations = observed(9)
    settled = _walk(*observations)
    honest = ordinary.settle

    def short(*window: Any) -> tuple[Any, ...]:
        W, phi, lam, _, violation, steps = honest(*window)
        return 0.0 * W, phi, lam, np.inf, violation, steps

    monkeypatch.setattr(ordinary, "settle", short)
    np.testing.assert_allclose(_walk(*observations), settled, atol=1e-6)


def _walk(points: Float64, gradients: Float64) -> Float64:
    denoiser = Denoiser(L=1.0, window=5)
    return np.array([denoiser(x, g) for x, g in zip(points, gradients, strict=True)])
