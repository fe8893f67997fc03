"""What every experiment must do, whatever it computes."""

from dataclasses import replace

import numpy as np
import pytest

from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.claims import Claim, Verdict
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.drawing import draw
from coco_denoiser.paper.experiments.experiment import Experiment
from coco_denoiser.paper.experiments.palette import companions, styles
from coco_denoiser.paper.experiments.panels import Kind
from coco_denoiser.paper.experiments.reproduce import configured
from tests.paper.experiments.conftest import own_fourclass, small

pytestmark = pytest.mark.usefixtures("own_fourclass")
__all__ = ["own_fourclass"]


@pytest.fixture(scope="module", params=EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return small(request.param.name)


@pytest.fixture(scope="module")
def curves(experiment: Experiment, own_fourclass: None) -> Curves:
    return experiment.run()


def test_a_unit_depends_on_nothing_but_its_number_and_the_seed(experiment: Experiment) -> None:
    last = experiment.count() - 1
    first, again = (experiment.unit(last) for _ in range(2))
    other = replace(experiment, seed=experiment.seed + 1).unit(last)
    assert first.keys() == again.keys() == other.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    differ = any(not np.array_equal(array, other[name]) for name, array in first.items())
    assert differ == (experiment.name != "constraint-tightness")  # a formula, which no seed enters


def test_curves_are_numbers_that_survive_their_file_to_the_last_bit(curves: Curves) -> None:
    content = curves.to_csv()
    read = Curves.from_csv(content)
    assert read.to_csv() == content
    for (key, curve), (other, theirs) in zip(curves.items(), read.items(), strict=True):
        assert key == other
        np.testing.assert_array_equal(np.array(curve), np.array(theirs))
        assert np.isfinite(curve.mean).all(), key
        assert (curve.sem >= 0).all(), key
        assert curve.x.shape == curve.mean.shape == curve.sem.shape


def test_the_figure_shows_every_series_of_every_panel(
    experiment: Experiment, curves: Curves
) -> None:
    panels = experiment.panels(curves)
    axes = draw(panels, curves).axes
    assert len(axes) == len(panels)
    for panel, drawn in zip(panels, axes, strict=True):
        if panel.kind is Kind.SPACE:
            continue
        series = panel.series or tuple(curves.series(panel.name))
        twins = companions(series, panel.references)
        lines = [str(line.get_label()).removeprefix("_") for line in drawn.lines]
        assert twins.keys() <= set(lines)
        labels = [name for name in series if name not in twins] + list(set(twins.values()))
        assert sorted(drawn.get_legend_handles_labels()[1]) == sorted(labels)
        assert (drawn.get_yscale() == "log") == ("y" in panel.log)
        assert drawn.get_title(loc="left") == panel.heading
        assert not panel.figure or int(panel.figure.split(",")[0]) in experiment.numbers
        # Without colour they can be told apart too.
        own = [name for name in series if name not in panel.references]
        if panel.kind is Kind.LINES and len(own) <= 7:
            looks = styles(series, panel.references)
            dashes = [looks[name].dash for name in own]
            assert len(set(dashes)) == len(dashes), panel.name
            assert not {looks[name].dash for name in panel.references} & set(dashes)


def test_claims_follow_from_the_saved_curves(experiment: Experiment, curves: Curves) -> None:
    saved = Curves.from_csv(curves.to_csv())
    claims = experiment.claims(curves)
    assert claims
    assert experiment.claims(saved) == claims
    for claim in claims:
        assert claim.sentence.endswith(".")
        assert claim.measure
        assert np.isfinite(claim.number) or claim.verdict is not Verdict.HOLDS
        assert Claim.from_dict(claim.as_dict()).verdict is claim.verdict
        assert claim.figure is None or claim.figure in experiment.numbers, claim.sentence
        proved_wrong = claim.theory and claim.verdict is Verdict.FAILS
        assert not proved_wrong, claim.sentence


def test_nothing_is_said_of_an_estimate_whose_standard_error_is_huge(
    experiment: Experiment, curves: Curves
) -> None:
    unsure = Curves(
        (key, curve._replace(sem=1e15 * (1.0 + abs(curve.mean))) if curve.sem.any() else curve)
        for key, curve in curves.items()
    )
    for claim in experiment.claims(unsure):
        exact = experiment.name == "constraint-tightness" or "window was solved" in claim.sentence
        assert exact or claim.verdict is Verdict.OPEN, claim.sentence


def test_the_quick_configuration_differs_in_size_only(experiment: Experiment) -> None:
    quick = configured(experiment, quick=True, seed=3)
    assert quick.parameters() == {**experiment.parameters(), **quick.quick, "seed": 3}
    assert quick.quick.keys() <= {"runs", "slow_runs", "tuning_runs", "calls", "steps"}
