"""Curves are the statistics of the samples, and a file of theirs is a plain table."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.curves import Curve, Curves
from coco_denoiser.paper.experiments.experiment import generator


def test_the_statistics_are_those_of_the_runs_and_one_has_no_standard_error() -> None:
    curves = Curves()
    curves.add("p", "s", [0, 1, 2], np.array([[4.0, 2.0, 1.0], [4.0, 4.0, 3.0]]))
    np.testing.assert_allclose(curves["p", "s"].mean, [4, 3, 2])
    np.testing.assert_allclose(curves["p", "s"].sem, [0, 1, 1])
    curves.add("p", "s", [0.0], np.array([[4.0]]))
    assert np.isnan(Curves.from_csv(curves.to_csv())["p", "s"].sem).all()


def test_the_file_is_tidy() -> None:
    curves = Curves()
    curves.exact("a, with a comma", "x", [1, 2], [0.1, 1e-300])
    curves.exact("b", "x", 1, 2.0, 0.5)
    rows = list(csv.reader(io.StringIO(curves.to_csv().decode())))
    assert rows[0] == ["panel", "series", "x", "mean", "sem"]
    assert rows[1:] == [
        ["a, with a comma", "x", "1.0", "0.1", "0.0"],
        ["a, with a comma", "x", "2.0", "1e-300", "0.0"],
        ["b", "x", "1.0", "2.0", "0.5"],
    ]


def test_runs_have_noise_of_their_own() -> None:
    def draw(seed: int, name: str, index: int) -> bytes:
        return generator(replace(EXPERIMENTS["fold"], seed=seed), name, index).bytes(16)

    different = [draw(s, n, i) for s in (0, 1) for n in ("a", "b") for i in (0, 1)]
    assert len(set(different)) == 8
    assert draw(1, "b", 1) == different[-1]


def test_curves_are_shifted_scaled_cut_and_compared_with_their_errors() -> None:
    curve = Curve(np.arange(3.0), np.array([1.0, 2.0, 4.0]), np.array([0.3, 0.3, 0.6]))
    assert curve.shifted(-1.0).mean.tolist() == [0.0, 1.0, 3.0]
    for found, factor in ((curve.times(-2.0), -2.0), (curve.over(4.0), 0.25)):
        assert np.array_equal(found.mean, factor * curve.mean)
        assert np.array_equal(found.sem, abs(factor) * curve.sem)
    assert [column.tolist() for column in curve.part(slice(1, 2))] == [[1.0], [2.0], [0.3]]
    apart = curve.minus(Curve(curve.x, np.ones(3), 0.4 * np.ones(3)))
    assert apart.mean.tolist() == [0.0, 1.0, 3.0]
    assert apart.sem[0] == pytest.approx(0.5)
    assert curve.falls().mean.tolist() == [-1.0, -2.0]


def test_a_difference_is_found_whichever_way_round_it_was_saved() -> None:
    curves = Curves()
    curves.compare("end", 0, {"a": np.array([[3.0], [5.0]]), "b": np.array([[2.0], [2.0]])})
    there, back = curves.difference("end", "a", "b"), curves.difference("end", "b", "a")
    assert there.mean[0] == -back.mean[0] == 2.0
    assert there.sem[0] == back.sem[0] > 0.0
    assert curves.relative("end", "a", "b").mean[0] == 1.0
    assert curves.percent("end", "b", "a") == "-50.0%"
    assert [curve.mean[0] for curve in curves.panel("end")] == [4.0, 2.0, 2.0]
