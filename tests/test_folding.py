"""Folding: the laws of the fold, and a stream that folds against one that is folded by hand."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coco_denoiser as coco
from coco_denoiser import Cocoercive, Denoiser
from coco_denoiser.typing import Float64
from tests.test_streaming import follow, sgd

SEEDS = st.integers(0, 2**32)


def by_hand(
    points: Float64, gradients: Float64, v: Float64, K: int, bounds: list[float], mu: float
) -> Float64:
    """Fold with nothing but the solver for batches: its second gradient, and its weights."""
    held: list[tuple[Float64, Float64, float]] = []
    answers = []
    for *new, L in zip(points, gradients, v, bounds, strict=True):
        if len(held) == K:
            x, g, n = (np.array(column) for column in zip(*held[:2], strict=True))
            pair = coco.solve(x, g, model=Cocoercive(L, mu), noise_variance=n)
            # The weighted centroid of the pair is kept, and the fold keeps its second half.
            np.testing.assert_allclose(
                (1 / n) @ pair.gradients,
                (1 / n) @ g,
                rtol=1e-9,
                atol=1e-9 * np.abs(g / n.min()).max(),
            )
            held[:2] = [(x[1], pair.gradients[1], float(pair.weights[1] ** 2 @ n))]
        held.append((new[0], new[1], new[2]))
        x, g, n = (np.array(column) for column in zip(*held, strict=True))
        batch = coco.solve(x, g, model=Cocoercive(L, mu), noise_variance=n)
        answers.append(batch.gradients[-1])
        if len(held) == K == 2:  # the answer is the past from now on
            held = [(x[1], batch.gradients[1], float(batch.weights[1] ** 2 @ n))]
    return np.array(answers)


@pytest.mark.parametrize("K", [2, 4])
@given(
    mu=st.sampled_from([-1.0, 0.0, 1.0 / 3.0]),
    seed=SEEDS,
    d=st.integers(1, 12),
    step=st.sampled_from([1.0, 0.3, 1e-3]),
)
@settings(max_examples=8)
def test_a_stream_folds_as_one_would_by_hand(
    K: int, mu: float, seed: int, d: int, step: float
) -> None:
    rng = np.random.default_rng(seed)
    points, gradients = sgd(rng, 10, d, step)
    v = rng.uniform(0.2, 5.0, 10)
    denoiser = Denoiser(model=Cocoercive(1.0, mu), window=K, forget="fold")
    found = follow(denoiser, points, gradients, v)
    atol = 1e-8 if K == 2 else 1e-3  # exact, and two solutions to a relative gap of 1e-9
    expected = by_hand(points, gradients, v, K, [1.0] * 10, mu)
    np.testing.assert_allclose(found, expected, atol=atol)


@pytest.mark.parametrize("K", [2, 4])
@given(seed=SEEDS, equal=st.booleans())
@settings(max_examples=10)
def test_at_one_point_folding_is_the_weighted_mean_of_everything(
    K: int, seed: int, equal: bool
) -> None:
    rng = np.random.default_rng(seed)
    d, count = 4, 15
    gradients = np.tile(rng.normal(size=d), (count, 1)) if equal else rng.normal(size=(count, d))
    v = rng.uniform(0.1, 10.0, count)
    denoiser = Denoiser(L=1.0, window=K, forget="fold")
    found = follow(denoiser, np.tile(rng.normal(size=d), (count, 1)), gradients, v)
    precisions = np.cumsum(1 / v)
    np.testing.assert_allclose(
        found, np.cumsum(gradients / v[:, None], axis=0) / precisions[:, None], atol=1e-9
    )
    held = denoiser.state_dict()["variances"]
    assert (1 / held).sum() == pytest.approx(precisions[-1], rel=1e-9)


@given(seed=SEEDS, d=st.integers(1, 6), L=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=10)
def test_where_everything_is_averaged_a_fixed_step_is_a_decreasing_one(
    seed: int, d: int, L: float
) -> None:
    noise = np.random.default_rng(seed).normal(size=(20, d))
    curvature = L * np.linspace(1.0, 0.1, d)
    model = Cocoercive(L, L * (1 - 1e-13))  # c = L, r = 0
    denoiser = Denoiser(model=model, window=2, forget="fold")
    fixed = falling = np.ones(d)
    for k, e in enumerate(noise, start=1):
        fixed = fixed - denoiser(fixed, curvature * fixed + L * e) / L
        falling = falling - (curvature * falling + L * e) / (L * k)
        np.testing.assert_allclose(fixed, falling, atol=1e-9)


@pytest.mark.parametrize("K", [3, 8])
@given(seed=SEEDS, d=st.integers(1, 30), step=st.sampled_from([1.0, 0.1, 1e-3]))
@settings(max_examples=8)
def test_the_tables_stay_those_of_the_vectors(K: int, seed: int, d: int, step: float) -> None:
    denoiser = Denoiser(L=1.0, window=K, forget="fold")
    points, gradients = sgd(np.random.default_rng(seed), 40, d, step)
    follow(denoiser, points, gradients)
    state = denoiser.state_dict()
    dx, dh = (v[:, None] - v for v in (state["points"], state["residuals"]))
    X, H = (np.linalg.norm(v, axis=2) for v in (dx, dh))
    np.testing.assert_allclose(state["point_distances"], X, rtol=1e-12)
    np.testing.assert_allclose(state["residual_distances"], H, rtol=1e-10, atol=1e-12 * H.max())
    np.testing.assert_allclose(X * H * state["cosines"], (dx * dh).sum(axis=2), atol=1e-9)


@pytest.mark.parametrize("K", [2, 3])
def test_the_solution_ends_with_the_answer_in_a_copy_too(K: int) -> None:
    points, gradients = sgd(np.random.default_rng(4), 9, 6)
    denoiser = Denoiser(L=1.0, window=K, forget="fold")
    answers = follow(denoiser, points, gradients)
    for each in (denoiser, copy.deepcopy(denoiser), pickle.loads(pickle.dumps(denoiser))):
        found = each.solution
        assert found.status is coco.Status.SOLVED
        assert max(found.gap, found.violation) <= 1e-9
        assert found.gradients.shape == (len(denoiser), 6) == (1 if K == 2 else K, 6)
        np.testing.assert_allclose(found.gradients[-1], answers[-1], atol=1e-9)


def test_a_merged_residual_that_float32_cannot_hold_is_refused() -> None:
    """Each number is in range, but not the gradient that steep bounds make of the oldest two."""
    L = 1.0
    denoiser = Denoiser(model=Cocoercive(lambda: L, lambda: L / 2.0), window=3, forget="fold")
    ones = np.ones(3, np.float32)
    for k in range(3):
        denoiser(k * 1e30 * ones, ones)
    L = 1e10
    with pytest.raises(ValueError, match="must not exceed"):
        denoiser(3e30 * ones, ones)
    L = 1.0
    assert np.isfinite(denoiser(3e30 * ones, ones)).all()
