"""What the comparison of rivals rests on: equal budgets, equal noise, and a true limit."""

import numpy as np

from coco_denoiser.paper.experiments.rivals import RIVALS, limit, walk
from coco_denoiser.paper.problems import Quadratic


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
