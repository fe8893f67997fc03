"""Files: folders are checked first, files are written whole or not at all, archives not trusted."""

import os
import tempfile
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


class RefusedError(Exception):
    """The request cannot be carried out; the message is one line, for the user."""


def prepare_folder(folder: Path) -> None:
    """Create `folder`, and check that a file can be written there before hours are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RefusedError(f"cannot write to folder {folder}: {reason(error)}") from error


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there in one go."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                write(stream)
            # mkstemp makes private files; a result is as readable as any other new file.
            part.chmod(0o666 & ~_umask())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise RefusedError(f"cannot write {path}: {reason(error)}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""

    def fill(file: BinaryIO) -> None:
        file.write(content)

    write_whole(path, fill)


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
