"""What every problem promises, whatever it is."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from coco_denoiser.paper.explore.objectives import OBJECTIVES
from coco_denoiser.paper.problems import LogisticRegression, Problem, Quadratic
from coco_denoiser.paper.problems.base import is_finite_sum
from coco_denoiser.typing import Array
from tests.families import full
from tests.windows import distances


def _data(n: int, d: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    return 3 * rng.standard_normal((n, d)), np.where(rng.random(n) < 0.5, -1.0, 1.0)


MATRIX = full(np.random.default_rng(6), np.array([0.1, 0.7, 2.0, 9.0]))
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "diagonal quadratic": lambda: Quadratic.spaced(5, noise_std=2),
    "quadratic": lambda: Quadratic(MATRIX, minimizer=[1, 2, 3, 4], noise_std=2),
    "quadratic in one dimension": lambda: Quadratic([0.5], noise_std=2),
    "logistic": lambda: LogisticRegression(*_data(60, 3)),
    "regularized logistic": lambda: LogisticRegression(*_data(60, 3), regularization=0.2),
    "wide logistic": lambda: LogisticRegression(*_data(5, 9), regularization=0.2),
    **{f"{name} of the page": partial(OBJECTIVES[name].problem, 2.0) for name in OBJECTIVES},
}


@pytest.fixture(params=list(PROBLEMS))
def problem(request: pytest.FixtureRequest) -> Problem:
    return PROBLEMS[request.param]()


def points(problem: Problem, count: int = 6) -> Array:
    rng = np.random.default_rng(7)
    return problem.minimizer + 2 * rng.standard_normal((count, problem.dimension))


def test_gradient_is_the_derivative_of_the_value(problem: Problem) -> None:
    h = 1e-5
    for x in points(problem):
        differences = np.array(
            [problem.value(x + h * e) - problem.value(x - h * e) for e in np.eye(problem.dimension)]
        )
        scale = 1 + np.abs(problem.value(x))
        assert np.allclose(differences / (2 * h), problem.gradient(x), atol=1e-9 * scale)


def test_minimizer_has_no_gradient_and_the_least_value(problem: Problem) -> None:
    assert np.linalg.norm(problem.gradient(problem.minimizer)) < 1e-12
    assert (problem.value(points(problem)) > problem.value(problem.minimizer)).all()


def test_gradients_obey_the_curvature_bounds(problem: Problem) -> None:
    x, g = points(problem), problem.gradient(points(problem))
    c, r = (problem.L + problem.mu) / 2, (problem.L - problem.mu) / 2
    assert (distances(g - c * x) <= r * distances(x) * (1 + 1e-12) + 1e-12).all()


def test_a_batch_equals_its_points(problem: Problem) -> None:
    batch = points(problem).reshape(2, 3, problem.dimension)
    assert problem.value(batch).shape == (2, 3)
    assert problem.gradient(batch).shape == batch.shape
    for place in np.ndindex(2, 3):
        assert np.allclose(problem.value(batch)[place], problem.value(batch[place]), rtol=1e-13)
        assert np.allclose(problem.gradient(batch)[place], problem.gradient(batch[place]))


def test_oracle_is_unbiased(problem: Problem) -> None:
    x, rng = points(problem)[0], np.random.default_rng(8)
    together = problem.oracle(np.tile(x, (20_000, 1)), rng)
    one_by_one = np.array([problem.oracle(x, rng) for _ in range(5_000)])
    for answers in (together, one_by_one):
        errors = 5 * answers.std(axis=0) / np.sqrt(len(answers))
        assert (np.abs(answers.mean(axis=0) - problem.gradient(x)) <= errors + 1e-12).all()


def test_oracle_depends_on_the_generator_alone_and_the_point_stays_as_it_is(
    problem: Problem,
) -> None:
    x = points(problem)[0]
    before = x.copy()
    first, second = (problem.oracle(x, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first, second)
    for answer in (problem.gradient(x), first):
        answer[:] = np.nan
    problem.value(x)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("name", [name for name in PROBLEMS if "page" not in name])
def test_a_point_of_another_dimension_is_refused(name: str) -> None:
    problem = PROBLEMS[name]()
    with pytest.raises(ValueError, match="x must have shape"):
        problem.gradient(np.zeros(problem.dimension + 1))


@pytest.mark.parametrize("name", [name for name in PROBLEMS if "logistic" in name])
def test_terms_of_a_finite_sum_average_to_it(name: str) -> None:
    problem = PROBLEMS[name]()
    assert is_finite_sum(problem)
    x = points(problem)[0]
    terms = problem.example_gradient(x, np.arange(problem.size))
    assert np.allclose(terms.mean(axis=0), problem.gradient(x), atol=1e-13)
