"""One page of everything: interactive figures, what the paper claims, what came out.

The page is a single file that needs no network: the drawing library is inside it. Figures are
handed to it as data, so that they can be zoomed, read off and thinned out by a click.
"""

import html
import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any, NamedTuple

import numpy as np

from coco_denoiser._version import __version__
from coco_denoiser.experiments.claims import Claim, Verdict
from coco_denoiser.experiments.drawing import heights
from coco_denoiser.experiments.experiment import BEYOND, Curves, Experiment, Result
from coco_denoiser.experiments.panels import Kind, Panel, styles

_SYMBOLS = ("circle", "square-open", "triangle-up", "diamond-open", "triangle-down", "pentagon")
_CLASSES = {Verdict.HOLDS: "holds", Verdict.FAILS: "fails", Verdict.OPEN: "open"}


class Entry(NamedTuple):
    """An experiment that was run, with what came out."""

    experiment: Experiment
    result: Result
    claims: list[Claim]
    seconds: float


def page(entries: Sequence[Entry | tuple[Experiment, str]]) -> str:
    """Return the page; an experiment that could not be run comes with the reason."""
    from plotly.offline import get_plotlyjs

    figures: dict[str, Any] = {}
    sections = []
    for entry in entries:
        if isinstance(entry, Entry):
            sections.append(_section(entry, figures))
        else:
            sections.append(_missing(*entry))
    done = [entry for entry in entries if isinstance(entry, Entry)]
    template = resources.files("coco_denoiser.experiments") / "page.html"
    return Template(template.read_text("utf-8")).substitute(
        version=_text(__version__),
        summary=_summary(done),
        contents="".join(f'<a href="#{_name(entry)}">{_name(entry)}</a> ' for entry in entries),
        sections="\n".join(sections),
        # "</" would end the script early.
        figures=json.dumps(figures, ensure_ascii=False, allow_nan=False).replace("</", "<\\/"),
        library=get_plotlyjs(),
    )


def _name(entry: Entry | tuple[Experiment, str]) -> str:
    return entry[0].name


def _summary(entries: Sequence[Entry]) -> str:
    claims = [claim for entry in entries for claim in entry.claims]
    counts = {v: sum(claim.verdict is v for claim in claims) for v in Verdict}
    words = {Verdict.HOLDS: "hold", Verdict.FAILS: "do not", Verdict.OPEN: "are not resolved"}
    parts = [f'<span class="{_CLASSES[v]}">{n} {words[v]}</span>' for v, n in counts.items() if n]
    took = sum(entry.seconds for entry in entries)
    return f"Of {len(claims)} claims, {', '.join(parts)}. Computed in {took:.0f} s."


def _section(entry: Entry, figures: dict[str, Any]) -> str:
    experiment, result = entry.experiment, entry.result
    plots = []
    for number, panel in enumerate(experiment.panels(result)):
        identifier = f"{experiment.name}-{number}"
        figures[identifier] = _figure(panel, result.curves)
        shape = " wide" if panel.new_row and panel.kind is Kind.SPACE else ""
        if len(panel.series) > 7:  # a long legend must not take the room of the curves
            shape = " tall"
        plots.append(f'<div class="plot{shape}" id="{identifier}"></div>')
    rows = "".join(_claim(claim) for claim in entry.claims)
    parameters = "".join(
        f"<tr><td>{_text(name.replace('_', ' '))}</td><td>{_text(_value(value))}</td></tr>"
        for name, value in result.config.parameters().items()
    )
    return f"""
<section id="{experiment.name}">
<h2>{experiment.name}</h2>
<p>{_text(experiment.summary)} <span class="label">{_text(_origin(experiment))}</span></p>
<div class="beside">
<div class="plots">{"".join(plots)}</div>
<div class="words">
<table class="claims"><thead><tr><th>claim</th><th>came out</th><th>verdict</th></tr></thead>
<tbody>{rows}</tbody></table>
<details><summary>Parameters</summary><table>{parameters}</table></details>
<p class="again">Again: <code>{_again(experiment, result)}</code> ({entry.seconds:.1f} s)</p>
</div></div>
</section>"""


def _missing(experiment: Experiment, reason: str) -> str:
    return f"""
<section id="{experiment.name}">
<h2>{experiment.name}</h2>
<p>{_text(experiment.summary)} <span class="label">{_text(_origin(experiment))}</span></p>
<p class="fails missing">Missing: {_text(reason)}</p>
</section>"""


def _origin(experiment: Experiment) -> str:
    """Say which figure of the paper it is, or that it is none."""
    if experiment.figure == BEYOND:
        return "Beyond the paper."
    return f"Figure: {experiment.figure}."


def _claim(claim: Claim) -> str:
    note = f'<div class="note">{_text(claim.note)}</div>' if claim.note else ""
    relation = "≤" if claim.relation == "<=" else "≥"
    return (
        f"<tr><td>{_text(claim.sentence)}{note}</td>"
        f'<td title="{_text(claim.measure)}">{claim.number:.3g} '
        f"<small>(must be {relation} {claim.threshold:.3g})</small>"
        f'<div class="note">{_text(claim.measure)}</div></td>'
        f'<td class="{_CLASSES[claim.verdict]}">{claim.verdict.value}</td></tr>'
    )


def _again(experiment: Experiment, result: Result) -> str:
    quick = all(getattr(result.config, k) == v for k, v in experiment.quick.items())
    flags = " --quick" if quick and experiment.quick else ""
    seed = f" --seed {result.config.seed}" if result.config.seed else ""
    return f"coco-denoiser reproduce {experiment.name}{flags}{seed}"


def _value(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_value(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(content: str) -> str:
    return html.escape(content, quote=True)


def _figure(panel: Panel, curves: Curves) -> dict[str, Any]:
    """Return data and layout of a panel, for Plotly."""
    layout: dict[str, Any] = {"title": {"text": panel.title or panel.name}}
    if panel.kind is Kind.SPACE:
        layout["scene"] = {f"{a}axis": {"title": {"text": a}} for a in "xyz"}
        return {"data": [_space(panel, curves)], "layout": layout}
    for letter, label in (("x", panel.x), ("y", panel.y)):
        layout[f"{letter}axis"] = {
            "title": {"text": label, "standoff": 8},
            "type": "log" if letter in panel.log else "linear",
        }
        if letter in panel.log:
            layout[f"{letter}axis"] |= _log_ticks(panel, curves, letter)
    data: list[dict[str, Any]] = []
    series = _series(panel, curves)
    for name, style in styles(series, panel.references).items():
        curve = curves[panel.name, name]
        y, sem = heights(panel, curve), np.nan_to_num(curve.sem)
        markers = panel.kind is Kind.MARKERS and name not in panel.references
        trace: dict[str, Any] = {
            "name": name,
            "legendgroup": name,
            "x": _list(curve.x),
            "y": _list(y),
            "mode": "markers" if markers else "lines",
        }
        if markers:
            symbol = _SYMBOLS[style.marker % len(_SYMBOLS)]
            trace["marker"] = {"color": style.colour, "symbol": symbol, "size": 8}
            trace["error_y"] = {"type": "data", "array": _list(sem), "thickness": 1}
        else:
            dash = ",".join(f"{length:g}px" for length in style.dash) or "solid"
            width = 1.2 if name in panel.references else 2
            trace["line"] = {"color": style.colour, "dash": dash, "width": width}
            if np.any(sem > 0):
                data.append(_band(curve.x, y, sem, name, style.colour, positive="y" in panel.log))
        data.append(trace)
    return {"data": data, "layout": layout}


def _series(panel: Panel, curves: Curves) -> tuple[str, ...]:
    return panel.series or tuple(curves.series(panel.name))


def _log_ticks(panel: Panel, curves: Curves, letter: str) -> dict[str, Any]:
    """Return ticks at 1, 2, 5 over a few decades, in full (20, not a lone 2), else at powers."""
    drawn = [curves[panel.name, name] for name in _series(panel, curves)]
    values = np.concatenate([curve.x if letter == "x" else curve.mean for curve in drawn])
    values = np.abs(values[values != 0])
    decades = float(np.log10(values.max() / values.min()))
    ticks = round(2 * decades) if decades < 3 else int(np.ceil(1.1 * decades)) + 1
    return {"tickformat": "~g", "nticks": max(2, ticks)}


def _band(
    x: np.ndarray, y: np.ndarray, sem: np.ndarray, name: str, colour: str, *, positive: bool
) -> dict[str, Any]:
    """Return the band of one standard error, as an outline that goes there and back."""
    low = y - sem
    if positive:  # a log axis has no place for what is not positive
        low = np.where(low > 0, low, y)
    return {
        "x": _list(np.concatenate((x, x[::-1]))),
        "y": _list(np.concatenate((y + sem, low[::-1]))),
        "fill": "toself",
        "fillcolor": f"{colour}33",
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
        "legendgroup": name,
        "showlegend": False,
    }


def _space(panel: Panel, curves: Curves) -> dict[str, Any]:
    x, y, z = (curves[panel.name, name].mean for name in curves.series(panel.name))
    return {
        "type": "scatter3d",
        "x": _list(x),
        "y": _list(y),
        "z": _list(z),
        "mode": "markers+text",
        "text": [f"x{i + 1}" for i in range(x.size)],
        "marker": {"color": "#21708c", "size": 6},
        "name": "points",
    }


def _list(values: np.ndarray) -> list[float | None]:
    """Return numbers to six digits, which is more than a screen can show; NaN as a gap."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.tolist()]
