"""Observations and answers survive their files; what is malformed is refused in one line."""

from pathlib import Path

import numpy as np
import pytest

from coco_denoiser import files, solve
from coco_denoiser.experiments import ExperimentError

POINTS = np.array([[0.0, 1.0], [0.5, 1.0], [0.25, -1.0]])
GRADIENTS = np.array([[1.0, 2.0], [-3.0, 0.1], [0.0, 7.0]])


@pytest.fixture(params=[".npz", ".csv"])
def observed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"seen{request.param}"
    if path.suffix == ".npz":
        np.savez(path, points=POINTS, gradients=GRADIENTS, noise_variance=[1.0, 2.0, 3.0])
    else:
        # Columns in any order.
        table = np.column_stack((GRADIENTS, POINTS[:, ::-1], [1.0, 2.0, 3.0]))
        rows = [",".join(map(repr, row)) for row in table.tolist()]
        path.write_text("\n".join(["g1, g2, x2, x1, noise_variance", *rows, ""]))
    return path


def test_both_kinds_hold_the_same(observed: Path) -> None:
    seen = files.read(observed)
    np.testing.assert_array_equal(seen.points, POINTS)
    np.testing.assert_array_equal(seen.gradients, GRADIENTS)
    assert seen.noise_variance is not None
    np.testing.assert_array_equal(seen.noise_variance, [1, 2, 3])


def test_answers_are_written_to_the_last_digit(tmp_path: Path) -> None:
    solution = solve(POINTS, GRADIENTS, L=1.0)
    files.write(tmp_path / "a.npz", solution)
    files.write(tmp_path / "a.csv", solution)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as content:
        np.testing.assert_array_equal(content["gradients"], solution.gradients)
        np.testing.assert_array_equal(content["weights"], solution.weights)
        assert content["gap"] == solution.gap
    assert (tmp_path / "a.csv").read_text().startswith("theta1,theta2\n")
    table = np.loadtxt(tmp_path / "a.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(table, solution.gradients)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"x1,g1\n"),
        ("a.csv", b"x1,x2,g1\n1,2,3\n"),
        ("a.csv", b"x1,x3,g1,g3\n1,2,3,4\n"),
        ("a.csv", b"x1,g1,weight\n1,2,3\n"),
        ("a.csv", b"x1,x1,g1\n1,2,3\n"),
        ("a.csv", b"x1,g1\n1,2,3\n"),
        ("a.csv", b"x1,g1\n1,two\n"),
        ("a.csv", b"1,2\n3,4\n"),
        ("a.csv", b"\xff\xfe\x00"),
        ("a.npz", b""),
        ("a.npz", b"not an archive"),
        ("a.txt", b"x1,g1\n1,2\n"),
    ],
)
def test_what_is_malformed_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ExperimentError) as caught:
        files.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_archive_must_hold_both_arrays_and_no_objects(tmp_path: Path) -> None:
    np.savez(tmp_path / "half.npz", points=POINTS)
    with pytest.raises(ExperimentError, match="'gradients' is missing"):
        files.read(tmp_path / "half.npz")
    objects = np.array([[{}]], dtype=object)
    np.savez(tmp_path / "objects.npz", points=objects, gradients=objects)
    with pytest.raises(ExperimentError, match="holds no observations"):
        files.read(tmp_path / "objects.npz")
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, POINTS)
    with pytest.raises(ExperimentError, match=r"not an \.npz archive"):
        files.read(tmp_path / "single.npz")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"nowhere\.npz: no such file"):
        files.read(tmp_path / "nowhere.npz")
