"""Where experiments write: folders checked before the work, files whole or not at all."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from coco_denoiser.experiments import ExperimentError


def prepare_folder(folder: Path) -> None:
    """Make `folder`, and prove that a file can be written there, before hours are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ExperimentError(f"cannot write to folder {folder}: {_reason(error)}") from error


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there in one stroke."""
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
        raise ExperimentError(f"cannot write {path}: {_reason(error)}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""

    def fill(file: BinaryIO) -> None:
        file.write(content)

    write_whole(path, fill)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
