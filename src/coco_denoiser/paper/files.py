"""Files: folders are checked first, files are written whole or not at all, archives not trusted."""

import os
import re
import secrets
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_PART = re.compile(r"\.coco-denoiser-([0-9]+)-[0-9a-f]+\.part")


class RefusedError(Exception):
    """The request cannot be carried out; the message is one line, for the user."""


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


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` archive, of any type, by name; nothing is unpickled.

    Raises:
        RefusedError: if the file is missing, damaged, encrypted or not an archive.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not an .npz archive")  # noqa: TRY301 - damage, as the rest
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {name: content[name] for name in content.files}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{name!r} is not an array")  # noqa: TRY301 - the same
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
