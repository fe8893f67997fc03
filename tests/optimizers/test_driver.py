from typing import Any

import numpy as np
import pytest

from coco_denoiser.optimizers import SGD, Adam, run
from coco_denoiser.problems import LogisticRegression, Quadratic


def test_exact_gradients_contract_each_coordinate_by_its_eigenvalue() -> None:
    problem = Quadratic.spaced(4)
    path = run(SGD(1 / problem.L), problem, np.full(4, 100.0), steps=32, rng=rng()).iterates
    k = np.arange(33)[:, np.newaxis]
    assert np.allclose(path, 100 * (1 - problem.hessian) ** k, rtol=1e-12)


def test_sgd_settles_in_the_variance_ball_that_theory_gives() -> None:
    # x_{k+1} = (1 - gamma h) x_k - gamma noise has variance gamma sigma^2 / (h (2 - gamma h)).
    problem, runs = Quadratic.spaced(3, noise_std=10), 3000
    path = run(SGD(0.8), problem, np.zeros((runs, 3)), steps=60, rng=rng())
    variance = path.iterates[-1].var(axis=0)
    expected = 0.8 * 100 / (problem.hessian * (2 - 0.8 * problem.hessian))
    assert np.allclose(variance, expected, rtol=5 * np.sqrt(2 / runs))


@pytest.mark.parametrize("optimizer", [SGD(0.5), Adam(0.5)])
def test_a_batch_of_runs_is_as_many_single_runs(optimizer: Any) -> None:
    problem = Quadratic.spaced(3)
    starts = np.random.default_rng(1).standard_normal((5, 3))
    batch = run(optimizer, problem, starts, steps=10, rng=rng()).iterates
    for j, start in enumerate(starts):
        assert np.allclose(
            run(optimizer, problem, start, steps=10, rng=rng()).iterates, batch[:, j]
        )


def test_no_steps_is_a_path_of_one_point() -> None:
    trajectory = run(SGD(1.0), Quadratic([1.0]), [3], steps=0, rng=rng())
    assert trajectory.iterates.tolist() == [[3.0]]
    assert trajectory.evaluations.tolist() == [0]


def test_the_start_is_copied() -> None:
    start = np.ones(1)
    trajectory = run(SGD(1.0), Quadratic([1.0]), start, steps=1, rng=rng())
    trajectory.iterates[0] = 9
    assert start.tolist() == [1]


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"x0": [1.0, 2.0]}, ValueError, "x0"),
        ({"x0": [np.nan]}, ValueError, "x0"),
        ({"steps": -1}, ValueError, "steps"),
        ({"steps": 2.5}, ValueError, "steps"),
        ({"rng": 7}, TypeError, "default_rng"),
        ({"rng": np.random}, TypeError, "rng"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], error: type[Exception], word: str) -> None:
    arguments: dict[str, Any] = {"x0": [1.0], "steps": 1, "rng": rng()} | change
    with pytest.raises(error, match=word):
        run(SGD(0.1), Quadratic([1.0]), **arguments)


def test_sgd_on_one_example_a_step_stays_near_the_minimizer() -> None:
    features = np.random.default_rng(3).standard_normal((200, 2))
    labels = np.where(np.random.default_rng(4).random(200) < 0.5, -1.0, 1.0)
    problem = LogisticRegression(features, labels, regularization=0.1)
    path = run(SGD(0.05), problem, problem.minimizer + 1, steps=3000, rng=rng()).iterates
    distance = np.linalg.norm(path - problem.minimizer, axis=1)
    assert distance[-1000:].mean() < 0.25 * distance[0]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)
