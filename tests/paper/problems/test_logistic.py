import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.paper.problems import LogisticRegression
from coco_denoiser.typing import Array


def small(
    seed: int = 0, n: int = 40, d: int = 4, regularization: float = 0.1
) -> tuple[LogisticRegression, Array, Array]:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d))
    labels = np.where(features @ np.ones(d) + 2 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return LogisticRegression(features, labels, regularization=regularization), features, labels


@given(seed=st.integers(0, 10**6), regularization=st.sampled_from([0.0, 0.1]))
def test_the_objective_is_the_mean_log_likelihood(seed: int, regularization: float) -> None:
    problem, A, b = small(seed, regularization=regularization)
    x = np.random.default_rng(seed).standard_normal(4)
    direct = np.mean(np.log(1 + np.exp(-b * (A @ x)))) + regularization / 2 * x @ x
    assert problem.value(x) == pytest.approx(direct, rel=1e-13)


@given(seed=st.integers(0, 10**6))
def test_hessian_is_the_derivative_of_the_gradient(seed: int) -> None:
    problem, _, _ = small(seed)
    x = np.random.default_rng(seed).standard_normal(4)
    h = 1e-5
    differences = [(problem.gradient(x + h * e) - problem.gradient(x - h * e)) for e in np.eye(4)]
    assert np.allclose(np.array(differences) / (2 * h), problem.hessian(x), atol=1e-8)


@pytest.mark.parametrize("scale", [1e3, 1e8, 1e150, 1e300])
def test_huge_margins_neither_overflow_nor_warn(scale: float) -> None:
    problem = LogisticRegression([[1.0], [-1.0]], [1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.array([scale])
        assert problem.value(x) == scale / 2
        assert problem.gradient(x).tolist() == [0.5]
        assert problem.hessian(x).tolist() == [[0.0]]
        assert problem.example_gradient(x, 0).tolist() == [0.0]
        assert problem.example_gradient(x, 1).tolist() == [1.0]
        assert problem.example_gradient(x, np.array([0, 1])).tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("separable", [True, False])
def test_separable_classes_or_dependent_features_have_no_unique_minimizer(separable: bool) -> None:
    _, A, b = small()
    data = ([[1.0], [2.0], [-1.0]], [1, 1, -1]) if separable else (np.hstack([A, A]), b)
    with pytest.raises(ArithmeticError, match="regularization > 0"):
        _ = LogisticRegression(*data).minimizer
