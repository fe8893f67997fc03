"""A step: what the tables of a window say is what a batch of its observations says."""

from typing import Any

import numpy as np
import pytest

import coco_denoiser as coco
from coco_denoiser import cocoercive
from coco_denoiser.certificate import certify
from coco_denoiser.problem import NONE, Problem
from coco_denoiser.solvers import newton
from coco_denoiser.typing import Float64


def observed(K: int, d: int, seed: int) -> tuple[Float64, Float64, Float64]:
    """Points, gradients and variances, of which most pairs break their bounds."""
    rng = np.random.default_rng([K, d, seed])
    return rng.normal(size=(K, d)), 3.0 * rng.normal(size=(K, d)), rng.uniform(0.3, 3.0, K)


def tables_of(points: Float64, residuals: Float64, slots: int) -> Float64:
    """The three tables of a window, with room for more slots, filled with what must not count."""
    dx, dh = (v[:, None] - v for v in (points, residuals))
    X, H = (np.linalg.norm(v, axis=2) for v in (dx, dh))
    size = X * H
    cosines = np.divide(np.sum(dx * dh, axis=2), size, out=np.zeros_like(X), where=size > 0.0)
    tables = np.full((3, slots, slots), 1e9)
    tables[:, : len(X), : len(X)] = X, np.clip(cosines, -1.0, 1.0), H
    return tables


def distances(h: Float64) -> Float64:
    return np.asarray(np.linalg.norm(h[:, None] - h, axis=2))


@pytest.mark.parametrize("shift", [0.0, 0.3, -2.0])
@pytest.mark.parametrize(("K", "d"), [(3, 2), (8, 3), (8, 20)])
def test_tables_reduce_to_the_problem_of_the_vectors(K: int, d: int, shift: float) -> None:
    x, h, variances = observed(K, d, 0)
    for vectors in (NONE, h - shift * x):
        found, bounds, n = cocoercive.reduce(tables_of(x, h, K + 2), variances, vectors, shift, 0.7)
        apart = distances(h - shift * x)
        np.testing.assert_allclose(distances(found), apart / apart.max(), atol=1e-7)
        np.testing.assert_allclose(bounds, 0.7 * distances(x) / apart.max(), rtol=1e-9)
        np.testing.assert_allclose(n, variances.min() / variances)
        central = apart.sum(axis=1).argmin()
        assert not found[central].any()
        assert found.shape[1] == (d if vectors.size else min(d, K - 1))


def test_a_direction_far_smaller_than_the_others_is_kept() -> None:
    x, h, variances = observed(6, 3, 0)
    h[:, 2] *= 1e-6
    found = cocoercive.reduce(tables_of(x, h, 6), variances, NONE, 0.0, 1.0)[0]
    assert found.shape[1] == 3


def test_what_newton_cannot_solve_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is worthless; the certificate must notice, and another method answer."""
    honest, calls = newton.solve_fast, []

    def short(h: Float64, *problem: Any) -> tuple[Any, ...]:
        calls.append(len(h))
        W, phi, lam, iterations = honest(h, *problem)
        return 0.0 * W, 0.5 * phi, lam, iterations

    x, g, _ = observed(12, 4, 2)
    expected = _walk(x, g)
    monkeypatch.setattr(newton, "solve_fast", short)
    np.testing.assert_allclose(_walk(x, g), expected, atol=1e-6)
    assert calls


def _walk(points: Float64, gradients: Float64) -> Float64:
    denoiser = coco.Denoiser(L=1.0, window=5)
    return np.array([denoiser(x, g) for x, g in zip(points, gradients, strict=True)])


@pytest.mark.parametrize(("K", "d"), [(2, 3), (3, 1), (8, 10), (16, 2), (24, 6)])
def test_phi_is_the_average_that_the_weights_say_and_is_certified(K: int, d: int) -> None:
    for seed in range(5):
        x, h, variances = observed(K, d, seed)
        problem = cocoercive.reduce(tables_of(x, h, K), variances, h, 0.0, 0.5)
        W, phi, lam, iterations = newton.solve_fast(*problem, 1e-9, newton.STEPS, 1e-10)
        assert iterations >= 0
        assert max(certify(Problem(*problem, np.ones(problem[0].shape[1])), phi, lam)) <= 1e-9
        np.testing.assert_allclose(W @ problem[0], phi, atol=1e-13)
        np.testing.assert_allclose(W.sum(axis=1), 1.0, rtol=1e-12)
        n = np.diag(problem[2])
        inverse = np.linalg.inv(n + np.diag(lam.sum(axis=1)) - lam)
        np.testing.assert_allclose(W, inverse @ n, atol=1e-9)
        assert lam.any()
