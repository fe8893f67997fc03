"""What the page shows, without a browser: the laws of the paths and what is said of them."""

from dataclasses import asdict, replace
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest

from coco_denoiser import solve
from coco_denoiser.paper.explore.objectives import OBJECTIVES
from coco_denoiser.paper.explore.page import address
from coco_denoiser.paper.explore.pictures import axes, curves, frame
from coco_denoiser.paper.explore.remarks import medians, remarks, summary
from coco_denoiser.paper.explore.simulation import (
    PRESETS,
    SEEDS,
    START,
    Settings,
    over_seeds,
    settings,
    simulate,
)  # fmt: skip

USUAL = Settings(window=6, steps=25)


def test_all_runs_start_alike_and_meet_the_same_noise() -> None:
    found = simulate(USUAL)
    for path in found.paths.values():
        np.testing.assert_array_equal(path.points[0], START)
        assert len(path.points) == USUAL.steps + 1
        np.testing.assert_allclose(
            path.observed - path.exact,
            found.paths["plain"].observed - found.paths["plain"].exact,
            atol=1e-12,
        )
    np.testing.assert_array_equal(found.paths["plain"].used, found.paths["plain"].observed)


def test_the_window_that_is_shown_is_the_one_the_step_was_taken_with() -> None:
    found = simulate(USUAL)
    assert len(found.paths["coco"].solutions) == USUAL.steps
    for k in (1, 2, USUAL.window, USUAL.steps):
        window = slice(max(0, k - USUAL.window), k)
        exact = solve(
            found.paths["coco"].points[window], found.paths["coco"].observed[window], L=1.0
        )
        shown = found.paths["coco"].solutions[k - 1]
        np.testing.assert_allclose(shown.gradients, exact.gradients, atol=1e-4)
        np.testing.assert_allclose(shown.gradients[-1], found.paths["coco"].used[k - 1], atol=1e-4)
        assert sum(frame(found, k)["bars"]["weight"]) == pytest.approx(1.0, abs=1e-2)


def test_the_average_is_that_of_the_later_half_of_the_iterates() -> None:
    found = simulate(USUAL)
    for k in (0, 1, 7, USUAL.steps):
        mean = found.paths["plain"].points[k // 2 : k + 1].mean(axis=0)
        assert found.distances["average"][k] == pytest.approx(np.linalg.norm(mean))


def test_the_changes_compare_the_steps_that_all_runs_took() -> None:
    found = simulate(USUAL)
    coco = found.paths["coco"]
    cut = replace(coco, points=coco.points[:12], observed=coco.observed[:11], used=coco.used[:11],
                  exact=coco.exact[:11], distances=coco.distances[:12])  # fmt: skip
    short = replace(found, paths=found.paths | {"coco": cut})
    plain, denoised = (path.distances[5:12].mean() for path in (found.paths["plain"], cut))
    assert short.changes()["coco"] == pytest.approx(denoised / plain - 1)
    assert "over steps 5 to 11" in summary(short)


def test_the_first_run_is_typical_of_all_seeds() -> None:
    changes = over_seeds(Settings())
    assert [len(each) for each in changes.values()] == [SEEDS] * 3
    for name, change in simulate(Settings()).changes().items():
        low, high = np.quantile(changes[name], (0.35, 0.65))
        assert low <= change <= high, name
    assert f"Median over {SEEDS} seeds" in medians(replace(Settings(), steps=10))
    assert "Median over 1 seeds" in medians(Settings(), patience=0.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"L": 0.8}, "too small"),
        ({"L": 0.3, "noise": 0.0}, "No noise, and yet"),
        ({"L": 10.0}, "Too large an L"),
        ({"mu": 0.5}, "above the smallest curvature"),
        ({"mu": -1.0}, "not convex"),
        ({"L": 10.0, "mu": 0.9, "step": 1.9}, "COCO diverged"),
        ({"window": 1}, "no pair to compare, so COCO changes nothing"),
        ({"noise": 0.0}, "so COCO changes nothing"),
    ],
)
def test_an_unusual_setting_is_explained(change: dict[str, Any], said: str) -> None:
    assert remarks(simulate(USUAL)) == []
    found = simulate(replace(USUAL, **change))
    assert any(said in remark for remark in remarks(found))
    agree = np.array_equal(found.paths["plain"].points, found.paths["coco"].points)
    assert agree == ("changes nothing" in said) == ("COCO the same" in summary(found))


def test_where_coco_loses_the_page_says_so_and_why() -> None:
    assert "loses because the bounds" in summary(simulate(PRESETS["L too small"]))
    found = simulate(USUAL)
    unlucky = replace(found.paths["coco"], distances=1.1 * found.paths["plain"].distances)
    lost = replace(found, paths=found.paths | {"coco": unlucky})
    assert "COCO +10%" in summary(lost)
    assert "loses on this noise" in summary(lost)


def test_the_largest_curvature_of_every_objective_is_1() -> None:
    """And mu and L are those of the function, as of every problem: see the contract."""
    for objective in OBJECTIVES.values():
        assert abs(objective.problem(0.0).L - 1.0) < 1e-12


def test_axes_hold_every_curve_of_a_run() -> None:
    found = simulate(USUAL)
    limits, content = axes(found), curves(found)
    for run in ("plain", "coco", "gaussian"):
        for axis in "xy":
            values = content[f"{run}-path"][axis]
            assert limits[axis][0] <= min(values) <= max(values) <= limits[axis][1]
    for name in ("plain-distance", "average-distance", "plain-error", "coco-error"):
        assert max(content[name]["y"]) <= limits[name.split("-")[1]][1]


@pytest.mark.parametrize(
    ("query", "change"),
    [
        ({}, {}),
        ({"objective": "valley", "mu": "-1", "window": "8"},
         {"objective": "valley", "mu": -1.0, "window": 8}),
        ({"window": "1000000", "steps": "-3", "L": "0"}, {"window": 32, "steps": 10, "L": 0.1}),
        ({"L": "nan", "noise": "inf", "seed": "one", "objective": "sphere", "x": "<script>"}, {}),
    ],
)  # fmt: skip
def test_an_address_holds_settings_and_what_it_says_badly_is_usual(
    query: dict[str, str], change: dict[str, Any]
) -> None:
    assert asdict(settings(query)) == asdict(Settings()) | change


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_its_address(name: str) -> None:
    assert settings(dict(parse_qsl(address(PRESETS[name])))) == PRESETS[name]
