"""What the page shows, without a browser: the laws of the paths and what is said of them."""

import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from bokeh.document import Document

from coco_denoiser.explore.objectives import OBJECTIVES
from coco_denoiser.explore.page import Page
from coco_denoiser.explore.pictures import axes, frame
from coco_denoiser.explore.presets import LIMITS, PRESETS, settings
from coco_denoiser.explore.remarks import remarks, summary
from coco_denoiser.explore.simulation import START, Ended, Settings, simulate

USUAL = Settings(window=6, steps=25)


@pytest.mark.parametrize("method", ["SGD", "Adam"])
def test_all_runs_start_alike_and_meet_the_same_noise(method: str) -> None:
    found = simulate(replace(USUAL, method=method))
    for path in found.paths.values():
        np.testing.assert_array_equal(path.points[0], START)
        assert path.ended is Ended.COMPLETE
        assert len(path.points) == USUAL.steps + 1
    noise = [path.observed - path.exact for path in found.paths.values()]
    for other in noise[1:]:
        np.testing.assert_allclose(noise[0], other, atol=1e-12)
    np.testing.assert_array_equal(found.plain.used, found.plain.observed)


def test_the_window_that_is_shown_is_the_one_the_step_was_taken_with() -> None:
    found = simulate(USUAL)
    for k in (1, 2, USUAL.window, USUAL.steps):
        chosen, solution = found.window(k)
        assert chosen.stop - chosen.start == min(k, USUAL.window)
        np.testing.assert_allclose(solution.gradients[-1], found.coco.used[k - 1], atol=1e-4)
        assert solution.weights[-1].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"window": 1}, "no pair to compare"),
        ({"noise": 0.0}, "COCO changes nothing"),
    ],
)
def test_where_coco_has_nothing_to_do_the_paths_agree_and_the_page_says_why(
    change: dict[str, float], said: str
) -> None:
    found = simulate(replace(USUAL, **change))  # type: ignore[arg-type]
    np.testing.assert_array_equal(found.plain.points, found.coco.points)
    assert any(said in remark for remark in remarks(found))
    assert "the same" in summary(found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"window": 64}, "as long as the run"),
        ({"window": 40, "steps": 41}, "780 pairs"),
        ({"L": 0.1}, "far too small"),
        ({"L": 0.8}, "below the true one"),
        ({"L": 0.3, "noise": 0.0}, "No noise, and yet"),
        ({"L": 10.0}, "allows nearly everything"),
        ({"mu": 0.5}, "above the smallest curvature"),
        ({"mu": -1.0}, "not convex"),
        ({"L": 10.0, "mu": 0.9, "step": 1.9}, "With COCO, the run diverged"),
    ],
)
def test_an_unusual_setting_is_explained(change: dict[str, float], said: str) -> None:
    assert any(said in remark for remark in remarks(simulate(replace(USUAL, **change))))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_is_what_it_says(name: str) -> None:
    """Gradients belong to the value, curvatures stay within mu and L = 1, the origin is least."""
    problem = OBJECTIVES[name].problem(0.0)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-12, 12, size=(2, 400, problem.dimension))
    along = y - x
    small = 1e-5 * along
    difference = problem.value(x + small) - problem.value(x - small)
    slope = (problem.gradient(x) * 2 * small).sum(axis=1)
    np.testing.assert_allclose(difference, slope, rtol=1e-4, atol=1e-8)
    rise = ((problem.gradient(y) - problem.gradient(x)) * along).sum(axis=1)
    lengths = (along**2).sum(axis=1)
    assert abs(problem.L - 1.0) < 1e-12
    assert (rise <= lengths * (1.0 + 1e-9)).all()
    assert (rise >= lengths * (problem.mu - 1e-9)).all()
    np.testing.assert_allclose(problem.gradient(problem.minimizer), 0.0, atol=1e-12)
    assert (problem.value(x) > problem.value(problem.minimizer)).all()


def test_where_a_run_is_stopped_the_summary_compares_the_steps_that_all_took() -> None:
    found = simulate(USUAL)
    cut = replace(found.coco, **{
        name: getattr(found.coco, name)[:end]
        for name, end in (("points", 12), ("distances", 12), ("observed", 11), ("used", 11),
                          ("exact", 11))
    })  # fmt: skip
    said = summary(replace(found, coco=cut))
    assert "over steps 5 to 11" in said
    for path in (found.plain, cut, found.gaussian):
        assert f"{np.mean(path.distances[5:12]):.3g} with" in said


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (PRESETS["L too small"], "rule out the truth"),
        (PRESETS["Adam"], "Adam divides"),
        (Settings(objective="valley", L=2.0, window=8), "where the function is flat"),
    ],
)
def test_where_denoising_loses_the_page_says_so_and_why(shown: Settings, said: str) -> None:
    found = simulate(shown)
    half = slice(found.common // 2, None)
    assert found.coco.distances[half].mean() > found.plain.distances[half].mean()
    assert "Denoising loses" in summary(found)
    assert said in summary(found)


def test_a_pair_lets_the_newest_step_end_in_its_disc_only() -> None:
    """The denoised step ends in the disc of every pair; some noisy step does not."""
    found = simulate(USUAL)
    outside = 0
    for k in range(2, USUAL.steps + 1):
        content, _, _ = frame(found, k)
        points = content["points"]
        centre = np.column_stack((points["ball_x"], points["ball_y"]))
        for name in ("denoised gradient", "noisy gradient"):
            end = np.array([content[name]["x1"][-1], content[name]["y1"][-1]])
            excess = np.linalg.norm(centre - end, axis=1) - points["ball_radius"]
            if name == "denoised gradient":
                assert excess.max() <= 1e-5
            else:
                outside += bool(excess.max() > 0.1)
    assert outside > 0


def test_axes_hold_every_frame_of_a_run() -> None:
    found = simulate(USUAL)
    limits = axes(found)
    for k in (1, 7, USUAL.steps):
        content, _, _ = frame(found, k)
        for run in ("plain", "coco", "gaussian"):
            for axis in "xy":
                values = content[f"{run}-path"][axis]
                assert limits[axis][0] <= values.min() <= values.max() <= limits[axis][1]
            for name in ("distance", "error"):
                values = content[f"{run}-{name}"]["y"]
                assert values.max() <= limits[name][1]


@pytest.mark.parametrize(
    ("query", "change"),
    [
        ({}, {}),
        ({"L": "2.5", "window": "8", "method": "Adam"}, {"L": 2.5, "window": 8, "method": "Adam"}),
        ({"objective": "valley", "mu": "-1"}, {"objective": "valley", "mu": -1.0}),
        ({"window": "1000000", "steps": "-3", "L": "0"}, {"window": 64, "steps": 10, "L": 0.1}),
        ({"L": "nan", "noise": "inf", "seed": "one", "method": "LBFGS", "x": "<script>"}, {}),
    ],
)
def test_an_address_holds_settings_and_what_it_says_badly_is_usual(
    query: dict[str, str], change: dict[str, Any]
) -> None:
    assert settings(query) == replace(Settings(), **change)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_its_address(name: str) -> None:
    preset = PRESETS[name]
    assert settings({key: str(value) for key, value in asdict(preset).items()}) == preset


def test_what_comes_over_the_socket_is_kept_within_the_limits() -> None:
    page = Page(Document(), Settings())
    for value, end in ((1e7, 1), (-1e7, 0)):
        for name, slider in page.sliders.items():
            slider.value = value
            if name == "noise":
                slider.value = math.nan
        page.objective.value, page.method.active = "unknown", 7
        page.preset.value = "unknown"
        read = page._read()
        assert (read.objective, read.method, read.noise) == ("quadratic", "SGD", Settings().noise)
        for name in page.sliders.keys() - {"noise"}:
            assert getattr(read, name) == LIMITS[name][end]


def test_a_run_out_of_patience_is_cut_short_and_says_so() -> None:
    found = simulate(USUAL, patience=0.0)
    assert found.coco.ended is Ended.PATIENCE
    assert len(found.coco.points) == 2
    assert any("stopped after 1 steps" in remark for remark in remarks(found))
