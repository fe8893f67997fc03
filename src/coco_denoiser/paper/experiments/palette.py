"""One method, one colour and dash, in every picture: printed, on the pages and in the docs.

People who confuse red and green can tell orange from blue, and whatever differs in colour
also differs in dash or marker. COCO_K darkens as K grows, so that it survives a printout.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

PLAIN, COCO, EXACT = "#c65102", "#0062a8", "#333333"  # alone, denoised, and what is true
GAUSSIAN = "#2e7d32"  # denoised by the Gaussian model


class Style(NamedTuple):
    """How a series looks."""

    colour: str
    dash: tuple[float, ...]  # lengths in points of line and gap, () for a solid line


_REFERENCE = Style("#777777", (6, 2, 1, 2))
_COMPANIONS = (_REFERENCE.dash, (1.0, 1.5))  # of references that differ in what follows the comma
# For series without a name of their own; colours from dark to light.
_RAMP = (
    "#440154", "#482878", "#3e4a89", "#31688e", "#26828e",
    "#1f9e89", "#35b779", "#6ece58", "#a5c82a", "#d1b60b",
)  # fmt: skip
_DASHES = ((), (7, 2), (4, 1.5, 1, 1.5), (3, 1.5), (1, 1.2), (9, 2, 2, 2), (5, 1, 1, 1, 1, 1))
_NAMED = {
    "SGD": Style(PLAIN, (5, 2)),
    "Adam": Style("#a3195b", (5, 2, 1, 2)),
    "STRSAGA": Style("#7d5a00", (8, 2)),
    "SGD+DecreasingSS": Style("#1f8a70", (3, 1.5)),
    "SGD+PRaveraging": Style("#7c4dbd", (2, 1, 2, 3)),
    "SGD+COCO_8, L=1/s": Style("#5aa9e6", (9, 2)),
    "SGD+Gaussian_32": Style(GAUSSIAN, (8, 1, 1, 1)),
    "tail average": Style("#111111", (1, 1.2)),
    "gradient EMA": Style("#8a6d00", (3, 1.5)),
    "IGT": Style("#7c4dbd", (6, 1.5, 1, 1.5, 1, 1.5)),
    "schedule-free": Style("#0093a7", (2, 1)),
    "tuned mean": Style("#111111", (1, 1.2)),
    "slope-corrected mean": Style("#8a6d00", (3, 1.5)),
    "surrogates": Style("#0093a7", (2, 1)),
    "dual averaging": Style("#7c4dbd", (2, 1, 2, 3)),
    "fold 2, L=1/s": Style("#5aa9e6", (9, 2)),
    "fold 16, L=1/s": Style(COCO, ()),
    "Gaussian 128": Style(GAUSSIAN, (8, 1, 1, 1)),
    "Oracle (E)": Style(PLAIN, (5, 2)),
    "Oracle": Style(PLAIN, (5, 2)),
    "COCO": Style(COCO, ()),
    "regression": Style("#d62728", (6, 2, 1, 2)),  # red in the paper's Figure 2 too
    "No WS": Style(PLAIN, (5, 2)),
    "WS": Style(COCO, ()),
    "ΔL=-0.90": Style("#8c1c13", (9, 2, 2, 2)),
    "ΔL=-0.45": Style(PLAIN, (5, 2)),
    "ΔL=0": Style("#111111", ()),
    "ΔL=+0.45": Style(COCO, (3, 1.5)),
    "ΔL=+0.90": Style("#1f9e89", (1, 1.2)),
}
_WINDOWS = {
    "2": Style("#7aa61e", (1, 1.2)),
    "4": Style("#1f9e89", (3, 1.5)),
    "8": Style(COCO, ()),
    "16": Style("#3b1c8c", (9, 2, 2, 2)),
    "32": Style("#240a45", (10, 3)),
    "": Style("#111111", (4, 1.5, 1, 1.5)),  # all points
}
_WINDOW = re.compile(r"\w+\+COCO_?(\d*)$")
# Smaller steps have the colour of the COCO_K that they are compared with.
_NAMED |= {
    f"SGD+SS(COCO_{window})": _WINDOWS[window]._replace(dash=dash)
    for window, dash in (("2", (6, 2, 1, 1, 1, 2)), ("4", (10, 2, 1, 2)), ("8", (2, 2)))
}


def method(name: str) -> Style | None:
    """Return the style of a series by its name in the figures, or None if it has none of its own.

    `SGD+COCO_4` and `Adam+COCO_4` look alike: a figure shows one of them.
    """
    window = _WINDOW.match(name)
    return _WINDOWS.get(window[1]) if window else _NAMED.get(name)


def styles(series: Sequence[str], references: Collection[str]) -> dict[str, Style]:
    """Return a style for every series; those to compare with are dash-dotted.

    A method has the style that it has everywhere. A reference called `X, what` has the colour of
    `what` if that has a style, or of the series X; any other is grey. A second kind is dotted.
    """
    own = [name for name in series if name not in references]
    looks = {name: style for name in own if (style := method(name)) is not None}
    taken, others = {style.dash for style in looks.values()}, [n for n in own if n not in looks]
    dashes = [dash for dash in _DASHES if dash not in taken]
    for i, name in enumerate(others):
        colour = _RAMP[i * len(_RAMP) // len(others)]
        looks[name] = Style(colour, dashes[i % len(dashes)])
    kinds = companion_styles(series, references)
    for name in [name for name in series if name in references]:
        base, _, what = name.partition(", ")
        like = method(what) or looks.get(base) or method(name) or _REFERENCE
        looks[name] = kinds.get(what, _REFERENCE)._replace(colour=like.colour)
    return {name: looks[name] for name in series}


def companions(series: Sequence[str], references: Collection[str]) -> dict[str, str]:
    """Return the references called `X, what` of shown series X, with their `what`.

    They look like X, so that a legend names what they are once, and not for each X.
    """
    own = set(series) - set(references)
    parts = {name: name.partition(", ") for name in series if name in references}
    return {name: what for name, (base, _, what) in parts.items() if what and base in own}


def companion_styles(series: Sequence[str], references: Collection[str]) -> dict[str, Style]:
    """Return how a legend shows each `what`: in grey, with the dash of its companions."""
    kinds = dict.fromkeys(companions(series, references).values())
    return {
        what: method(what) or _REFERENCE._replace(dash=_COMPANIONS[i % len(_COMPANIONS)])
        for i, what in enumerate(kinds)
    }
