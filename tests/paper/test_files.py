"""Files hold what was written, appear whole or not at all, and malformed ones are refused."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser import solve
from coco_denoiser.paper import files
from coco_denoiser.paper.files import RefusedError, prepare_folder, write_bytes, write_whole

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


def saved(save: Callable[..., None], *arrays: object, **named: object) -> bytes:
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


npz = partial(saved, np.savez)


OBJECTS = np.array([[{}]], dtype=object)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", ""),
        ("a.csv", b"x1,g1\n", ""),
        ("a.csv", b'"x1,g1\n1,2\n', ""),
        ("a.csv", b"x1;g1\n1;2\n", ""),
        ("a.csv", b"x1,x2,g1\n1,2,3\n", ""),
        ("a.csv", b"x1,x3,g1,g3\n1,2,3,4\n", ""),
        ("a.csv", b"x1,g1,weight\n1,2,3\n", ""),
        ("a.csv", b"x1,g1,g1\n1,2,3\n", ""),
        ("a.csv", b"x1,g1,noise_variance,noise_variance\n1,2,3,4\n", ""),
        ("a.csv", b"1,2\n3,4\n", ""),
        ("a.csv", b"\xff\xfe\x00", ""),
        ("a.csv", b"x1,x2,g1,g2\n5\n", "rows of 4 numbers"),
        ("a.csv", b"x1,x2,g1,g2\n1,2,3,4\n1,2,3\n", "columns changed from 4 to 3"),
        ("a.csv", b"x1,x2,g1,g2\n1,2,1_0,4\n", "'1_0'"),
        ("a.csv", b"x1,x2,g1,g2\n1,2,,4\n", "row 0, column 3"),
        ("a.csv", b"x1,x2,g1,g2\n1,2,3,four\n", "'four'"),
        ("a.npz", b"", ""),
        ("a.npz", b"not an archive", ""),
        ("a.npz", saved(np.save, POINTS), "not an .npz archive"),
        ("a.npz", npz(points=POINTS), "'gradients' is missing"),
        ("a.npz", npz(points=OBJECTS, gradients=OBJECTS), "Object arrays cannot be loaded"),
        ("a.npz", npz(points=POINTS)[-22:], ""),  # an archive of nothing
        ("a.txt", b"x1,g1\n1,2\n", ""),
        ("a.npz", None, "no such file"),
    ],
)
def test_what_is_malformed_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RefusedError) as caught:
        files.read(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@given(data=st.data(), compress=st.sampled_from([np.savez, np.savez_compressed]))
def test_a_damaged_archive_is_read_or_refused(
    data: st.DataObject, compress: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(saved(compress, points=POINTS, gradients=GRADIENTS))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "a.npz"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with warnings.catch_warnings(), contextlib.suppress(RefusedError):
        warnings.simplefilter("ignore")
        assert isinstance(files.read(path).points, np.ndarray)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [(6, 1, "encrypted"), (8, 99, "not supported"), (8, 8, "CRC"), (8, 12, "stream")],
)
def test_an_archive_that_cannot_be_unpacked_says_why(
    tmp_path: Path, place: int, value: int, said: str
) -> None:
    """Byte 6 of a member's header holds the flag of encryption, byte 8 the compression method."""
    path = tmp_path / "a.npz"
    content = bytearray(npz(points=POINTS, gradients=GRADIENTS))
    for signature, further in ((b"PK\3\4", 0), (b"PK\1\2", 2)):
        start = content.find(signature)
        while start >= 0:
            content[start + place + further] = value
            start = content.find(signature, start + 1)
    path.write_bytes(content)
    with pytest.raises(RefusedError, match=rf"a\.npz: .*{said}"):
        files.read(path)


@pytest.mark.parametrize("link", ["same", "symbolic", "hard"])
def test_an_answer_does_not_overwrite_what_it_was_computed_from(tmp_path: Path, link: str) -> None:
    source = tmp_path / "a.csv"
    source.write_text("x1,g1\n1,2\n")
    target = source if link == "same" else tmp_path / "b.csv"
    if link == "symbolic":
        target.symlink_to(source)
    elif link == "hard":
        target.hardlink_to(source)
    with pytest.raises(RefusedError, match=r"-o .* is the input file"):
        files.check_target(target, source)
    files.check_target(tmp_path / "c.csv", source)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    signal.alarm(20)  # which ends the process, if it waits for a writer
    with pytest.raises(RefusedError, match="not a regular file"):
        files.read(tmp_path / "pipe.csv")
    signal.alarm(0)


def test_a_number_may_have_spaces_a_sign_and_an_exponent(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x1,g1\n +1.5e-3 ,-.5\n1.,2E+2\n")
    seen = files.read(path)
    assert np.column_stack(seen[:2]).tolist() == [[1.5e-3, -0.5], [1.0, 200.0]]


def test_a_file_is_written_and_replaced_under_the_longest_name(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 255)
    for content in (b"first", b"second"):
        write_bytes(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_as_readable_as_the_umask_says_which_stays_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_umask = os.umask
    old = set_umask(0o022)
    monkeypatch.delattr(os, "umask")  # all threads share it
    try:
        write_bytes(tmp_path / "result", b"x")
    finally:
        set_umask(old)
    assert (tmp_path / "result").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_failure_half_way_keeps_the_old_file(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")

    def half(file: BinaryIO) -> None:
        file.write(b"half")
        raise failure

    expected = RefusedError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_whole(path, half)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_writes_is_not(
    tmp_path: Path,
) -> None:
    script = (
        "import os, pathlib, sys; from coco_denoiser.paper.files import write_whole;"
        "write_whole(pathlib.Path(sys.argv[1]), lambda file: os.kill(os.getpid(), 9))"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "result")], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".")

    def fill(_: BinaryIO) -> None:
        prepare_folder(tmp_path)
        (mine,) = tmp_path.iterdir()
        assert mine != left

    write_whole(tmp_path / "result", fill)
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_target_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "result").mkdir()
    with pytest.raises(RefusedError, match=r"cannot write .*result"):
        write_bytes(tmp_path / "result", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_prepared_folder_is_there_and_empty(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    prepare_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
