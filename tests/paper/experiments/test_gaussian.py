"""What the experiment `gaussian` divides by what, and which cells it counts."""

from dataclasses import replace

import numpy as np

from coco_denoiser.paper.experiments.gaussian import OURS, SGD_ALONE, GaussianModel

EXPERIMENT = GaussianModel(runs=3, calls=20, steps=(0.3, 4.0), problems=("quadratic",))


def test_averages_are_compared_with_averages_and_with_the_last_iterates() -> None:
    units = [EXPERIMENT.unit(i) for i in range(EXPERIMENT.count())]
    curves = EXPERIMENT.gather(units)
    ends = {name: value for name, value in units[0].items() if name.endswith("end")}
    middle = {name: np.exp(np.log(value).mean()) for name, value in ends.items()}
    last, averaged = middle[f"{SGD_ALONE} end"], middle[f"{SGD_ALONE}, tail average end"]
    assert np.isclose(curves["quadratic", "tail average"].mean[0], averaged / last)
    ours = curves["quadratic", f"{OURS}, tail average"]
    assert np.isclose(ours.mean[0], middle[f"{OURS}, tail average end"] / averaged)
    # At 4/L SGD ends above its start, and the cell is left out of every mean.
    assert curves["quadratic: end over start", SGD_ALONE].mean[1] > 1.0
    assert curves["chosen cells", OURS].mean.shape == (1,)


def test_a_mean_over_cells_is_taken_run_by_run() -> None:
    """Cells share their noise: twice the same cell has the standard error of one."""
    single = replace(EXPERIMENT, steps=(0.3,))
    unit, once = single.unit(0), single.run()
    twice = replace(EXPERIMENT, steps=(0.3, 0.3)).gather([unit, unit])
    for a, b in zip(twice["chosen mean", OURS][1:], once["chosen mean", OURS][1:], strict=True):
        np.testing.assert_allclose(a, b)


def test_a_rival_is_said_to_hurt_where_it_is_five_per_cent_worse() -> None:
    units = [dict(EXPERIMENT.unit(i)) for i in range(EXPERIMENT.count())]
    for factor, count in ((1.04, 0), (1.06, 1)):
        units[0]["Adam end"] = factor * units[0][f"{SGD_ALONE} end"]
        sentence = EXPERIMENT.claims(EXPERIMENT.gather(units))[0].sentence
        assert f"Adam {factor:.3f} ± 0.000, worst {factor:.3g} ± " in sentence
        assert f"{count} cells above 1.05" in sentence.split("Adam")[1].split(";")[0]
