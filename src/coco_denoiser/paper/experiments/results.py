"""What is saved of an experiment, and read again: curves first, then all else from the curves."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.claims import Claim
from coco_denoiser.paper.experiments.curves import Curves
from coco_denoiser.paper.experiments.drawing import draw
from coco_denoiser.paper.experiments.experiment import Config, Entry, Experiment, Result
from coco_denoiser.paper.experiments.units import Store
from coco_denoiser.paper.files import write_bytes, write_whole


def finish(name: str, config: Config, out: Path, seconds: float) -> None:
    """Gather the units of an experiment, which are all there, and save all else."""
    experiment, folder = EXPERIMENTS[name], out / name
    units = Store(name, config, out).everything(experiment.count(config))
    write_bytes(folder / "curves.csv", experiment.gather(config, units).to_csv())
    # Apart from what two runs have equal: when it was computed and how long that took.
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    record = {"date": when, "seconds": round(seconds, 2)}
    write_bytes(folder / "run.json", (json.dumps(record) + "\n").encode())
    save_the_rest(name, config, folder)


def save_the_rest(name: str, config: Config, folder: Path) -> None:
    """Save the figure and the claims, made from the saved curves."""
    experiment = EXPERIMENTS[name]
    result = Result(config, Curves.from_csv((folder / "curves.csv").read_bytes()))
    figure = draw(experiment.panels(result), result.curves)
    made_by = f"coco-denoiser {__version__}"
    for kind, about in (
        ("png", {"Software": made_by, "Title": name}),
        ("pdf", {"Creator": made_by, "Title": name, "CreationDate": None}),
    ):
        write_whole(
            folder / f"figure.{kind}",
            lambda file, kind=kind, about=about: figure.savefig(  # type: ignore[misc]  # the default of a lambda
                file, format=kind, dpi=130, metadata=about
            ),
        )
    record = {
        "experiment": name,
        "version": __version__,
        "config": config.parameters(),
        "claims": [claim.as_dict() for claim in experiment.claims(result)],
    }
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    write_bytes(folder / "claims.json", text.encode())


def load(experiment: Experiment, out: Path) -> Entry | None:
    """Return what was saved of an experiment, or None if nothing was, or by another version."""
    folder = out / experiment.name
    try:
        record = json.loads((folder / "claims.json").read_text("utf-8"))
        curves = Curves.from_csv((folder / "curves.csv").read_bytes())
        saved: dict[str, Any] = {name: _tuples(v) for name, v in record["config"].items()}
        config = type(experiment.paper)(**saved)
        claims = [Claim.from_dict(claim) for claim in record["claims"]]
        run = json.loads((folder / "run.json").read_text("utf-8"))
        return Entry(experiment, Result(config, curves), claims, run["seconds"], run["date"])
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return None


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
