"""Observations from files, denoised gradients into files, and files in general.

An `.npz` file holds the arrays `points` and `gradients`, (K, d) each, and may hold
`noise_variance`, (K,). A `.csv` file has a header and a row for each observation, with the
columns x1, …, xd and g1, …, gd, and perhaps `noise_variance`.

Folders are checked first, files are written whole or not at all, archives are not trusted.
"""

import os
import re
import secrets
import stat
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from coco_denoiser.solution import Solution
from coco_denoiser.typing import Float64

SUFFIXES = (".npz", ".csv")
_PART = re.compile(r"\.coco-denoiser-([0-9]+)-[0-9a-f]+\.part")


class RefusedError(Exception):
    """The request cannot be carried out; the message is one line, for the user."""


class Observations(NamedTuple):
    """Points and gradients (K, d), and the noise variances (K,) if they are given."""

    points: Float64
    gradients: Float64
    noise_variance: Float64 | None


def read(path: Path) -> Observations:
    """Read observations.

    Raises:
        RefusedError: in one line, if the file is missing or not of this form.
    """
    kind = suffix(path)
    check_regular(path)
    return _read_csv(path) if kind == ".csv" else _read_npz(path)


def write(path: Path, solution: Solution) -> None:
    """Write the denoised gradients: as columns theta1, …, thetad, or with all else as arrays."""
    if suffix(path) == ".csv":
        header = ",".join(f"theta{j + 1}" for j in range(solution.gradients.shape[1]))
        rows = [",".join(map(repr, row)) for row in solution.gradients.tolist()]
        text = "\n".join([header, *rows]) + "\n"
        write_bytes(path, text.encode())
        return
    names = ("gradients", "weights", "multipliers", "gap", "violation", "std")
    known = {name: getattr(solution, name) for name in names}
    arrays = {
        name: np.asarray(value)
        for name, value in known.items()
        if value is not None and not np.isnan(value).all()
    }
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def suffix(path: Path) -> str:
    """Return which of the two kinds a file is, by its name."""
    if path.suffix.lower() not in SUFFIXES:
        raise RefusedError(f"{path} must end in {' or '.join(SUFFIXES)}")
    return path.suffix.lower()


def check_target(path: Path, source: Path) -> None:
    """Refuse, before anything is computed, to write an answer where it must not go."""
    suffix(path)
    try:
        same = path.exists() and source.exists() and path.samefile(source)
    except OSError as error:
        raise RefusedError(f"cannot write {path}: {reason(error)}") from error
    if same:
        raise RefusedError(f"-o {path} is the input file: choose another")


def _read_npz(path: Path) -> Observations:
    arrays = read_arrays(path, only=Observations._fields)
    missing = {"points", "gradients"} - arrays.keys()
    if missing:
        raise RefusedError(f"cannot read {path}: the array {min(missing)!r} is missing")
    return Observations(arrays["points"], arrays["gradients"], arrays.get("noise_variance"))


def _read_csv(path: Path) -> Observations:
    try:
        with path.open(encoding="utf-8-sig") as file:
            return _table(file)
    except (OSError, ValueError) as error:
        raise RefusedError(f"cannot read {path}: {reason(error)}") from error


def _table(file: TextIO) -> Observations:
    names = [name.strip() for name in file.readline().split(",")]
    d = sum(re.fullmatch(r"x[0-9]+", name) is not None for name in names)
    wanted = [f"{letter}{j + 1}" for letter in "xg" for j in range(d)]
    named = sorted(name for name in names if name != "noise_variance")
    if d == 0 or named != sorted(wanted) or len({*names}) < len(names):
        raise ValueError(
            "the first line must name the columns x1, …, xd, g1, …, gd and perhaps noise_variance"
        )
    with warnings.catch_warnings(action="ignore"):  # of a table without rows
        table = np.loadtxt(file, delimiter=",", comments=None, ndmin=2)
    if table.shape[1] != len(names) or not len(table):
        raise ValueError(f"it must hold rows of {len(names)} numbers below the first line")
    columns = dict(zip(names, table.T, strict=True))
    points = np.column_stack([columns[name] for name in wanted[:d]])
    gradients = np.column_stack([columns[name] for name in wanted[d:]])
    return Observations(points, gradients, columns.get("noise_variance"))


def prepare_folder(folder: Path) -> None:
    """Create `folder`, and check that a file can be written there before hours are spent.

    Parts of files that a killed process left there are removed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            part = _PART.fullmatch(path.name)
            if part and not _running(int(part[1])):
                path.unlink(missing_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RefusedError(f"cannot write to folder {folder}: {reason(error)}") from error


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there in one go."""
    part = path.parent / f".coco-denoiser-{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        try:
            # Not by tempfile, which makes private files: a result is as readable as any other.
            with part.open("xb") as stream:
                write(stream)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise RefusedError(f"cannot write {path}: {reason(error)}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    write_whole(path, lambda file: file.write(content))


def check_regular(path: Path) -> None:
    """Refuse what is not a plain file: opening a pipe would wait for somebody to write."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RefusedError(f"cannot read {path}: it is not a regular file")
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {reason(error)}") from error


def read_arrays(path: Path, only: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` archive, by name; nothing is unpickled.

    Raises:
        RefusedError: if the file is missing, damaged, encrypted or not an archive.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not an .npz archive")  # noqa: TRY301
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                names = [name for name in content.files if only is None or name in only]
                arrays = {name: content[name] for name in names}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{name!r} is not an array")  # noqa: TRY301
    except MemoryError:
        raise
    except Exception as error:
        # zipfile, its decompressors and NumPy's reader of headers raise a dozen kinds of error,
        # and may raise others tomorrow. Whichever it is, the file cannot be read.
        raise RefusedError(f"cannot read {path}: {reason(error)}") from error
    return arrays


def reason(error: Exception) -> str:
    """Return in one line why something failed."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).split("\n", maxsplit=1)[0] or type(error).__name__


def _running(pid: int) -> bool:
    if os.name != "posix":
        return True  # there is no harmless signal to ask with
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
