import numpy as np
import pytest

from coco_denoiser.paper.problems import Quadratic


def test_the_paper_problem() -> None:
    problem = Quadratic.spaced(10, noise_std=10)
    assert problem.hessian[0] == problem.L == 1
    assert problem.hessian[-1] == pytest.approx(1 / 3)
    assert problem.mu == pytest.approx(1 / 3)
    assert np.allclose(np.diff(problem.hessian), -(2 / 3) / 9)
    assert not problem.minimizer.any()


def test_oracle_noise_has_the_stated_moments() -> None:
    problem = Quadratic.spaced(3, noise_std=5)
    x = np.array([1.0, -2.0, 3.0])
    runs = 40_000
    noise = problem.oracle(np.tile(x, (runs, 1)), np.random.default_rng(0)) - problem.gradient(x)
    # Five standard errors of a mean, of a variance and of a covariance.
    assert np.abs(noise.mean(axis=0)).max() < 5 * 5 / np.sqrt(runs)
    covariance = np.cov(noise.T)
    assert np.abs(covariance - 25 * np.eye(3)).max() < 5 * 25 * np.sqrt(2 / runs)


def test_what_is_passed_in_is_copied() -> None:
    hessian, centre = np.ones(2), np.zeros(2)
    problem = Quadratic(hessian, minimizer=centre)
    hessian[:], centre[:] = 7, 7
    assert problem.gradient(np.ones(2)).tolist() == [1, 1]
