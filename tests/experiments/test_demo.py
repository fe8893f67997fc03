"""The demo's numbers obey the laws of the problem, and its picture shows them all."""

import subprocess
import sys

import numpy as np
import pytest

from coco_denoiser.experiments import demo


@pytest.fixture(scope="module")
def result() -> demo.Result:
    return demo.run(demo.Config(runs=40, seed=1))


def test_sgd_reaches_the_variance_that_theory_gives() -> None:
    """x <- (1-a)x - noise settles at variance sigma²/(2a-a²) for each eigenvalue a."""
    result = demo.run(demo.Config(runs=400, windows=()))
    squares = result.distances["SGD"][:, -1] ** 2
    curvature = np.linspace(1, 1 / 3, 10)
    expected = float(np.sum(100 / (2 * curvature - curvature**2)))
    # Four standard errors; what is left of the start after 32 steps is (2/3)^64, nothing.
    assert abs(squares.mean() - expected) < 4 * squares.std() / np.sqrt(400)


def test_denoising_helps_and_a_longer_window_helps_more(result: demo.Result) -> None:
    late = {name: d[:, 17:].mean(axis=1) for name, d in result.distances.items()}
    for worse, better in [
        ("SGD", "SGD+COCO_2"),
        ("SGD+COCO_2", "SGD+COCO_4"),
        ("SGD+COCO_4", "SGD+COCO_8"),
        ("SGD+COCO_8", "SGD+COCO_16"),
    ]:
        gain = late[worse] - late[better]  # run by run: the noise is the same
        assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain)), (worse, better)


def test_all_methods_start_alike_and_meet_the_same_noise(result: demo.Result) -> None:
    # The first gradient has no partner to be compared with, so the first step is SGD's.
    for distances in result.distances.values():
        np.testing.assert_allclose(distances[:, :2], result.distances["SGD"][:, :2], rtol=1e-12)


def test_more_runs_extend_fewer() -> None:
    few, more = (demo.run(demo.Config(runs=runs, windows=(4,))) for runs in (1, 2))
    for name in few.distances:
        np.testing.assert_array_equal(few.distances[name], more.distances[name][:1])


def test_the_statistics_are_those_of_the_runs() -> None:
    distances = np.array([[4.0, 2.0, 1.0], [4.0, 4.0, 3.0]])
    config = demo.Config(runs=2, steps=2)
    result = demo.Result(config, {"SGD": distances, "half": distances / 2})
    np.testing.assert_allclose(result.mean("SGD"), [4, 3, 2])
    np.testing.assert_allclose(result.sem("SGD"), [0, 1, 1])
    assert result.ratio("half") == pytest.approx(0.5)


def test_a_single_run_claims_no_error_bar() -> None:
    text = demo.table(demo.run(demo.Config(runs=1, windows=(2,))))
    assert "±" not in text
    assert "nan" not in text


def test_the_picture_shows_every_series_on_a_log_axis(result: demo.Result) -> None:
    (axes,) = demo.plot(result).axes
    assert axes.get_yscale() == "log"
    assert [line.get_label() for line in axes.lines] == list(result.distances)
    assert sorted(text.get_text() for text in axes.texts) == sorted(result.distances)
    styles = {(str(line.get_color()), line.get_linestyle()) for line in axes.lines}
    assert len(styles) == len(result.distances)
    for line, name in zip(axes.lines, result.distances, strict=True):
        np.testing.assert_array_equal(np.asarray(line.get_ydata()), result.mean(name))


def test_drawing_needs_no_display_and_touches_no_global_state() -> None:
    code = (
        "import sys\n"
        "from coco_denoiser.experiments import demo\n"
        "demo.plot(demo.run(demo.Config(runs=1, windows=()))).savefig(sys.stdout.buffer)\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
