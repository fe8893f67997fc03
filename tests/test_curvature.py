"""L and mu from data, from Hessian-vector products, and from the stream itself."""

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coco_denoiser import Denoiser, curvature
from coco_denoiser.curvature.exact import LOSSES
from coco_denoiser.curvature.online import StreamEstimate, ages
from coco_denoiser.problems import LogisticRegression, Quadratic
from coco_denoiser.typing import Float64

BOUNDED = [loss for loss, (_, upper) in LOSSES.items() if math.isfinite(upper)]


def second_derivative(loss: str, t: Float64) -> Float64:
    """Of the loss of a label 1, at scores t."""
    margin = {"squared hinge": 1.0 - t, "huber": 1.0 - np.abs(t)}
    if loss in margin:
        return (margin[loss] > 0.0).astype(float)
    return {
        "squared": np.ones_like(t),
        "logistic": 0.25 / np.cosh(0.5 * t) ** 2,
        "log-cosh": 1.0 / np.cosh(t) ** 2,
    }[loss]


def hessian(
    loss: str, A: Float64, x: Float64, weights: Float64, ridge: float, *, intercept: bool
) -> Float64:
    if intercept:
        A = np.column_stack((A, np.ones(len(A))))
    H = (A.T * (weights * second_derivative(loss, A @ x))) @ A / len(A)
    penalty = np.full(len(x), ridge)
    if intercept:
        penalty[-1] = 0.0
    return np.asarray(H + np.diag(penalty))


@pytest.mark.parametrize("loss", [loss for loss in BOUNDED if loss != "softmax"])
@given(
    seed=st.integers(0, 2**32),
    shape=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    ridge=st.sampled_from([0.0, 0.3]),
    intercept=st.booleans(),
)
@settings(max_examples=15)
def test_the_hessian_lies_between_the_bounds_everywhere(
    loss: str, seed: int, shape: tuple[int, int], ridge: float, intercept: bool
) -> None:
    rng = np.random.default_rng(seed)
    A, weights = rng.normal(size=shape), rng.uniform(0.0, 2.0, shape[0])
    L, mu = curvature.linear_model(
        loss, A, regularization=ridge, weights=weights, intercept=intercept
    )
    largest = -math.inf
    for size in (0.0, 0.5, 5.0):
        x = size * rng.normal(size=shape[1] + intercept)
        eigenvalues = np.linalg.eigvalsh(hessian(loss, A, x, weights, ridge, intercept=intercept))
        assert mu - 1e-12 <= eigenvalues[0]
        assert eigenvalues[-1] <= L * (1.0 + 1e-12)
        largest = max(largest, float(eigenvalues[-1]))
        if loss == "squared":
            assert mu == pytest.approx(eigenvalues[0], abs=1e-12)
    # At 0 these losses have their largest second derivative in every example.
    if loss in ("squared", "logistic", "huber", "squared hinge", "log-cosh"):
        assert pytest.approx(L, rel=1e-12) == largest


@given(seed=st.integers(0, 2**32), classes=st.integers(2, 4))
@settings(max_examples=15)
def test_softmax_lies_between_the_bounds_and_reaches_them_with_two_classes(
    seed: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(5, 3))
    L, mu = curvature.linear_model("softmax", A, regularization=0.1)
    for size in (0.0, 1.0):
        scores = A @ (size * rng.normal(size=(3, classes)))
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        H = sum(
            np.kron(np.diag(q) - np.outer(q, q), np.outer(a, a)) for q, a in zip(p, A, strict=True)
        ) / len(A) + 0.1 * np.eye(3 * classes)
        eigenvalues = np.linalg.eigvalsh(H)
        assert mu - 1e-12 <= eigenvalues[0]
        assert eigenvalues[-1] <= L * (1.0 + 1e-12)
        if size == 0.0 and classes == 2:
            assert pytest.approx(L) == eigenvalues[-1]


def test_the_problem_and_the_function_agree() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(20, 4)), np.where(rng.normal(size=20) > 0, 1.0, -1.0)
    problem = LogisticRegression(A, b, regularization=0.2)
    assert curvature.linear_model("logistic", A, regularization=0.2) == (problem.L, problem.mu)


@pytest.mark.parametrize(
    ("loss", "arguments", "message"),
    [
        ("poisson", {}, "must have bounded curvature, got 'poisson'"),
        ("hinge", {}, "loss must be one of 'squared'"),
        ("squared", {"weights": [1.0, -1.0]}, "weights must be one number of at least 0 a row"),
        ("squared", {"weights": [1.0]}, r"shape \(2,\), got shape \(1,\)"),
        ("squared", {"regularization": -1.0}, "regularization must be at least 0, got -1.0"),
    ],
)
def test_what_has_no_bound_is_refused(loss: str, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        curvature.linear_model(loss, [[1.0], [2.0]], **arguments)
    with pytest.raises(ValueError, match="features must be a table"):
        curvature.linear_model("squared", [1.0, 2.0])


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
    # The margin is at most (ln(1.648 sqrt(400) 2e6) / 63)^2 = 0.08 of the spread on each side.
    assert L - high <= 0.1 * (high - low) + rounding
    assert low - mu <= 0.1 * (high - low) + rounding


def test_too_few_products_are_refused_and_so_are_infinite_ones() -> None:
    start = np.ones(100)
    with pytest.raises(ValueError, match="steps must be larger for 100 variables"):
        curvature.spectrum(lambda v: np.arange(100.0) * v, start, steps=4)
    with pytest.raises(FloatingPointError, match="product must return finite numbers, got nan"):
        curvature.spectrum(lambda v: v * np.nan, start)


def path(rng: np.random.Generator, steps: int, sigma: float = 10.0) -> tuple[Float64, Float64]:
    """SGD on the paper's quadratic, by raw gradients."""
    problem = Quadratic.spaced(10, noise_std=sigma)
    x, points, gradients = np.full(10, 100.0), [], []
    for _ in range(steps):
        points.append(x)
        gradients.append(problem.oracle(x, rng))
        x = x - gradients[-1]
    return np.array(points), np.array(gradients)


def follow(denoiser: Denoiser, points: Float64, gradients: Float64) -> tuple[Float64, Float64]:
    """Return the denoised gradients, and L after each of them."""
    theta, bounds = [], []
    for x, g in zip(points, gradients, strict=True):
        theta.append(denoiser(x, g))
        bounds.append(denoiser.L)
    return np.array(theta), np.array(bounds)


@pytest.mark.parametrize("noise_std", [None, 10.0])
@pytest.mark.parametrize("window", [2, 8, None])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5)
def test_auto_finds_the_curvature_and_does_no_harm(
    window: int | None, noise_std: float | None, seed: int
) -> None:
    points, gradients = path(np.random.default_rng(seed), 32)
    truth = points * np.linspace(1.0, 1.0 / 3.0, 10)
    theta, bounds = follow(Denoiser("auto", window, noise_std=noise_std), points, gradients)
    np.testing.assert_array_equal(theta[0], gradients[0])
    np.testing.assert_array_equal(theta[np.isinf(bounds)], gradients[np.isinf(bounds)])
    # No curvature is below 1/3: whatever is believed, it is at least that.
    assert bounds.min() > 1.0 / 3.0
    assert bounds[-1] < 10.0
    assert np.sum((theta - truth) ** 2) < np.sum((gradients - truth) ** 2)


@given(seed=st.integers(0, 2**32), a=st.integers(-20, 20), b=st.integers(-20, 20))
@settings(max_examples=10)
def test_the_estimate_scales_with_the_objective_and_the_unit_of_length(
    seed: int, a: int, b: int
) -> None:
    points, gradients = path(np.random.default_rng(seed), 16)
    theta, bounds = follow(Denoiser("auto", 8), points, gradients)
    scaled, scaled_bounds = follow(Denoiser("auto", 8), points * 2.0**a, gradients * 2.0**b)
    np.testing.assert_allclose(scaled_bounds, bounds * 2.0 ** (b - a), rtol=1e-9)
    np.testing.assert_allclose(scaled, theta * 2.0**b, rtol=1e-5, atol=1e-5 * 2.0**b)


@given(seed=st.integers(0, 2**32), d=st.integers(1, 5))
@settings(max_examples=10)
def test_gradients_without_noise_are_left_as_they_are(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    H = rng.uniform(0.01, 1.0, d)
    points = np.empty((40, d))
    points[0] = rng.normal(size=d)
    for k in range(1, 40):
        points[k] = points[k - 1] - 0.8 * H * points[k - 1]
    theta, bounds = follow(Denoiser("auto", 8), points, H * points)
    known = bounds < np.inf
    assert np.linalg.norm((theta - H * points)[known]) <= 0.1 * np.linalg.norm(points[known])


@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["still", "constant", "zero", "huge", "repeated", "outliers"]),
    dtype=st.sampled_from(["float32", "float64"]),
)
@settings(max_examples=30)
def test_nothing_makes_the_answer_a_nan(seed: int, kind: str, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    points, gradients = rng.normal(size=(2, 30, 3))
    if kind == "still":
        points[:] = 1.0
    elif kind == "constant":
        gradients[:] = 1.0
    elif kind == "zero":
        gradients[:], points[:] = 0.0, 0.0
    elif kind == "huge":
        gradients *= 1e15
    elif kind == "repeated":
        points = points.repeat(2, axis=0)[:30]
    else:
        gradients *= np.exp(5.0 * rng.normal(size=(30, 1)))
    denoiser = Denoiser("auto", 5)
    theta, bounds = follow(denoiser, points.astype(dtype), gradients.astype(dtype))
    assert np.isfinite(theta).all()
    assert (bounds > 0.0).all()
    assert denoiser.solution.status.success


def test_repeated_queries_tell_the_noise() -> None:
    # Two places, many queries at each: the noise is known, and so is the curvature between them.
    rng = np.random.default_rng(3)
    points = np.repeat([[0.0, 0.0], [10.0, 0.0]], 20, axis=0)
    denoiser = Denoiser("auto", None)
    theta, bounds = follow(denoiser, points, 2.0 * points + rng.normal(size=(40, 2)))
    assert np.isinf(bounds[:20]).all()
    assert 2.0 < bounds[-1] < 8.0
    # Coinciding points are averaged even while L is unknown.
    assert np.linalg.norm(theta[19]) < 3.0 / math.sqrt(20)


@pytest.mark.parametrize("window", [2, 8, None])
@pytest.mark.parametrize("saved_after", [0, 1, 5, 11, 20])
def test_a_restored_estimate_goes_on_bit_for_bit(window: int | None, saved_after: int) -> None:
    points, gradients = path(np.random.default_rng(1), 32)
    original, restored = Denoiser("auto", window), Denoiser("auto", window)
    follow(original, points[:saved_after], gradients[:saved_after])
    file = io.BytesIO()
    np.savez(file, **original.state_dict())
    file.seek(0)
    with np.load(file, allow_pickle=False) as state:
        restored.load_state_dict(state)
    for mine, theirs in zip(
        follow(original, points[saved_after:], gradients[saved_after:]),
        follow(restored, points[saved_after:], gradients[saved_after:]),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_states_of_given_and_estimated_curvature_do_not_mix() -> None:
    given_, estimated = Denoiser(1.0, 4), Denoiser("auto", 4)
    with pytest.raises(ValueError, match="state was saved with L='auto'"):
        given_.load_state_dict(estimated.state_dict())
    with pytest.raises(ValueError, match="saved with L given, this one has L='auto'"):
        estimated.load_state_dict(given_.state_dict())
    with pytest.raises(ValueError, match=r"L must be a number, .* or None, got 'large'"):
        Denoiser("large")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="forget='fold' needs L"):
        Denoiser("auto", forget="fold")


def test_the_estimate_changes_rarely_and_by_a_factor() -> None:
    points, gradients = path(np.random.default_rng(2), 300)
    _, bounds = follow(Denoiser("auto", 8), points, gradients)
    ratios = bounds[1:][bounds[1:] != bounds[:-1]] / bounds[:-1][bounds[1:] != bounds[:-1]]
    assert 1 <= len(ratios) <= 10
    assert np.all((ratios <= 0.5) | (ratios >= 1.25))


def test_a_bound_that_is_refuted_goes_up_at_once() -> None:
    # The curvature grows a hundredfold on the way; L follows.
    rng = np.random.default_rng(4)
    points = 10.0 * rng.normal(size=(80, 10))
    slopes = np.where(np.arange(80) < 40, 1.0, 100.0)[:, None]
    gradients = slopes * points + rng.normal(size=points.shape)
    denoiser = Denoiser("auto", 4)
    theta, bounds = follow(denoiser, points, gradients)
    assert bounds[39] < 3.0
    assert 100.0 <= bounds[-1] < 300.0
    assert bounds[40] > 10.0
    truth = slopes * points
    settled = np.r_[10:40, 50:80]
    error, raw = (np.sum((g - truth)[settled] ** 2) for g in (theta, gradients))
    assert error <= raw


def test_with_a_lower_bound_above_the_estimate_nothing_is_done() -> None:
    points, gradients = path(np.random.default_rng(5), 20)
    theta, _ = follow(Denoiser("auto", 8, mu=1e6), points, gradients)
    np.testing.assert_array_equal(theta, gradients)


def test_ages_are_powers_of_two_within_the_window() -> None:
    assert [ages(n) for n in range(6)] == [[], [], [1], [1, 2], [1, 2], [1, 2, 4]]
    estimate = StreamEstimate()
    estimate.observe(np.zeros(0), np.zeros(0), np.zeros(0))
    assert math.isinf(estimate.L)
