"""What came out, in a few lines: the paper's statements first, figure by figure, ours apart."""

import textwrap
from collections.abc import Iterable, Sequence

from coco_denoiser.paper.experiments.claims import Claim, Verdict
from coco_denoiser.paper.experiments.experiment import FIGURES, Entry

_WIDTH = 100


def of_paper(entries: Iterable[Entry]) -> list[Claim]:
    """Return the paper's claims, by figure."""
    claims = [claim for entry in entries for claim in entry.claims if claim.figure is not None]
    return sorted(claims, key=lambda claim: claim.figure or 0)


def of_ours(entries: Iterable[Entry]) -> list[Claim]:
    """Return our own claims."""
    return [claim for entry in entries for claim in entry.claims if claim.figure is None]


def tally(claims: Sequence[Claim]) -> str:
    """Return how many statements are confirmed, and how many not."""
    found = [claim.verdict for claim in claims]
    parts = [f"{found.count(Verdict.HOLDS)} of {len(found)} statements confirmed"]
    for verdict, word in ((Verdict.FAILS, "contradicted"), (Verdict.OPEN, "open")):
        if verdict in found:
            parts.append(f"{found.count(verdict)} {word}")
    return ", ".join(parts)


def lines(entries: Sequence[Entry]) -> list[str]:
    """Return the summary: all figures, a line for each, what contradicts and why, our claims."""
    paper, ours = of_paper(entries), of_ours(entries)
    out, titles = [f"The paper: {tally(paper)}."] if paper else [], list(FIGURES.values())
    groups = {entry.experiment.numbers for entry in entries}
    for numbers in sorted(groups):
        mine = [claim for claim in paper if claim.figure in numbers]
        if mine and not any(set(numbers) < set(larger) for larger in groups):
            out.append(f"  {name(numbers):18} {titles[numbers[0] - 1]:42}{tally(mine)}")
    for claim in paper:
        if claim.verdict is Verdict.FAILS:
            why = f" Why: {claim.note}" if claim.note else ""
            text = f"Contradicted, Figure {claim.figure}: {claim.sentence}{why}"
            out += textwrap.wrap(text, _WIDTH, subsequent_indent="    ")
    return [*out, f"Our own: {tally(ours)}."] if ours else out


def name(numbers: tuple[int, ...]) -> str:
    """Return `Figure 4` or `Figures 3, 10, 11`; nothing without a number."""
    listed = ", ".join(map(str, numbers))
    return f"Figure{'s' * (len(numbers) > 1)} {listed}" if numbers else ""


def every_claim(entries: Iterable[Entry]) -> list[str]:
    """Return every claim with its number and verdict."""
    found = []
    for entry in entries:
        found += ["", entry.experiment.name]
        for claim in entry.claims:
            whose = name((claim.figure,)) if claim.figure else "ours"
            must = f", must be {wanted(claim)}" if wanted(claim) else ""
            number = f"{claim.number + 0.0:.3g}{must}"
            text = f"{claim.verdict.value}: {claim.sentence} ({whose}: {number}) {claim.note}"
            found += textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return found


def wanted(claim: Claim) -> str:
    """Return what the number must be; nothing where the runs are too few to say."""
    if claim.threshold in (float("inf"), float("-inf")):
        return ""
    return f"{'≤' if claim.relation == '<=' else '≥'} {claim.threshold:.3g}"
