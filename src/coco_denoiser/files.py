"""Observations from files, and denoised gradients into files: `.npz` or `.csv`.

An `.npz` file holds the arrays `points` and `gradients`, (K, d) each, and may hold
`noise_variance`, (K,). A `.csv` file has a header and a row for each observation, with the
columns x1, …, xd and g1, …, gd, and perhaps `noise_variance`.
"""

import re
import warnings
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from coco_denoiser._storage import (
    RefusedError,
    check_regular,
    read_arrays,
    reason,
    write_bytes,
    write_whole,
)
from coco_denoiser.solution import Solution
from coco_denoiser.typing import Float64

SUFFIXES = (".npz", ".csv")


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
