"""The theorems of docs/theory.md, or what their proofs rest on, for every draw of the noise.

What is left to the proofs: that errors grow, with maxima of the noise (1), that variances fall
where an answer moves no further than its gradients (2), and that steps along an answer whose error
is bounded converge (5) and find the zeros (8).
"""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser.paper.experiments.counterexample import star
from coco_denoiser.typing import Float64
from tests.windows import distances

Gradient = Callable[[Float64], Float64]
Problem = tuple[Gradient, float, Float64, Float64]
ROUNDING = 2e-5  # of the largest number involved: what a relative gap of 1e-9 leaves


def cone(x: Float64) -> Float64:
    """The gradient of half the squared distance to the cone of x with x[0] <= -|x[1:]|."""
    height, across = x[..., :1], x[..., 1:]
    radius = np.linalg.norm(across, axis=-1, keepdims=True)
    length = 0.5 * (radius - height)
    with np.errstate(invalid="ignore", divide="ignore"):
        side = np.concatenate((-length, across * (length / radius)), axis=-1)
    nearest = np.where(height >= radius, 0.0, np.where(height <= -radius, x, side))
    return np.asarray(x - nearest)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """The gradient of a convex function, its L, points and noise, of all sizes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    K, d = draw(st.integers(2, 9)), draw(st.integers(1, 6))
    L = float(np.exp(rng.uniform(-2, 2)))
    curvatures = rng.uniform(0, L, d)
    family: dict[str, Gradient] = {
        "quadratic": lambda x: curvatures * x,
        "log cosh": lambda x: L * np.tanh(x),
        "distance to a cone": lambda x: L * cone(x),
    }
    gradient = family[draw(st.sampled_from(sorted(family)))]
    points = np.exp(rng.uniform(-4, 3)) * rng.normal(size=(K, d))
    return gradient, L, points, np.exp(rng.uniform(-1, 2)) * rng.normal(size=(K, d))


def scale(*arrays: Float64) -> float:
    return max(float(np.abs(each).max()) for each in arrays)


# 1. The error of one gradient can grow.


def root(noise: Float64) -> float:
    """The largest mean of the first number and the largest others."""
    ordered = np.concatenate((noise[:1], -np.sort(-noise[1:])))
    return float(np.max(np.cumsum(ordered) / np.arange(1, len(noise) + 1)))


@given(leaves=st.integers(2, 24), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_far_away_the_root_is_the_largest_running_mean(leaves: int, seed: int) -> None:
    points = star(leaves + 1, 1e5)
    exact = cone(points)
    noise = np.random.default_rng(seed).normal(size=points.shape)
    theta = coco.denoise(points, exact + noise, L=1.0)
    np.testing.assert_allclose(theta[0], [root(noise[:, 0]), *noise[0, 1:]], atol=1e-3)
    # The circle's own constraints are slack: only the leaves above the root come down to it.
    below = np.minimum(noise[1:, 0], theta[0, 0])
    np.testing.assert_allclose(theta[1:, 0] - exact[1:, 0], below, atol=1e-3)


# 2. Every variance falls, whatever L.


@given(problem=problems(), seed=st.integers(0, 2**32), factor=st.sampled_from([0.1, 1.0, 10.0]))
def test_denoising_is_firmly_non_expansive_whatever_l(
    problem: Problem, seed: int, factor: float
) -> None:
    gradient, L, points, noise = problem
    other = np.random.default_rng(seed).permutation(noise)
    g, h = gradient(points) + noise, gradient(points) + other
    one, two = (coco.denoise(points, each, L=factor * L) for each in (g, h))
    inner = np.sum((one - two) * (g - h))
    assert np.sum((one - two) ** 2) <= inner + ROUNDING * scale(g, h, L * points) ** 2


# 3. Averaging is the floor of every error, closeness the ceiling.


@given(problem=problems(), factor=st.sampled_from([0.1, 1.0, 10.0]))
def test_what_averaging_leaves_depends_on_differences_of_the_noise_only(
    problem: Problem, factor: float
) -> None:
    """So it is independent of the mean noise, and errors add up: d sigma^2 / K + E|e|^2."""
    gradient, L, points, noise = problem
    exact, mean = gradient(points), noise.mean(axis=0)
    one = coco.denoise(points, exact + noise, L=factor * L) - exact - mean
    two = coco.denoise(points, exact + noise - 2 * mean, L=factor * L) - exact + mean
    size = scale(exact, noise, L * points)
    np.testing.assert_allclose(one, two, atol=ROUNDING * size)
    np.testing.assert_allclose(one.sum(axis=0), 0.0, atol=1e-9 * size)
    squares = [np.sum((each + sign * mean) ** 2, axis=1) for each, sign in ((one, 1), (two, -1))]
    assert np.all(np.mean(squares, axis=0) >= np.sum(mean**2) - ROUNDING * size**2)


@given(problem=problems(), mu=st.sampled_from([0.0, -0.5, -1.0]))
def test_what_averaging_leaves_is_bounded_by_distances_and_by_the_noise(
    problem: Problem, mu: float
) -> None:
    gradient, L, points, noise = problem
    exact = gradient(points)
    theta = coco.denoise(points, exact + noise, model=coco.Cocoercive(L, mu * L))
    left = theta - exact - noise.mean(axis=0)
    apart = distances(points)
    slack = ROUNDING * scale(exact, noise, L * points)
    width = L - mu * L
    assert np.all(np.linalg.norm(left, axis=1) <= width * apart.mean(axis=1) + slack)
    total = np.linalg.norm(left)
    assert total <= width * np.linalg.norm(points - points.mean(axis=0)) + slack
    assert total <= np.linalg.norm(noise - noise.mean(axis=0)) + slack


# 4. The right L is best for two points on a line.


@given(
    slope=st.floats(0.1, 10.0),
    distance=st.floats(0.1, 10.0),
    factor=st.floats(0.05, 20.0),
    noise=st.tuples(st.floats(-30.0, 30.0), st.floats(-30.0, 30.0)),
)
def test_no_other_l_has_a_smaller_error_whatever_the_noise(
    slope: float, distance: float, factor: float, noise: tuple[float, float]
) -> None:
    points = np.array([[0.0], [distance]])
    exact = slope * points
    observed = exact + np.array(noise)[:, None]

    def error(L: float) -> float:
        return float(np.sum((coco.denoise(points, observed, L=L) - exact) ** 2))

    assert error(slope) <= error(factor * slope) + 1e-6


# 6. In high dimension COCO is a fixed filter, and its gain can be computed.


def orthogonal_noise(eigenvalues: Float64, step: float, K: int, steps: int) -> Float64:
    """The mean square of x, (steps + 1, eigenvalues): each step's noise is a new direction."""
    x, denoiser = np.zeros((len(eigenvalues), steps)), coco.Denoiser(L=1.0, window=K)
    squares = [np.sum(x**2, axis=1)]
    for k in range(steps):
        g = eigenvalues[:, None] * x
        g[:, k] += 1.0
        x = x - step * denoiser(x, g)
        squares.append(np.sum(x**2, axis=1))
    return np.array(squares)


def settled_sgd(eigenvalues: Float64, step: float) -> Float64:
    return np.asarray(step / (2 * eigenvalues - step * eigenvalues**2))


@pytest.mark.parametrize(("K", "step"), [(2, 1.0), (5, 0.5)])
def test_in_high_dimension_every_run_is_that_of_orthogonal_noise(K: int, step: float) -> None:
    eigenvalues, copies = np.array([1.0, 0.5, 0.2]), 2000
    predicted = orthogonal_noise(eigenvalues, step, K, 12)
    rng = np.random.default_rng(0)
    x, denoiser = np.zeros((3, copies)), coco.Denoiser(L=1.0, window=K)
    for k in range(12):
        observed = eigenvalues[:, None] * x + rng.normal(size=x.shape)
        x = x - step * denoiser(x, observed)
        np.testing.assert_allclose(np.mean(x**2, axis=1), predicted[k + 1], rtol=0.15)
    reached = 1 - (1 - step * eigenvalues) ** 24
    sgd = np.sum(settled_sgd(eigenvalues, step) * reached)
    assert np.sum(predicted[-1]) < 0.9 * sgd


def test_two_points_and_a_step_of_1_over_l_gain_an_eighth_at_least() -> None:
    """All curvatures equal: the recursion of the proof, its bound, and where it settles."""
    squares = orthogonal_noise(np.ones(1), 1.0, 2, 30)[:, 0]
    V, before, product, last = 1.0, 0.0, 0.0, 0.0
    for k in range(1, 30):
        D = V + before - 2 * product
        a = 0.25 * (1 - np.sqrt(D / (D + 12 - 8 * last)))
        following = 1 - 4 * a + 8 * a**2 + 4 * a**2 * (1 - 2 * last) + a**2 * D
        product = a * (V - product) + 2 * a * (1 - 2 * last)
        V, before, last = following, V, a
        assert squares[k + 1] == pytest.approx(V, abs=1e-6)
        assert V <= 7 / 8
        assert 0 <= product <= 1
    assert abs(V - 0.6433) < 1e-4


@pytest.mark.parametrize("K", [2, 3, 6])
def test_short_steps_gain_what_the_first_order_law_says(K: int) -> None:
    a = np.array([1.0, 0.7, 0.5])
    law = np.average(a * (K**2 - 1) / (6 * K) - (a - 0.5) * (K - 1) / 4, weights=1 / a)
    slopes = []
    for step in (0.1, 0.05):
        final = orthogonal_noise(a, step, K, round(9 / step))[-1]
        slopes.append((1 - np.sqrt(final.sum() / settled_sgd(a, step).sum())) / step)
    assert 2 * slopes[1] - slopes[0] == pytest.approx(law, rel=0.03)


# 7. L = 1/step.


@given(
    K=st.integers(2, 7), d=st.integers(1, 4), share=st.floats(0.5, 1.5), seed=st.integers(0, 2**32)
)
@settings(max_examples=40)
def test_of_equal_curvatures_a_multiple_of_the_centroid_is_left(
    K: int, d: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    curvature = float(np.exp(rng.uniform(-2, 2)))
    step = max(share * (K + 1), 1.05) / curvature
    factor = 1 - step * curvature
    path = list(rng.normal(size=(K, d)))
    for _ in range(3 * K):
        points = np.array(path[-K:])
        theta = coco.denoise(points, curvature * points, L=1 / step)[-1]
        path.append(points[-1] - step * theta)
        expected = factor * points.mean(axis=0)
        np.testing.assert_allclose(path[-1], expected, atol=ROUNDING * K * scale(points))
