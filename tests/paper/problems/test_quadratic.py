import numpy as np

from coco_denoiser.paper.problems import Quadratic


def test_the_paper_problem() -> None:
    problem = Quadratic.spaced(10, noise_std=10)
    np.testing.assert_allclose(problem.hessian, 1 - np.arange(10) * (2 / 3) / 9)
    assert (problem.L, problem.mu) == (1.0, problem.hessian[-1])
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
