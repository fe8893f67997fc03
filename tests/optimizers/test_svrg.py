import numpy as np
import pytest

from coco_denoiser.optimizers import SSVRG, SVRG, run
from coco_denoiser.problems import LogisticRegression
from coco_denoiser.problems.base import Indices
from coco_denoiser.typing import Array


class Watched(LogisticRegression):
    """A problem that remembers the sizes of the batches asked for."""

    def __init__(self, n: int = 100) -> None:
        rng = np.random.default_rng(0)
        labels = np.where(rng.random(n) < 0.5, -1.0, 1.0)
        super().__init__(rng.standard_normal((n, 3)), labels, regularization=0.1)
        self.batches: list[int] = []

    def example_gradient(self, x: Array, index: int | Indices) -> Array:
        self.batches.append(int(np.size(index)))
        return super().example_gradient(x, index)

    def gradient(self, x: Array) -> Array:
        self.batches.append(self.size)
        return super().gradient(x)


def test_at_the_snapshot_the_direction_is_the_full_gradient() -> None:
    problem, rng = Watched(), np.random.default_rng(0)
    optimizer = SVRG(0.1, period=7)
    x: Array = np.ones(3)
    for step in range(30):
        g = optimizer.estimate(problem, x, rng)
        if step % 7 == 0:
            assert np.array_equal(g, LogisticRegression.gradient(problem, x))
        x = optimizer.step(x, g)


def test_back_at_the_snapshot_every_term_gives_the_full_gradient() -> None:
    problem, rng, x = Watched(), np.random.default_rng(0), np.ones(3)
    optimizer = SVRG(0.1)
    full = optimizer.estimate(problem, x, rng)
    for _ in range(20):
        assert np.allclose(optimizer.estimate(problem, x, rng), full, atol=1e-15)


def test_between_snapshots_the_direction_is_unbiased() -> None:
    problem, rng = Watched(), np.random.default_rng(0)
    optimizer = SVRG(0.1, period=10**6)
    optimizer.estimate(problem, np.ones(3), rng)
    x = np.array([0.5, 1.5, 0.0])
    draws = np.array([optimizer.estimate(problem, x, rng) for _ in range(5000)])
    error = 5 * draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - problem.gradient(x)) < error).all()


def test_the_period_is_twice_the_size_unless_given() -> None:
    problem = Watched(n=10)
    run(SVRG(0.1), problem, np.ones(3), steps=41, rng=np.random.default_rng(0))
    assert np.flatnonzero(np.array(problem.batches) == 10).tolist() == [0, 39, 78]


def test_svrg_converges_linearly() -> None:
    problem = Watched()
    rng = np.random.default_rng(0)
    optimizer = SVRG(1 / (4 * problem.L_max))
    x = run(optimizer, problem, np.ones(3), steps=3000, rng=rng).iterates[-1]
    assert np.linalg.norm(x - problem.minimizer) < 1e-9


def test_streaming_batches_grow_until_they_are_the_whole_sum() -> None:
    problem = Watched()
    optimizer = SSVRG(0.1, batch=3, growth=3.0, inner=4)
    run(optimizer, problem, np.ones(3), steps=60, rng=np.random.default_rng(0))
    batches = [size for size in problem.batches if size > 1]
    assert batches[:5] == [3, 9, 27, 81, 100]
    assert set(batches[5:]) == {100}


def test_streaming_stages_have_one_to_inner_steps() -> None:
    problem = Watched()
    optimizer = SSVRG(0.1, batch=5, growth=1.0, inner=4)
    run(optimizer, problem, np.ones(3), steps=400, rng=np.random.default_rng(0))
    starts = np.flatnonzero(np.array(problem.batches) == 5)
    # Every step but the snapshot's asks for two gradients.
    lengths = (np.diff(starts) - 1) // 2 + 1
    assert set(lengths) == {1, 2, 3, 4}


def test_at_a_streaming_snapshot_the_direction_is_that_of_the_batch() -> None:
    problem, x = Watched(), np.ones(3)
    g = SSVRG(0.1, batch=8).estimate(problem, x, np.random.default_rng(4))
    rng = np.random.default_rng(4)
    rng.random()  # the number of steps of the stage
    batch = rng.integers(problem.size, size=8)
    expected = np.mean([problem.example_gradient(x, int(i)) for i in batch], axis=0)
    assert np.allclose(g, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        (SVRG, {"period": 0}, "period"),
        (SVRG, {"period": 2.5}, "period"),
        (SSVRG, {"batch": 0}, "batch"),
        (SSVRG, {"inner": -1}, "inner"),
        (SSVRG, {"growth": 0.5}, "growth"),
        (SSVRG, {"growth": np.inf}, "growth"),
    ],
)
def test_bad_options_are_named(kind: type, options: dict[str, float], word: str) -> None:
    with pytest.raises((TypeError, ValueError), match=word):
        kind(0.1, **options)
