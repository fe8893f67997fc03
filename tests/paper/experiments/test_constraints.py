"""The problems of the experiment `constraints`, and what its ratios are ratios of."""

import numpy as np
import pytest

from coco_denoiser.paper.experiments.constraint_problems import (
    FRANK_WOLFE,
    FREE,
    HELD_OUT,
    SEEN,
    problem,
)
from coco_denoiser.paper.experiments.constraints import SHARES, Constraints, tuned

EXPERIMENT = Constraints(
    runs=4, slow_runs=2, calls=12, steps=(0.01, 1.0, 10.0), problems=("box",), frank_wolfe=()
)


@pytest.mark.parametrize("name", [*SEEN, *HELD_OUT, *FREE, "matrix completion", "traffic"])
def test_reference_solutions_are_stationary_and_oracles_unbiased(name: str) -> None:
    of = problem(name)
    best = of.minimizer[None]
    g = of.smooth.gradient(best)
    if name in FRANK_WOLFE:  # no point of the set is lower along the gradient
        gap = float((g * (best - of.map.corner(g))).sum())
        assert gap <= 1e-7 * of.excess(of.start[None])[0]
    if name != "traffic":
        again = of.map.prox(best - g / of.smooth.L, 1 / of.smooth.L)
        np.testing.assert_allclose(again, best, atol=1e-9)
    way = 1e-4 * (of.start - of.minimizer)
    ahead, behind = of.smooth.value(of.start + np.array([[1.0], [-1.0]]) * way)
    assert (ahead - behind) / 2.0 == pytest.approx(
        of.smooth.gradient(of.start[None])[0] @ way, 1e-5
    )
    points = np.tile(of.start, (300, 1))
    noise = of.oracle(points, np.random.default_rng(0)) - of.smooth.gradient(points[:1])
    bias = np.linalg.norm(noise.mean(axis=0))
    assert bias <= 1.5 * np.sqrt((noise**2).sum(axis=1).mean() / len(points))


def test_ratios_are_to_the_best_rival_at_its_best_step() -> None:
    units = [dict(EXPERIMENT.unit(i)) for i in range(EXPERIMENT.count())]
    assert "fold 16 last" not in units[0]  # below 0.03/L the rivals are alone
    units[1]["dual averaging average"] = np.full((len(SHARES), 4), 1e-9)
    units[2]["fold 2, L=1/s last"] = np.full((len(SHARES), 4), 2e-9)
    units[2]["fold 2, L=1/s last"][1] = 3e-9
    curves = EXPERIMENT.gather(units)
    ratios = curves["held out: by problem", "fold 2, L=1/s"].mean
    np.testing.assert_allclose(ratios, 2.0)
    usable = curves["held out: usable", "fold 2, L=1/s"].mean
    np.testing.assert_array_equal(usable, [np.nan, 0.0, 1.0])
    half = curves["box: excess after 0.5 of the calls", "fold 2, L=1/s"].mean
    assert half[2] == pytest.approx(3e-9)
    claim = EXPERIMENT.claims(curves)[0]
    assert "box 2 ± 0" in claim.sentence
    assert claim.number == pytest.approx(2.0)


def test_a_setting_is_chosen_on_the_runs_that_it_is_not_measured_on() -> None:
    table = np.array([[0.0, 0.0, 5.0, 5.0], [1.0, 1.0, 2.0, 2.0], [np.nan] * 4])
    np.testing.assert_array_equal(tuned(table), [1.0, 1.0, 5.0, 5.0])
    # Of settings that are all alike, the more numerous do not win.
    settings = np.random.default_rng(0).standard_normal((100, 2000))
    assert abs(tuned(settings).mean()) < 4 / np.sqrt(2000)
