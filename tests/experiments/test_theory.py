"""The closed forms that the experiments are held against, checked by other means."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from coco_denoiser.experiments import elementwise_mse, mse_vs_variance, synthetic, tightness
from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.claims import Verdict
from coco_denoiser.experiments.experiment import Curve


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

    first, second = tightness.clipped(L, np.array([distance]), sigma)
    assert first[0] == pytest.approx(moment(1), abs=1e-8)
    assert second[0] == pytest.approx(moment(2), abs=1e-6)
    inside, _ = integrate.quad(density, 0, L * distance)
    active = tightness.p_active(L, np.array([distance]), sigma)
    assert active[0] == pytest.approx(1 - inside, abs=1e-9)


def test_the_squared_distance_of_sgd_is_that_of_its_recursion() -> None:
    """In the limit, sigma² / (2a - a²) for each eigenvalue a."""
    config = synthetic.SyntheticConfig(steps=400)
    a = np.linspace(1, 1 / 3, 10)
    settled = float(synthetic._theory(config)[-1])
    assert settled == pytest.approx(float(np.sum(100 / (2 * a - a**2))))


def test_denoising_helps_and_a_longer_window_helps_more_at_every_seed() -> None:
    experiment = EXPERIMENTS["synthetic-sgd"]
    for seed in (1, 2, 3):
        result = experiment.run(replace(experiment.paper, runs=25, seed=seed))
        verdicts = {c.sentence[:30]: c.verdict for c in experiment.claims(result)}
        assert set(verdicts.values()) == {Verdict.HOLDS}, seed


def test_seeds_agree_with_each_other_within_their_errors() -> None:
    experiment = EXPERIMENTS["variance-reduction"]
    one, two = (
        experiment.run(replace(experiment.paper, runs=40, seed=seed)).curves for seed in (1, 2)
    )
    for series in one.series("distance"):
        a, b = one["distance", series], two["distance", series]
        t = (a.mean - b.mean)[1:] / np.hypot(a.sem, b.sem)[1:]
        assert np.abs(t).max() < 5, series


def test_all_methods_meet_the_same_noise() -> None:
    # The first gradient has no partner to be compared with, so the first step is SGD's.
    experiment = EXPERIMENTS["synthetic-sgd"]
    unit = experiment.unit(experiment.paper, 0)
    for name, array in unit.items():
        if name.endswith("distance"):
            np.testing.assert_allclose(array[:2], unit["SGD distance"][:2], rtol=1e-12)


def test_the_same_shape_is_scaled_to_the_three_boxes() -> None:
    config = replace(elementwise_mse.ElementwiseConfig(), runs=3)
    unit = elementwise_mse._unit(config, 0)
    assert (unit["coco"][0].sum(axis=1) < unit["coco"][2].sum(axis=1)).all()
    # A projection moves towards the truth, in every single run.
    assert (unit["coco"].sum(axis=2) <= unit["oracle"].sum(axis=1) * (1 + 1e-9)).all()


def test_one_point_is_left_alone_and_no_noise_changes_nothing() -> None:
    config = replace(mse_vs_variance.VarianceConfig(), runs=4, variances=(0.0, 100.0), blocks=1)
    silent, noisy = (mse_vs_variance._unit(config, index) for index in range(2))
    np.testing.assert_array_equal(silent["coco"], 0)
    np.testing.assert_array_equal(noisy["coco"][:, 0], noisy["oracle"][:, 0])


def test_the_power_of_an_exact_law_is_found() -> None:
    K = np.arange(1, 11.0)
    power, _ = mse_vs_variance._exponent(Curve(K, 3 / K, 0.01 / K))
    assert power == pytest.approx(-1.0)
