"""What is saved of an experiment, and read again: curves first, then all else from the curves."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments.claims import Claim
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.drawing import draw
from coco_denoiser.paper.experiments.experiment import Entry, Experiment
from coco_denoiser.paper.experiments.units import Store
from coco_denoiser.paper.files import write_bytes, write_whole


def finish(experiment: Experiment, out: Path, seconds: float) -> str:
    """Gather the units of an experiment, which are all there, save all else, return its name.

    The figure and the claims are made from the curves as they were saved.
    """
    name, folder = experiment.name, out / experiment.name
    units = Store(experiment, out).everything()
    write_bytes(folder / "curves.csv", experiment.gather(units).to_csv())
    # Apart from what two runs have equal: when it was computed and how long that took.
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    _write_json(folder / "run.json", {"date": when, "seconds": round(seconds, 2)})
    curves = Curves.from_csv((folder / "curves.csv").read_bytes())
    figure = draw(experiment.panels(curves), curves)
    made_by = f"coco-denoiser {__version__}"
    for kind, about in (
        ("png", {"Software": made_by, "Title": name}),
        ("pdf", {"Creator": made_by, "Title": name, "CreationDate": None}),
    ):
        save = partial(figure.savefig, format=kind, dpi=130, metadata=about)
        write_whole(folder / f"figure.{kind}", save)
    record = {
        "experiment": name,
        "version": __version__,
        "config": experiment.parameters(),
        "claims": [claim.as_dict() for claim in experiment.claims(curves)],
    }
    _write_json(folder / "claims.json", record, indent=1)
    return name


def _write_json(path: Path, content: object, indent: int | None = None) -> None:
    write_bytes(path, (json.dumps(content, indent=indent, ensure_ascii=False) + "\n").encode())


def load(experiment: Experiment, out: Path) -> Entry | None:
    """Return what was saved of an experiment, or None if nothing was, or by another version."""
    folder = out / experiment.name
    try:
        record = json.loads((folder / "claims.json").read_text("utf-8"))
        curves = Curves.from_csv((folder / "curves.csv").read_bytes())
        saved: dict[str, Any] = record["config"]
        lists = {name: tuple(value) for name, value in saved.items() if isinstance(value, list)}
        ran = replace(experiment, **saved | lists)
        claims = [Claim.from_dict(claim) for claim in record["claims"]]
        run = json.loads((folder / "run.json").read_text("utf-8"))
        return Entry(ran, curves, claims, run["seconds"], run["date"])
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None
