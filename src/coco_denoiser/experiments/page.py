"""One page of everything: interactive figures, what is claimed, what came out.

The page is a single file that needs no network: the drawing library is inside it, packed, and so
are the figures, as data, so that they can be zoomed, read off and thinned out by a click. A
figure is drawn when it comes into view.
"""

import base64
import gzip
import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from coco_denoiser._version import __version__
from coco_denoiser.experiments import summary
from coco_denoiser.experiments.claims import Claim, Verdict
from coco_denoiser.experiments.curves import Curves
from coco_denoiser.experiments.drawing import extent, heights
from coco_denoiser.experiments.experiment import Experiment, Result
from coco_denoiser.experiments.panels import (
    Kind,
    Panel,
    companion_styles,
    companions,
    log_ticks,
    styles,
)
from coco_denoiser.palette import COCO

_SYMBOLS = ("circle", "square-open", "triangle-up", "diamond-open", "triangle-down", "pentagon")
_CLASSES = {Verdict.HOLDS: "holds", Verdict.FAILS: "fails", Verdict.OPEN: "open"}


class Entry(NamedTuple):
    """An experiment that was run, with what came out, how long it took and when."""

    experiment: Experiment
    result: Result
    claims: list[Claim]
    seconds: float
    date: str


_Missing: TypeAlias = tuple[Experiment, str]


def page(entries: Sequence[Entry | _Missing]) -> str:
    """Return the page; an experiment that could not be run comes with the reason."""
    from plotly.offline import get_plotlyjs

    figures: dict[str, Any] = {}
    done = [entry for entry in entries if isinstance(entry, Entry)]
    paper = sorted((e for e in entries if e[0].numbers), key=lambda entry: entry[0].numbers)
    beyond = [entry for entry in entries if not entry[0].numbers]
    template = resources.files("coco_denoiser.experiments") / "page.html"
    return Template(template.read_text("utf-8")).substitute(
        about=_about(done),
        verdict=_verdict(done),
        contents=_contents(paper, beyond),
        paper="".join(_section(entry, figures) for entry in paper),
        beyond=_beyond(beyond, done, figures),
        figures=_packed(json.dumps(figures, ensure_ascii=False, allow_nan=False)),
        library=_packed(get_plotlyjs()),
    )


def _packed(text: str) -> str:
    # No time of day in it: equal runs make equal pages.
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _is_quick(entry: Entry) -> bool:
    changes = entry.experiment.quick
    return bool(changes) and all(getattr(entry.result.config, k) == v for k, v in changes.items())


def _about(entries: Sequence[Entry]) -> str:
    """Say what this is: how large, when, with which version."""
    sized = [entry for entry in entries if entry.experiment.quick]
    quick = sum(map(_is_quick, sized))
    size = "Full size" if not quick else "Quick run" if quick == len(sized) else "Mixed sizes"
    paper = [entry.result.config.runs for entry in sized if entry.experiment.numbers]
    runs = f", {min(paper)} to {max(paper)} runs a figure" if paper else ""
    seeds = ", ".join(sorted({str(entry.result.config.seed) for entry in entries}))
    date = max((entry.date for entry in entries), default="")
    took = f"{sum(entry.seconds for entry in entries):.0f} s of computing"
    return _text(f"{size}{runs}, seed {seeds}. {date}, coco-denoiser {__version__}, {took}.")


def _verdict(entries: Sequence[Entry]) -> str:
    """Return three numbers: confirmed, contradicted, too few runs."""
    count = summary.counts(summary.of_paper(entries))
    words = {
        Verdict.HOLDS: f"of {sum(count.values())} statements of the paper confirmed",
        Verdict.FAILS: "contradicted",
        Verdict.OPEN: "too few runs to judge",
    }
    return "".join(
        f'<div class="{_CLASSES[v]}"><b>{n}</b> {words[v]}</div>' for v, n in count.items()
    )


def _contents(paper: Sequence[Entry | _Missing], beyond: Sequence[Entry | _Missing]) -> str:
    links = [
        f'<a href="#{e.name}">Fig. {", ".join(map(str, e.numbers))} {e.name}</a>' for e, *_ in paper
    ]
    if beyond:
        links.append('<a href="#beyond">beyond:</a>')
    links += [f'<a href="#{entry[0].name}">{entry[0].name}</a>' for entry in beyond]
    return " ".join(links)


def _beyond(
    entries: Sequence[Entry | _Missing], done: Sequence[Entry], figures: dict[str, Any]
) -> str:
    count = summary.counts(summary.of_ours(done))
    ours = (
        f"Our own claims, here and above: {count[Verdict.HOLDS]} hold, {count[Verdict.FAILS]} do "
        f"not, {count[Verdict.OPEN]} have too few runs to judge."
    )
    sections = "".join(_section(entry, figures) for entry in entries)
    title = '<h2 class="part">Beyond the paper</h2>' if entries else ""
    return f'<div id="beyond">{title}<p>{ours}</p>{sections}</div>'


def _section(entry: Entry | _Missing, figures: dict[str, Any]) -> str:
    experiment = entry[0]
    title = summary.name(experiment.numbers) if experiment.numbers else experiment.name
    also = f' <span class="label">{experiment.name}</span>' if experiment.numbers else ""
    if isinstance(entry, Entry):
        body = _body(entry, figures)
    else:
        body = f'<p class="fails missing">Missing: {_text(entry[1])}</p>'
    return f"""
<section id="{experiment.name}">
<h3>{_text(title)}{also}</h3>
<p>{_text(experiment.summary)}</p>
{body}
</section>"""


def _body(entry: Entry, figures: dict[str, Any]) -> str:
    experiment, result = entry.experiment, entry.result
    plots = []
    for number, panel in enumerate(experiment.panels(result)):
        identifier = f"{experiment.name}-{number}"
        figures[identifier] = _figure(panel, result.curves)
        plots.append(f'<div class="plot" id="{identifier}"></div>')
    parameters = "".join(
        f"<tr><td>{_text(name.replace('_', ' '))}</td><td>{_text(_value(value))}</td></tr>"
        for name, value in result.config.parameters().items()
    )
    return f"""<div class="beside">
<div class="plots">{"".join(plots)}</div>
<div class="words">
{_claims("The paper says", summary.of_paper([entry]))}
{_claims("We say", summary.of_ours([entry]))}
<details><summary>Parameters</summary><table>{parameters}</table></details>
<p class="again">Again: <code>{_again(entry)}</code> ({entry.seconds:.1f} s)</p>
</div></div>"""


def _claims(whose: str, claims: Iterable[Claim]) -> str:
    rows = "".join(_claim(claim) for claim in claims)
    if not rows:
        return ""
    head = f"<tr><th>{whose}</th><th>what came out</th><th>verdict</th></tr>"
    return f'<table class="claims"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _claim(claim: Claim) -> str:
    note = f'<div class="note">{_text(claim.note)}</div>' if claim.note else ""
    limit = summary.wanted(claim)
    must = f" <small>(must be {limit})</small>" if limit else ""
    return (
        f"<tr><td>{_text(claim.sentence)}{note}</td>"
        f'<td>{claim.number + 0.0:.3g}{must}<div class="note">{_text(claim.measure)}</div></td>'
        f'<td class="{_CLASSES[claim.verdict]}">{claim.verdict.value}</td></tr>'
    )


def _again(entry: Entry) -> str:
    flags = " --quick" if _is_quick(entry) else ""
    seed = f" --seed {entry.result.config.seed}" if entry.result.config.seed else ""
    return f"coco-denoiser reproduce {entry.experiment.name}{flags}{seed}"


def _value(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_value(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(content: str) -> str:
    return html.escape(content, quote=True)


def _figure(panel: Panel, curves: Curves) -> dict[str, Any]:
    """Return data and layout of a panel, for Plotly."""
    layout: dict[str, Any] = {"title": {"text": panel.heading or panel.name}}
    if panel.kind is Kind.SPACE:
        layout["scene"] = {f"{a}axis": {"title": {"text": a}} for a in "xyz"}
        # A cube, from further away than usual: in a narrow column it would be cut off.
        layout["scene"] |= {"aspectmode": "cube", "camera": {"eye": {"x": 1.8, "y": 1.8, "z": 1.4}}}
        return {"data": [_space(panel, curves)], "layout": layout}
    for letter, label in (("x", panel.x), ("y", panel.y)):
        layout[f"{letter}axis"] = {
            "title": {"text": label, "standoff": 8},
            "type": "log" if letter in panel.log else "linear",
        }
        if letter in panel.log:
            layout[f"{letter}axis"] |= _log_ticks(panel, curves, letter)
    if panel.y_range is not None:
        layout["yaxis"]["range"] = panel.y_range
    data: list[dict[str, Any]] = []
    series = _series(panel, curves)
    twins = companions(series, panel.references)
    for name, style in styles(series, panel.references).items():
        curve = curves[panel.name, name]
        y, sem = heights(panel, curve), np.nan_to_num(curve.sem)
        markers = panel.kind is Kind.MARKERS and name not in panel.references
        trace: dict[str, Any] = {
            "name": name,
            "legendgroup": name.partition(", ")[0] if name in twins else name,
            "showlegend": name not in twins,
            "x": _list(curve.x),
            "y": _list(y),
            "mode": "markers" if markers else "lines",
        }
        if markers:
            symbol = _SYMBOLS[style.marker % len(_SYMBOLS)]
            trace["marker"] = {"color": style.colour, "symbol": symbol, "size": 8}
            trace["error_y"] = {"type": "data", "array": _list(sem), "thickness": 1}
        else:
            width = 1.2 if name in panel.references else 2
            trace["line"] = {"color": style.colour, "dash": _dash(style.dash), "width": width}
            if np.any(sem > 0):
                data.append(_band(curve.x, y, sem, name, style.colour, positive="y" in panel.log))
        data.append(trace)
    for what, look in companion_styles(series, panel.references).items():
        line = {"color": look.colour, "dash": _dash(look.dash), "width": 1.2}
        data.append({"name": what, "x": [None], "y": [None], "mode": "lines", "line": line})
    return {"data": data, "layout": layout}


def _dash(lengths: tuple[float, ...]) -> str:
    return ",".join(f"{length:g}px" for length in lengths) or "solid"


def _series(panel: Panel, curves: Curves) -> tuple[str, ...]:
    return panel.series or tuple(curves.series(panel.name))


def _log_ticks(panel: Panel, curves: Curves, letter: str) -> dict[str, Any]:
    """Return ticks in plain numbers, at least two even on a short axis."""
    ticks = log_ticks(*extent(panel, curves, _series(panel, curves), letter))
    return {"tickmode": "array", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


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
        "marker": {"color": COCO, "size": 6},
        "name": "points",
    }


def _list(values: np.ndarray) -> list[float | None]:
    """Return numbers to five digits, which is more than a screen can show; NaN as a gap."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values.tolist()]
