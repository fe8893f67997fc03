"""The page: one file of HTML, with the runs inside it or asked of a server."""

import json
import math
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import numpy as np
from bokeh.embed import file_html
from bokeh.resources import INLINE
from jinja2 import Template

from coco_denoiser.paper.explore.objectives import OBJECTIVES, contours
from coco_denoiser.paper.explore.pictures import RUNS, Columns, axes, curves, frame, legend, plots
from coco_denoiser.paper.explore.remarks import medians, remarks, summary
from coco_denoiser.paper.explore.simulation import LIMITS, PRESETS, Settings, Simulation, simulate


def run(settings: Settings) -> dict[str, Any]:
    """Return all that the script of the page needs to show a run, as plain numbers and text."""
    simulation = simulate(settings)
    sentences = [summary(simulation), *remarks(simulation)]
    taken = range(1, len(simulation.paths["coco"].solutions) + 1)
    return {
        "settings": asdict(settings),
        "address": address(settings),
        "axes": axes(simulation),
        "words": "".join(f"<p>{escape(each)}</p>" for each in sentences),
        "last": simulation.last,
        "curves": _plain(curves(simulation)),
        "frames": [_plain(frame(simulation, k)) for k in taken],
        "certificates": [_certificate(simulation, k) for k in taken],
    }


def address(settings: Settings) -> str:
    """Return the settings that differ from the usual ones, as the query of an address."""
    usual = asdict(Settings())
    return urlencode({n: value for n, value in asdict(settings).items() if value != usual[n]})


def html(*, live: bool) -> str:
    """Return the page: with sliders for a server's runs, or with the runs of the presets.

    The second is computed beforehand, and asks nothing of the network.
    """
    lines = {
        name: {"xs": [*map(_digits, xs)], "ys": [*map(_digits, ys)]}
        for name, (xs, ys) in ((name, contours(name)) for name in OBJECTIVES)
    }
    shown = {} if live else PRESETS
    data = {
        "runs": {name: run(each) | {"seeds": medians(each)} for name, each in shown.items()},
        "contours": lines,
        "presets": {name: address(settings) for name, settings in PRESETS.items()},
    }
    text = files("coco_denoiser.paper.explore").joinpath("template.html").read_text("utf-8")
    made: str = file_html(
        plots(),
        INLINE,
        title="COCO denoiser: explore",
        template=Template(text),
        template_variables={
            "live": live,
            "data": json.dumps(data, separators=(",", ":")).replace("</", "<\\/"),
            "objectives": OBJECTIVES,
            "sliders": [(name, *_slider(name)) for name in LIMITS],
            "presets": list(PRESETS),
            "legend": legend(),
            "colours": {name: look[1] for name, look in RUNS.items()},
        },
    )
    return made


def _slider(name: str) -> tuple[float, float, float, str]:
    """Return what a slider spans, and its title. That of L moves along its logarithm."""
    least, largest, by, title = LIMITS[name]
    ends = (math.log10(least), math.log10(largest)) if name == "L" else (least, largest)
    return *ends, by, title


def _certificate(simulation: Simulation, k: int) -> str:
    """Return the proof of the answer that a step was taken with, as text."""
    found = simulation.paths["coco"].solutions[k - 1]
    return (
        f"Step {k} of {simulation.last}: {found.status}. "
        f"Relative gap {found.gap:.1e}, worst violation {found.violation:.1e}. "
        f"Method: {found.method}; iterations: {found.iterations}."
    )


def _plain(content: Columns) -> dict[str, dict[str, list[float]]]:
    return {n: {c: _digits(values) for c, values in each.items()} for n, each in content.items()}


def _digits(values: Any) -> list[float]:
    """Return numbers with as many digits as a picture can show."""
    return [float(f"{value:.4g}") for value in np.asarray(values, dtype=float)]
