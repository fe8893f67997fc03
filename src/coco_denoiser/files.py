"""Observations from files, and denoised gradients into files: `.npz` or `.csv`.

An `.npz` file holds the arrays `points` and `gradients`, (K, d) each, and may hold
`noise_variance`, (K,). A `.csv` file has a header and a row for each observation, with the
columns x1, …, xd and g1, …, gd, and perhaps `noise_variance`.
"""

import csv
import re
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coco_denoiser.experiments import ExperimentError
from coco_denoiser.experiments.output import write_bytes, write_whole
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
        ExperimentError: in one line, if the file is not there or not of this form.
    """
    try:
        return _read_csv(path) if suffix(path) == ".csv" else _read_npz(path)
    except OSError as error:
        raise ExperimentError(
            f"cannot read {path}: {(error.strerror or 'failed').lower()}"
        ) from error
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is damaged"
        raise ExperimentError(f"{path} holds no observations: {reason}") from error


def write(path: Path, solution: Solution) -> None:
    """Write the denoised gradients: as columns theta1, …, thetad, or with all else as arrays."""
    if suffix(path) == ".csv":
        names = ",".join(f"theta{j + 1}" for j in range(solution.gradients.shape[1]))
        rows = [",".join(map(repr, row)) for row in solution.gradients.tolist()]
        text = "\n".join([names, *rows]) + "\n"
        write_bytes(path, text.encode())
        return
    arrays = {
        "gradients": solution.gradients,
        "weights": solution.weights,
        "multipliers": solution.multipliers,
        "gap": np.array(solution.gap),
        "violation": np.array(solution.violation),
    }
    if solution.values is not None:
        arrays["values"] = solution.values
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def suffix(path: Path) -> str:
    """Return which of the two kinds a file is, by its name."""
    if path.suffix.lower() not in SUFFIXES:
        raise ExperimentError(f"{path} must end in {' or '.join(SUFFIXES)}")
    return path.suffix.lower()


def _read_npz(path: Path) -> Observations:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not an .npz archive")
        file.seek(0)
        content = np.load(file, allow_pickle=False)
        missing = {"points", "gradients"} - set(content.files)
        if missing:
            raise ValueError(f"the array {min(missing)!r} is missing")
        variances = content["noise_variance"] if "noise_variance" in content.files else None
        return Observations(content["points"], content["gradients"], variances)


def _read_csv(path: Path) -> Observations:
    with path.open(newline="", encoding="utf-8-sig") as file:
        header, *rows = [row for row in csv.reader(file) if row] or [[]]
    names = [name.strip() for name in header]
    columns = {name: number for number, name in enumerate(names)}
    d = sum(re.fullmatch(r"x[0-9]+", name) is not None for name in names)
    wanted = [f"{letter}{j + 1}" for letter in "xg" for j in range(d)]
    unknown = set(names) - {*wanted, "noise_variance"}
    if d == 0 or len(columns) != len(names) or unknown or not columns.keys() >= set(wanted):
        raise ValueError(
            "the first line must name the columns x1, …, xd, g1, …, gd and perhaps noise_variance"
        )
    table = np.empty((len(rows), len(names)))
    for number, row in enumerate(rows):
        try:
            table[number] = [float(cell) for cell in row]
        except ValueError:
            raise ValueError(f"observation {number + 1} is not {len(names)} numbers") from None
    if not rows:
        raise ValueError("there is no observation below the first line")
    places = [columns[name] for name in wanted]
    variances = table[:, columns["noise_variance"]] if "noise_variance" in columns else None
    return Observations(table[:, places[:d]], table[:, places[d:]], variances)
