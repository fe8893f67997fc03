"""One page of everything: the figures, what is claimed, what came out.

The page needs no network and no script: it shows the figures that lie beside it.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import TypeAlias

from coco_denoiser._version import __version__
from coco_denoiser.paper.experiments import summary
from coco_denoiser.paper.experiments.claims import Claim, Verdict
from coco_denoiser.paper.experiments.drawing import in_rows
from coco_denoiser.paper.experiments.experiment import Entry, Experiment

_Missing: TypeAlias = tuple[Experiment, str]


def page(entries: Sequence[Entry | _Missing]) -> str:
    """Return the page; an experiment that could not be run comes with the reason."""
    done = [entry for entry in entries if isinstance(entry, Entry)]
    paper = sorted((e for e in entries if e[0].numbers), key=lambda entry: entry[0].numbers)
    beyond = [entry for entry in entries if not entry[0].numbers]
    links = [_link(e, f"Fig. {', '.join(map(str, e.numbers))} {e.name}") for e, *_ in paper]
    links += ['<a href="#beyond">beyond:</a>'] if beyond else []
    links += [_link(e, e.name) for e, *_ in beyond]
    template = resources.files("coco_denoiser.paper.experiments") / "page.html"
    return Template(template.read_text("utf-8")).substitute(
        about=escape(_about(done)),
        verdict=_verdict(done),
        contents=" ".join(links),
        paper="".join(map(_section, paper)),
        title='<h2 class="part">Beyond the paper</h2>' if beyond else "",
        ours=summary.tally(summary.of_ours(done)),
        beyond="".join(map(_section, beyond)),
    )


def _link(experiment: Experiment, text: str) -> str:
    return f'<a href="#{experiment.name}">{text}</a>'


def _is_quick(entry: Entry) -> bool:
    changes = entry.experiment.quick
    return bool(changes) and all(getattr(entry.experiment, k) == v for k, v in changes.items())


def _about(entries: Sequence[Entry]) -> str:
    """Return what this is: how large, when, with which version."""
    sized = [entry for entry in entries if entry.experiment.quick]
    quick = {_is_quick(entry) for entry in sized}
    size = "Mixed sizes" if len(quick) > 1 else "Quick run" if True in quick else "Full size"
    paper = [entry.experiment.runs for entry in sized if entry.experiment.numbers]
    runs = f", {min(paper)} to {max(paper)} runs a figure" if paper else ""
    seeds = ", ".join(sorted({str(entry.experiment.seed) for entry in entries}))
    date = max((entry.date for entry in entries), default="")
    took = f"{sum(entry.seconds for entry in entries):.0f} s of computing"
    return f"{size}{runs}, seed {seeds}. {date}, coco-denoiser {__version__}, {took}."


def _verdict(entries: Sequence[Entry]) -> str:
    """Return three numbers: confirmed, contradicted, too few runs."""
    found = [claim.verdict for claim in summary.of_paper(entries)]
    words = {
        Verdict.HOLDS: f"of {len(found)} statements of the paper confirmed",
        Verdict.FAILS: "contradicted",
        Verdict.OPEN: "too few runs to judge",
    }
    return "".join(
        f'<div class="{v.name.lower()}"><b>{found.count(v)}</b> {text}</div>'
        for v, text in words.items()
    )


def _section(entry: Entry | _Missing) -> str:
    experiment = entry[0]
    title = summary.name(experiment.numbers) or experiment.name
    also = f' <span class="label">{experiment.name}</span>' if experiment.numbers else ""
    missing = f'<p class="fails missing">Missing: {escape(str(entry[1]))}</p>'
    return f"""
<section id="{experiment.name}">
<h3>{escape(title)}{also}</h3>
<p>{escape(experiment.summary)}</p>
{_body(entry) if isinstance(entry, Entry) else missing}
</section>"""


def _body(entry: Entry) -> str:
    experiment, name = entry.experiment, entry.experiment.name
    parameters = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{escape(_value(value))}</td></tr>"
        for name, value in experiment.parameters().items()
    )
    again = ["coco-denoiser", "reproduce", name, *["--quick"] * _is_quick(entry)]
    again += ["--seed", str(experiment.seed)] if experiment.seed else []
    # As narrow and as wide as its panels: one is as wide as a phone can be read.
    columns = max(map(len, in_rows(experiment.panels(entry.curves))))
    size = f"min-width: {min(19 * columns, 44)}rem; max-width: {36 * columns}rem"
    return f"""<div class="beside">
<div class="figure"><a href="{name}/figure.png"><img src="{name}/figure.png" loading="lazy"
style="{size}" alt="{escape(experiment.summary)}"></a></div>
<div class="words">
{_claims("The paper says", summary.of_paper([entry]))}
{_claims("We say", summary.of_ours([entry]))}
<details><summary>Parameters</summary><table>{parameters}</table></details>
<p>Again: <code>{" ".join(f"<span>{word}</span>" for word in again)}</code>
({entry.seconds:.1f} s). Beside this page: <a href="{name}/figure.pdf">figure.pdf</a>,
<a href="{name}/curves.csv">curves.csv</a>.</p>
</div></div>"""


def _claims(whose: str, claims: Iterable[Claim]) -> str:
    rows = "".join(_claim(claim) for claim in claims)
    if not rows:
        return ""
    head = f"<tr><th>{whose}</th><th>what came out</th><th>verdict</th></tr>"
    return f'<table class="claims"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _claim(claim: Claim) -> str:
    note = f'<div class="note">{escape(claim.note)}</div>' if claim.note else ""
    limit = summary.wanted(claim)
    must = f" <small>(must be {limit})</small>" if limit else ""
    return (
        f"<tr><td>{escape(claim.sentence)}{note}</td>"
        f'<td>{claim.number + 0.0:.3g}{must}<div class="note">{escape(claim.measure)}</div></td>'
        f'<td class="{claim.verdict.name.lower()}">{claim.verdict.value}</td></tr>'
    )


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_value(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
