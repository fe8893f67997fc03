"""The paper's Algorithm 1, against the same algorithm written with its matrix A."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coco_denoiser.paper import fdpg
from coco_denoiser.problem import Problem, average
from coco_denoiser.solvers import barrier
from coco_denoiser.typing import Float64
from tests.families import Case, path


def window(seed: int, K: int = 5, d: int = 3) -> Problem:
    return Case(*path(np.random.default_rng(seed), K, d)).reduced()


def dense(window: Problem, steps: int) -> tuple[Float64, list[float]]:
    """Algorithm 1 as it is printed: A as a matrix, prox by a projection onto balls."""
    K = len(window.residuals)
    first, second = np.triu_indices(K, 1)
    A = np.zeros((first.size, K))
    A[np.arange(first.size), first], A[np.arange(first.size), second] = 1.0, -1.0
    Lp = np.linalg.norm(A, 2) ** 2
    assert Lp == pytest.approx(K)  # the notes' remark: no singular values are needed
    c, r = A @ window.residuals, window.bounds[first, second]
    s = y = np.zeros_like(c)
    t, values = 1.0, []
    for _ in range(steps + 1):
        lengths = np.linalg.norm(s, axis=1)
        values.append(0.5 * np.sum((A.T @ s) ** 2) + np.sum(r * lengths) - np.sum(s * c))
        step = y - A @ (A.T @ y) / Lp
        v = c + Lp * step
        v *= np.minimum(1.0, r / np.linalg.norm(v, axis=1))[:, None]
        before, s = s, step - (v - c) / Lp
        new = (1 + np.sqrt(1 + 4 * t**2)) / 2
        y, t = s + (t - 1) / new * (s - before), new
    return before, values


@pytest.mark.parametrize("seed", range(3))
def test_without_restart_it_is_the_paper_to_the_letter(seed: int) -> None:
    problem = window(seed)
    s, values = dense(problem, 40)
    ours, iterations, history = fdpg.iterate(problem, tol=0.0, max_iter=40, restart=False)
    assert iterations == 40
    np.testing.assert_allclose(history, values, atol=1e-12)
    np.testing.assert_allclose(ours, s, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_dual_objective_ends_at_minus_the_primal(seed: int) -> None:
    problem = window(seed)
    _, _, history = fdpg.iterate(problem, tol=1e-12, max_iter=100_000)
    lam, _ = barrier.solve(problem, tol=1e-12, max_iter=100)
    W = average(lam, problem)[0]
    h = problem.residuals
    assert -history[-1] == pytest.approx(0.5 * np.sum((W @ h - h) ** 2), rel=1e-9)
    assert history[0] == 0.0
    assert history.min() >= history[-1] - 1e-9


def test_a_warm_start_and_restarts_save_iterations() -> None:
    problem, given = window(1, K=6, d=10), dict[str, Any](tol=1e-9, max_iter=100_000)
    s, cold, _ = fdpg.iterate(problem, **given)
    assert cold < fdpg.iterate(problem, **given, restart=False)[1]
    shifted = replace(problem, residuals=1.001 * problem.residuals)
    _, warm, history = fdpg.iterate(shifted, **given, dual=s)
    assert warm < cold
    assert history[0] < fdpg.iterate(shifted, **given)[2][0]
