"""L and mu from data and from Hessian-vector products."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_denoiser import curvature
from coco_denoiser.curvature import LOSSES
from coco_denoiser.typing import Float64

BOUNDED = [loss for loss, (_, upper) in LOSSES.items() if math.isfinite(upper)]


def second_derivative(loss: str, t: Float64) -> Float64:
    """Of the loss of a label 1, or of any class, at the scores of an example."""
    p = np.exp(t - t.max()) / np.sum(np.exp(t - t.max()))
    return np.asarray(
        {
            "squared": np.ones((1, 1)),
            "logistic": 0.25 / np.cosh(0.5 * t) ** 2,
            "log-cosh": 1.0 / np.cosh(t) ** 2,
            "squared hinge": t < 1.0,
            "huber": np.abs(t) < 1.0,
            "softmax": np.diag(p) - np.outer(p, p),
        }[loss],
        float,
    ).reshape(t.size, t.size)


def hessian(loss: str, A: Float64, x: Float64, weights: Float64, penalty: Float64) -> Float64:
    """Of the mean loss of a linear model with coefficients x, (features, scores)."""
    terms = (
        w * np.kron(np.outer(a, a), second_derivative(loss, a @ x))
        for a, w in zip(A, weights, strict=True)
    )
    return np.asarray(sum(terms) / len(A) + np.kron(np.diag(penalty), np.eye(x.shape[1])))


@pytest.mark.parametrize("loss", BOUNDED)
@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    ridge=st.sampled_from([0.0, 0.3]),
    intercept=st.booleans(),
    classes=st.integers(2, 4),
)
@settings(max_examples=15)
def test_the_hessian_lies_between_the_bounds_everywhere(
    loss: str, seed: int, shape: tuple[int, int], ridge: float, intercept: bool, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    A, weights = rng.normal(size=shape), rng.uniform(0.0, 2.0, shape[0])
    L, mu = curvature.linear_model(
        loss, A, regularization=ridge, weights=weights, intercept=intercept
    )
    penalty = np.full(shape[1], ridge)
    if intercept:
        A, penalty = np.column_stack((A, np.ones(len(A)))), np.append(penalty, 0.0)
    classes, largest = classes if loss == "softmax" else 1, -math.inf
    for size in (0.0, 0.5, 5.0):
        x = size * rng.normal(size=(len(penalty), classes))
        eigenvalues = np.linalg.eigvalsh(hessian(loss, A, x, weights, penalty))
        assert mu - 1e-12 <= eigenvalues[0]
        assert eigenvalues[-1] <= L * (1.0 + 1e-12)
        largest = max(largest, float(eigenvalues[-1]))
        if loss == "squared":
            assert mu == pytest.approx(eigenvalues[0], abs=1e-12)
    # At 0 every loss has its largest second derivative in every example.
    if classes <= 2:
        assert pytest.approx(L, rel=1e-12) == largest


def test_rounding_makes_no_convex_model_concave() -> None:
    """The columns and the intercept are dependent: the smallest eigenvalue is zero."""
    for seed in range(20):
        A = np.random.default_rng(seed).normal(size=(5, 3))
        A[:, 1] = 3.0
        assert curvature.linear_model("squared", A, intercept=True).mu >= 0.0


@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([1, 3, 40, 400]),
    shape=st.sampled_from(["spread", "outlier", "indefinite", "rank one"]),
    scale=st.sampled_from([1e-8, 1.0, 1e8]),
)
@settings(max_examples=40)
def test_the_spectrum_lies_between_its_bounds_and_near_them(
    seed: int, size: int, shape: str, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    eigenvalues = (
        scale
        * {
            "spread": rng.uniform(0.0, 1.0, size),
            "outlier": np.append(rng.uniform(0.0, 0.01, size - 1), 1.0),
            "indefinite": rng.normal(size=size),
            "rank one": np.eye(1, size)[0],
        }[shape]
    )
    L, mu = curvature.spectrum(
        lambda v: eigenvalues * v, rng.normal(size=size), steps=32, failure=1e-6
    )
    low, high = eigenvalues.min(), eigenvalues.max()
    rounding = 1e-9 * scale
    assert high - rounding <= L
    assert mu <= low + rounding
    assert L - high <= 0.1 * (high - low) + rounding
    assert low - mu <= 0.1 * (high - low) + rounding
    if shape == "outlier":  # found to all digits
        assert L - high <= 1e-6 * high


@pytest.mark.parametrize("excess", [9e-8, 9e-5, 9e-4])
def test_a_hidden_eigenvalue_is_found_although_the_residual_is_small_at_once(
    excess: float,
) -> None:
    d = 10**4
    eigenvalues = np.append(np.ones(d - 1), 1.0 + excess)
    for seed in range(20):
        start = np.random.default_rng(seed).normal(size=d)
        L, mu = curvature.spectrum(lambda v: eigenvalues * v, start)
        for bound, truth in ((L, 1.0 + excess), (1.0, mu)):
            assert -1e-14 <= bound - truth <= 1e-4 * excess


@pytest.mark.parametrize(
    ("dtype", "power"), [(np.float32, -80), (np.float32, 80), (np.float64, -660), (np.float64, 660)]
)
def test_the_unit_of_the_matrix_does_not_matter(dtype: Any, power: int) -> None:
    """Squares of so small or large numbers are not in range."""
    eigenvalues = np.append(np.ones(999), 1.0 + 9e-4).astype(dtype)
    start = np.random.default_rng(0).normal(size=1000).astype(dtype)
    one = curvature.spectrum(lambda v: eigenvalues * v, start)
    unit = np.asarray(2.0**power, dtype)
    other = curvature.spectrum(lambda v: unit * eigenvalues * v, start)
    np.testing.assert_allclose(np.array(other) / 2.0**power, one, rtol=1e-12)
    assert eigenvalues[-1] < one.L


def test_the_bounds_fail_as_often_as_they_may_and_no_more() -> None:
    rng, runs = np.random.default_rng(0), 1000
    # After one step the bound fails where the start nearly lacks the direction of this eigenvalue,
    # and there only: with half of the probability, the other half being for the other end.
    eigenvalues = np.append(np.ones(300), 1.001)
    found = [
        curvature.spectrum(lambda v: eigenvalues * v, rng.normal(size=301), steps=1, failure=0.2)
        for _ in range(runs)
    ]
    assert all(mu <= 1.0 for _, mu in found)
    failures = sum(L < 1.001 for L, _ in found)
    assert abs(failures - 0.1 * runs) <= 3.0 * math.sqrt(0.09 * runs)


def test_too_few_products_are_refused_and_so_are_infinite_ones() -> None:
    start = np.ones(100)
    with pytest.raises(ValueError, match="steps must be larger for 100 variables"):
        curvature.spectrum(lambda v: np.arange(100.0) * v, start, steps=4)
    with pytest.raises(FloatingPointError, match="product must return finite numbers, got nan"):
        curvature.spectrum(lambda v: v * np.nan, start)
