"""The same pictures without a server: every step of every preset, computed beforehand, in one file.

`python -m coco_denoiser.explore.standalone FILE` writes it. It asks nothing of the network.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.embed import file_html
from bokeh.resources import INLINE

from coco_denoiser._storage import write_bytes
from coco_denoiser.explore.objectives import contours
from coco_denoiser.explore.page import certificate, template, words
from coco_denoiser.explore.pictures import COLOURS, Pictures, axes, frame, legend
from coco_denoiser.explore.presets import PRESETS
from coco_denoiser.explore.simulation import Settings, simulate


def run(settings: Settings) -> dict[str, Any]:
    """Return all that the script of the page needs to show a run, as plain numbers and text."""
    simulation = simulate(settings)
    frames: list[dict[str, Any]] = []
    for k in range(1, simulation.last + 1):
        content, taken, found = frame(simulation, k)
        sources = {
            name: {column: _plain(values) for column, values in columns.items()}
            for name, columns in content.items()
        }
        proof = certificate(found, taken, simulation.last)
        frames.append({"sources": sources, "certificate": proof})
    # What only grows is kept once, and the script shows its beginning.
    grown = {name: frames[-1]["sources"][name] for name in frames[-1]["sources"] if _grows(name)}
    for each in frames:
        each["sources"] = {n: data for n, data in each["sources"].items() if n not in grown}
    return {
        "objective": settings.objective,
        "axes": axes(simulation),
        "words": words(simulation),
        "grown": grown,
        "frames": frames,
    }


def _grows(name: str) -> bool:
    return name.endswith(("-path", "-distance", "-error"))


def html() -> str:
    """Return the page."""
    pictures = Pictures()
    runs = {name: run(settings) for name, settings in PRESETS.items()}
    lines = {}
    for name in sorted({each["objective"] for each in runs.values()}):
        xs, ys = contours(name)
        lines[name] = {"xs": [*map(_plain, xs)], "ys": [*map(_plain, ys)]}
    data = json.dumps({"runs": runs, "contours": lines}, separators=(",", ":"))
    made: str = file_html(
        list(pictures.plots.values()),
        INLINE,
        title="COCO denoiser: presets",
        template=template("standalone.html"),
        template_variables={
            "presets": list(PRESETS),
            "data": data.replace("</", "<\\/"),
            "legend": legend(),
            **COLOURS,
        },
    )
    return made


def _plain(values: Any) -> list[float]:
    """Return numbers with as many digits as a picture can show."""
    return [float(f"{value:.4g}") for value in np.asarray(values, dtype=float)]


if __name__ == "__main__":
    write_bytes(Path(sys.argv[1]), html().encode())
