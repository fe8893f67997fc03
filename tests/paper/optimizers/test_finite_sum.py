import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.paper.optimizers import STRSAGA, run
from coco_denoiser.paper.problems import LogisticRegression, Quadratic
from coco_denoiser.paper.problems.base import Indices
from coco_denoiser.typing import Array


class Watched(LogisticRegression):
    """A problem that remembers which term was asked where."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        labels = np.where(rng.random(12) < 0.5, -1.0, 1.0)
        super().__init__(rng.standard_normal((12, 3)), labels, regularization=0.1)
        self.last: dict[int, Array] = {}
        self.asked: list[int] = []

    def example_gradient(self, x: Array, index: int | Indices) -> Array:
        g = super().example_gradient(x, index)
        self.asked.append(int(index))
        self.last[int(index)] = g
        return g.copy()


@given(seed=st.integers(0, 10**6), share=st.sampled_from([1.0, 0.5]))
def test_the_running_average_is_the_mean_of_the_stored_gradients_at_every_step(
    seed: int, share: float
) -> None:
    """And what is stored, and enters the step, is what the denoiser makes of a term's gradient."""
    problem, rng = Watched(seed), np.random.default_rng(seed)
    optimizer = STRSAGA(0.1, denoiser=lambda _, g: share * g)
    x: Array = optimizer.advance(problem, np.ones(3), rng)
    for _ in range(59):
        before, old, held = optimizer._mean.copy(), optimizer._alpha.copy(), optimizer._count
        after = optimizer.advance(problem, x, rng)
        term = problem.asked[-1]
        g = share * problem.last[term]
        assert np.allclose(optimizer._alpha[term], g, atol=1e-14)
        mean = before * held / optimizer._count  # what arrives enters with 0
        assert np.allclose(x - after, 0.1 * (g - old[term] + mean), atol=1e-14)
        # Kept apart by the problem: each term's gradient where it was last asked.
        assert optimizer._count == len(problem.last)
        expected = share * np.mean(list(problem.last.values()), axis=0)
        assert np.allclose(optimizer._mean, expected, atol=1e-14)
        x = after


@given(seed=st.integers(0, 10**6))
def test_strsaga_takes_an_arrival_and_an_old_sample_by_turns(seed: int) -> None:
    problem = Watched(seed)
    run(STRSAGA(0.1), problem, np.ones(3), steps=240, rng=np.random.default_rng(seed))
    seen: set[int] = set()
    for step, term in enumerate(problem.asked):
        new = step % 2 == 0 and len(seen) < problem.size
        assert (term not in seen) is new
        seen.add(term)
    assert set(problem.asked[40:]) == seen == set(range(problem.size))


def test_runs_side_by_side_have_tables_and_orders_of_their_own() -> None:
    """Until all terms have arrived no run repeats one; each then draws from its own past."""
    problem = LogisticRegression(np.eye(4), [1.0, -1.0, 1.0, -1.0], regularization=0.1)
    asked: list[Array] = []

    def watched(x: Array, index: Indices) -> Array:
        asked.append(np.asarray(index))
        return LogisticRegression.example_gradient(problem, x, index)

    problem.example_gradient = watched  # type: ignore[assignment, method-assign]
    optimizer, rng = STRSAGA(0.5), np.random.default_rng(3)
    x: Array = np.zeros((50, 4))
    for _ in range(200):
        x = optimizer.advance(problem, x, rng)
        stored = optimizer._alpha.sum(axis=1) / optimizer._count
        assert np.allclose(optimizer._mean, stored, atol=1e-14)
    arrivals = np.stack(asked[:8:2], axis=1)
    assert np.array_equal(np.sort(arrivals, axis=1), np.tile(np.arange(4), (50, 1)))
    assert len({tuple(row) for row in arrivals}) > 10
    assert np.allclose(x, problem.minimizer, atol=1e-6)


def test_the_table_is_of_one_start_on_one_finite_sum_until_reset() -> None:
    optimizer, rng = STRSAGA(0.1), np.random.default_rng(0)
    with pytest.raises(TypeError, match="finite sum"):
        optimizer.advance(Quadratic([1.0]), np.ones(1), rng)
    optimizer.advance(Watched(0), np.ones(3), rng)
    with pytest.raises(ValueError, match="reset"):
        optimizer.advance(Watched(1), np.ones(3), rng)
    optimizer.reset()
    optimizer.advance(Watched(1), np.ones(3), rng)
