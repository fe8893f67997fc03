"""Files hold what was written, appear whole or not at all, and malformed ones are refused."""

import contextlib
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coco_denoiser.paper.files import (
    RefusedError,
    prepare_folder,
    read_arrays,
    write_bytes,
    write_whole,
)

POINTS = np.array([[0.0, 1.0], [0.5, 1.0], [0.25, -1.0]])


def saved(save: Callable[..., None], *arrays: object, **named: object) -> bytes:
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not an archive", "not an .npz archive"),
        (saved(np.save, POINTS), "not an .npz archive"),
        (saved(np.savez, points=np.array([{}])), "Object arrays cannot be loaded[^\n]*"),
        (None, "no such file or directory"),
    ],
)
def test_what_is_malformed_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "a.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RefusedError, match=rf"^cannot read {path}: [^\n]*{said}\Z"):
        read_arrays(path)


@given(data=st.data(), compress=st.sampled_from([np.savez, np.savez_compressed]))
def test_a_damaged_archive_is_read_or_refused(
    data: st.DataObject, compress: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(saved(compress, points=POINTS, gradients=-POINTS))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "a.npz"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with warnings.catch_warnings(), contextlib.suppress(RefusedError):
        warnings.simplefilter("ignore")
        assert all(isinstance(array, np.ndarray) for array in read_arrays(path).values())


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


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(OSError(5, "Input/output error"), RefusedError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_failure_half_way_keeps_the_old_file(
    tmp_path: Path, failure: BaseException, raised: type[BaseException]
) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")

    def half(file: BinaryIO) -> None:
        file.write(b"half")
        raise failure

    with pytest.raises(raised):
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
