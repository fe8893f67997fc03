"""The closed forms that the experiments are held against, checked by other means."""

import numpy as np
import pytest
from scipy import integrate, stats

from coco_denoiser.paper.experiments import (
    counterexample,
    logistic,
    mse_vs_variance,
    synthetic,
    two_points,
)
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.claims import Verdict
from coco_denoiser.paper.problems import datasets
from tests.windows import distances


@pytest.mark.parametrize("L", [0.1, 0.55, 1.0, 1.45])
@pytest.mark.parametrize("distance", [0.0, 3.0, 40.0])
def test_moments_of_the_clipped_difference_are_its_integrals(L: float, distance: float) -> None:
    sigma = 10.0
    density = stats.norm(distance, np.sqrt(2) * sigma).pdf
    kinks = [0.0, L * distance]

    def moment(power: int) -> float:
        value, _ = integrate.quad(
            lambda z: (np.clip(z, 0, L * distance) - distance) ** power * density(z),
            distance - 150,
            distance + 150,
            points=kinks,
            limit=200,
        )
        return float(value)

    first, second = two_points.clipped(L, np.array([distance]), sigma)
    assert first[0] == pytest.approx(moment(1), abs=1e-8)
    assert second[0] == pytest.approx(moment(2), abs=1e-6)
    inside, _ = integrate.quad(density, 0, L * distance)
    active = two_points.p_active(L, np.array([distance]), sigma)
    assert active[0] == pytest.approx(1 - inside, abs=1e-9)


def test_the_squared_distance_of_sgd_is_that_of_its_recursion() -> None:
    """In the limit, sigma² / (2a - a²) for each eigenvalue a."""
    config = synthetic.SyntheticSGD(steps=400)
    a = np.linspace(1, 1 / 3, 10)
    settled = float(config._theory()[-1])
    assert settled == pytest.approx(float(np.sum(100 / (2 * a - a**2))))


def test_all_methods_meet_the_same_noise() -> None:
    # The first gradient has no partner to be compared with, so the first step is SGD's.
    experiment = EXPERIMENTS["synthetic-sgd"]
    unit = experiment.unit(0)
    for name, array in unit.items():
        if name.endswith("distance"):
            np.testing.assert_allclose(array[:, :2], unit["SGD distance"][:, :2], rtol=1e-12)


def test_one_point_is_left_alone_and_no_noise_changes_nothing() -> None:
    config = mse_vs_variance.ErrorByNoise(runs=4, variances=(0.0, 100.0))
    silent, noisy = (config.unit(index) for index in range(2))
    np.testing.assert_array_equal(silent["coco"], 0)
    np.testing.assert_array_equal(noisy["coco"][:, 0], noisy["oracle"][:, 0])


def test_the_counterexample_has_its_constraints_tight_at_the_centre_and_slack_around() -> None:
    points = counterexample.star(9, 7.0)
    residuals = counterexample.gradient(points) - 0.5 * points
    apart, bounds = distances(residuals), distances(0.5 * points)
    np.testing.assert_allclose(apart[0], bounds[0])
    np.testing.assert_allclose(residuals[1:], [[3.5, 0, 0]] * 8, atol=1e-12)
    assert np.all(apart[1:, 1:] <= 1e-12)


def test_the_power_of_an_exact_law_is_found() -> None:
    K = np.arange(1, 11.0)
    config = mse_vs_variance.ErrorByNoise(runs=6)
    flat = np.ones((6, 1))
    units = [
        {
            "oracle": flat * s * 3 + 0 * K,
            "coco": flat * s * 3 / K,
            "averaged": flat * s * 3 / K,
            "centroid": 0 * flat * K,
        }
        for s in config.variances
    ]
    curves = config.gather(units)
    assert curves["exponent", "COCO"].mean[0] == pytest.approx(-1.0)
    assert curves["exponent", "Oracle"].mean[0] == pytest.approx(0.0, abs=1e-12)
    verdicts = {c.verdict for c in config.claims(curves)[4:]}
    assert verdicts == {Verdict.HOLDS}


def test_the_published_mushrooms_have_the_labels_of_the_file_and_the_other_l() -> None:
    right = logistic.regression("mushrooms")
    published = logistic.regression("mushrooms", published=True)
    assert published.L == right.L == pytest.approx(2.597, abs=1e-3)
    data = datasets.mushrooms()
    labels = np.where(data.labels > 0, 2.0, 1.0)
    x = np.linspace(-1, 1, 112)
    margins = labels * (data.features @ x)
    value = np.mean(np.log1p(np.exp(-margins))) + 0.5 * published.regularization * x @ x
    assert published.value(x) == pytest.approx(value)
    rows = labels[:, None] * data.features
    curvature = np.linalg.norm(rows, 2) ** 2 / (4 * len(labels)) + published.regularization
    assert curvature == pytest.approx(7.07, abs=0.01)
