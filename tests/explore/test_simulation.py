"""What the page shows, without a browser: the laws of the two paths and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest

from coco_denoiser.explore.remarks import remarks, summary
from coco_denoiser.explore.simulation import START, Ended, Settings, simulate

USUAL = Settings(window=6, steps=25)


@pytest.mark.parametrize("method", ["SGD", "Adam"])
def test_both_runs_start_alike_and_meet_the_same_noise(method: str) -> None:
    found = simulate(replace(USUAL, method=method))
    for path in (found.plain, found.coco):
        np.testing.assert_array_equal(path.points[0], START)
        assert path.ended is Ended.COMPLETE
        assert len(path.points) == USUAL.steps + 1
    noise = [path.observed - path.exact for path in (found.plain, found.coco)]
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-12)
    np.testing.assert_array_equal(found.plain.used, found.plain.observed)


def test_the_window_that_is_shown_is_the_one_the_step_was_taken_with() -> None:
    found = simulate(USUAL)
    for k in (1, 2, USUAL.window, USUAL.steps):
        chosen, solution = found.window(k)
        assert chosen.stop - chosen.start == min(k, USUAL.window)
        np.testing.assert_allclose(solution.gradients[-1], found.coco.used[k - 1], atol=1e-4)
        assert solution.weights[-1].sum() == pytest.approx(1.0)


def test_the_same_settings_give_the_same_bytes_and_another_seed_another_run() -> None:
    once, twice = simulate(USUAL), simulate(USUAL)
    np.testing.assert_array_equal(once.coco.points, twice.coco.points)
    other = simulate(replace(USUAL, seed=USUAL.seed + 1))
    assert not np.array_equal(once.plain.points, other.plain.points)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"window": 1}, "no pair to compare"),
        ({"noise": 0.0}, "COCO changes nothing"),
        ({"noise": 0.0, "window": 1}, "no pair to compare"),
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
        ({"L": 0.3, "noise": 0.0}, "forbids the truth"),
        ({"L": 10.0}, "allows nearly everything"),
        ({"mu": 0.5}, "above the smallest curvature"),
        ({"mu": -1.0}, "not convex"),
        ({"L": 10.0, "mu": 0.9, "step": 1.9}, "With COCO, the run diverged"),
    ],
)
def test_an_unusual_setting_is_explained(change: dict[str, float], said: str) -> None:
    assert any(said in remark for remark in remarks(simulate(replace(USUAL, **change))))  # type: ignore[arg-type]


def test_a_usual_setting_needs_no_explanation() -> None:
    assert remarks(simulate(USUAL)) == []


def test_a_run_out_of_patience_is_cut_short_and_says_so() -> None:
    found = simulate(USUAL, patience=0.0)
    assert found.coco.ended is Ended.PATIENCE
    assert len(found.coco.points) == 2
    assert any("stopped after 1 steps" in remark for remark in remarks(found))
