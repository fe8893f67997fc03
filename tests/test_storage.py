"""Files appear whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from coco_denoiser.files import RefusedError, prepare_folder, write_bytes, write_whole


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
        "import os, pathlib, sys; from coco_denoiser.files import write_whole;"
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
