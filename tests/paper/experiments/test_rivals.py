"""What the comparison of rivals rests on: equal budgets, equal noise, and a true limit."""

import numpy as np
import pytest

from coco_denoiser.paper.experiments.reproduce import select
from coco_denoiser.paper.experiments.rivals import EXPERIMENTS, RIVALS, Rival, limit, walk
from coco_denoiser.paper.files import RefusedError
from coco_denoiser.paper.problems import Quadratic


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.series[0])
def test_every_series_has_a_distance_for_each_call(rival: Rival) -> None:
    problem, starts = Quadratic.spaced(3, noise_std=1.0), np.ones((2, 3))
    rng = np.random.default_rng(0)
    distances, _ = walk(rival, problem, starts, 9, rng, step=0.1, second=rival.textbook)
    for distance in distances.values():
        assert distance.shape == (2, 10)
        np.testing.assert_allclose(distance[:, 0], np.sqrt(3.0))


def test_runs_of_a_batch_are_denoised_apart() -> None:
    sgd = next(rival for rival in RIVALS if rival.denoiser)
    problem = Quadratic.spaced(3)  # no noise: a run depends on its start alone
    starts = np.array([[1.0, 2.0, 3.0], [-50.0, 7.0, 0.0]])
    both, *each = (
        walk(sgd, problem, x, 12, np.random.default_rng(0), step=0.5, second=0)[0]
        for x in (starts, starts[:1], starts[1:])
    )
    for name, distances in both.items():
        assert np.allclose(distances, np.concatenate([one[name] for one in each]), atol=1e-6)


def test_the_limit_is_attained_by_whoever_knows_the_hessian() -> None:
    problem, rng = Quadratic.spaced(10, noise_std=10.0), np.random.default_rng(0)
    x = rng.uniform(-100, 100, size=(5_000, 4, 10))  # wherever the four points are
    estimate = (x - problem.oracle(x, rng) / problem.hessian).mean(axis=1)
    distance = np.linalg.norm(estimate - problem.minimizer, axis=1)
    error = distance.std() / np.sqrt(len(distance))
    assert abs(distance.mean() - limit(problem) / 2) < 4 * error
    root_mean_square = 10 * np.sqrt((problem.hessian**-2.0).sum())
    assert 0.9 * root_mean_square < limit(problem) < root_mean_square


def test_the_first_words_of_a_name_stand_for_the_family() -> None:
    assert select(["rivals"]) == list(EXPERIMENTS)
    assert [e.name for e in select(["rivals-quadratic"])] == ["rivals-quadratic"]
    with pytest.raises(RefusedError, match="rival'"):
        select(["rival"])
