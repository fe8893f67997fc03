"""What every optimizer promises, whatever its method."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coco_denoiser.paper.optimizers import (
    IGT,
    SGD,
    STRSAGA,
    Adam,
    GradientEMA,
    HeavyBall,
    Optimizer,
    ScheduleFree,
    run,
)
from coco_denoiser.paper.problems import LogisticRegression
from coco_denoiser.typing import Array
from tests.paper.problems.test_logistic import small

Make = Callable[..., Optimizer]

# Each with a step size that suits the problem below.
OPTIMIZERS: dict[type[Optimizer], float] = {
    SGD: 0.05,
    Adam: 0.02,
    STRSAGA: 0.1,
    HeavyBall: 0.005,
    GradientEMA: 0.05,
    IGT: 0.1,
    ScheduleFree: 0.5,
}


@pytest.fixture(params=OPTIMIZERS)
def make(request: pytest.FixtureRequest) -> Make:
    kind = request.param
    return lambda step=OPTIMIZERS[kind], **options: kind(step, **options)


@pytest.fixture(scope="module")
def problem() -> LogisticRegression:
    return small(n=50)[0]


class Recorder:
    """A denoiser that changes nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Array, Array]] = []

    def __call__(self, x: Array, g: Array) -> Array:
        self.calls.append((x.copy(), g.copy()))
        return g.copy()


def test_it_converges_to_the_minimizer(make: Make, problem: LogisticRegression) -> None:
    x0 = problem.minimizer + 1.0
    path = run(make(), problem, x0, steps=1500, rng=np.random.default_rng(1))
    gap = problem.value(path) - problem.value(problem.minimizer)
    assert gap[-300:].mean() < 0.05 * gap[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_keeps_the_dtype_the_shape_and_what_is_passed_in(make: Make, dtype: type) -> None:
    optimizer = make()
    x: Array = np.ones((2, 3), dtype)
    g: Array = np.full((2, 3), 0.5, dtype)
    first = optimizer.step(x, g)
    kept = first.copy()
    g[:] = 7
    second = optimizer.step(first, g)
    assert second.dtype == first.dtype == dtype
    assert second.shape == first.shape == (2, 3)
    assert np.array_equal(x, np.ones((2, 3)))
    assert np.array_equal(g, np.full((2, 3), 7))
    assert np.array_equal(first, kept)


def test_the_path_depends_on_the_seed_alone(make: Make, problem: LogisticRegression) -> None:
    used = make()
    run(used, problem, np.zeros(4), steps=7, rng=np.random.default_rng(9))
    paths = [
        run(optimizer, problem, np.ones(4), steps=60, rng=np.random.default_rng(2))
        for optimizer in (make(), used)
    ]
    assert np.array_equal(paths[0], paths[1])
    other = run(make(), problem, np.ones(4), steps=60, rng=np.random.default_rng(3))
    assert not np.array_equal(paths[0], other)


# As in the paper, STRSAGA denoises the gradient from which it forms its estimate.
@pytest.mark.parametrize("make", [kind for kind in OPTIMIZERS if kind != STRSAGA], indirect=True)
def test_the_denoiser_stands_between_estimate_and_update(
    make: Make, problem: LogisticRegression
) -> None:
    recorder, rng = Recorder(), np.random.default_rng(2)
    watched, alone = make(denoiser=recorder), make()
    x: Array = np.ones(4)
    points, answers = [], []
    for _ in range(40):
        points.append(x)
        answers.append(watched.answer(x))
        x = watched.advance(problem, x, rng)
        # The update alone, fed with what came out of the denoiser, walks the same path.
        seen, denoised = recorder.calls[-1]
        assert np.array_equal(seen, points[-1])
        assert np.array_equal(alone.step(points[-1], denoised), x)
    path = run(make(), problem, np.ones(4), steps=39, rng=np.random.default_rng(2))
    assert np.array_equal(path, answers)
    assert np.array_equal(answers[0], np.ones(4))


def test_a_step_asks_for_one_gradient(
    make: Make, problem: LogisticRegression, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    example = LogisticRegression.example_gradient

    def count_examples(self: LogisticRegression, x: Array, index: Any) -> Array:
        nonlocal asked
        asked += np.size(index)
        return example(self, x, index)

    monkeypatch.setattr(LogisticRegression, "example_gradient", count_examples)
    run(make(), problem, np.ones(4), steps=250, rng=np.random.default_rng(4))
    assert asked == 250


def test_the_schedule_is_asked_for_steps_from_one(make: Make) -> None:
    asked: list[int] = []

    def schedule(k: int) -> float:
        asked.append(k)
        return 0.1

    optimizer = make(schedule)
    for _ in range(3):
        optimizer.step(np.ones(2), np.ones(2))
    optimizer.reset()
    optimizer.step(np.ones(2), np.ones(2))
    assert asked == [1, 2, 3, 1]


def test_bad_arguments_are_named(make: Make) -> None:
    for step_size in (0.0, np.nan):
        with pytest.raises(ValueError, match=r"step_size must be (positive|finite)"):
            make(step_size)
    with pytest.raises(TypeError, match="denoiser"):
        make(denoiser=3)
    with pytest.raises(ValueError, match="shape of x"):
        make().step(np.ones(3), np.ones(1))
