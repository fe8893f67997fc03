"""The page: one file of HTML, with the runs inside it or asked of a server."""

import json
import math
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from bokeh.embed import file_html
from bokeh.resources import INLINE
from jinja2 import Template

from coco_denoiser.paper.explore.objectives import OBJECTIVES
from coco_denoiser.paper.explore.pictures import RUNS, axes, contours, curves, frame, legend, plots
from coco_denoiser.paper.explore.remarks import medians, remarks, summary
from coco_denoiser.paper.explore.simulation import LIMITS, PRESETS, Settings, simulate


def run(settings: Settings) -> dict[str, Any]:
    """Return all that the script of the page needs to show a run, as plain numbers and text."""
    simulation = simulate(settings)
    sentences = [summary(simulation), *remarks(simulation)]
    solutions = simulation.paths["coco"].solutions
    last = max(len(path.observed) for path in simulation.paths.values())  # one may have diverged
    return {
        "settings": asdict(settings),
        "address": address(settings),
        "axes": axes(simulation),
        "words": "".join(f"<p>{escape(each)}</p>" for each in sentences),
        "last": last,
        "curves": curves(simulation),
        "frames": [frame(simulation, k) for k in range(1, len(solutions) + 1)],
        "certificates": [
            f"Step {k} of {last}: {found.status}. "
            f"Relative gap {found.gap:.1e}, worst violation {found.violation:.1e}. "
            f"Method: {found.method}; iterations: {found.iterations}."
            for k, found in enumerate(solutions, 1)
        ],
    }


def address(settings: Settings) -> str:
    """Return the settings that differ from the usual ones, as the query of an address."""
    usual = asdict(Settings())
    return urlencode({n: value for n, value in asdict(settings).items() if value != usual[n]})


def html(*, live: bool) -> str:
    """Return the page: with sliders for a server's runs, or with the runs of the presets.

    The second is computed beforehand, and asks nothing of the network.
    """
    shown = {} if live else PRESETS
    data = {
        "runs": {name: run(each) | {"seeds": medians(each)} for name, each in shown.items()},
        "contours": {name: contours(name) for name in OBJECTIVES},
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
