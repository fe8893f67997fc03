"""One method, one colour and dash, in every picture: printed, on the pages and in the docs.

People who confuse red and green can tell orange from blue, and whatever differs in colour
also differs in dash or marker. COCO_K darkens as K grows, so that it survives a printout.
"""

import re
from typing import NamedTuple

PLAIN, COCO, EXACT = "#c65102", "#0062a8", "#333333"  # alone, denoised, and what is true
GAUSSIAN = "#2e7d32"  # denoised by the Gaussian model


class Style(NamedTuple):
    """How a series looks."""

    colour: str
    dash: tuple[float, ...]  # lengths in points of line and gap, () for a solid line
    marker: int


_NAMED = {
    "SGD": Style(PLAIN, (5, 2), 1),
    "Adam": Style("#a3195b", (5, 2, 1, 2), 2),
    "STRSAGA": Style("#7d5a00", (8, 2), 3),
    "SGD+DecreasingSS": Style("#1f8a70", (3, 1.5), 4),
    "SGD+PRaveraging": Style("#7c4dbd", (2, 1, 2, 3), 5),
    "SGD+COCO_8, L=1/s": Style("#5aa9e6", (9, 2), 6),
    "SGD+Gaussian_32": Style(GAUSSIAN, (8, 1, 1, 1), 2),
    "tail average": Style("#111111", (1, 1.2), 5),
    "gradient EMA": Style("#8a6d00", (3, 1.5), 3),
    "IGT": Style("#7c4dbd", (6, 1.5, 1, 1.5, 1, 1.5), 4),
    "schedule-free": Style("#0093a7", (2, 1), 6),
    "tuned mean": Style("#111111", (1, 1.2), 5),
    "slope-corrected mean": Style("#8a6d00", (3, 1.5), 3),
    "surrogates": Style("#0093a7", (2, 1), 6),
    "dual averaging": Style("#7c4dbd", (2, 1, 2, 3), 4),
    "fold 2, L=1/s": Style("#5aa9e6", (9, 2), 6),
    "fold 16, L=1/s": Style(COCO, (), 0),
    "Gaussian 128": Style(GAUSSIAN, (8, 1, 1, 1), 2),
    "Oracle (E)": Style(PLAIN, (5, 2), 1),
    "Oracle": Style(PLAIN, (5, 2), 1),
    "COCO": Style(COCO, (), 0),
    "regression": Style("#d62728", (6, 2, 1, 2), 0),  # red in the paper's Figure 2 too
    "No WS": Style(PLAIN, (5, 2), 1),
    "WS": Style(COCO, (), 0),
    "ΔL=-0.90": Style("#8c1c13", (9, 2, 2, 2), 0),
    "ΔL=-0.45": Style(PLAIN, (5, 2), 1),
    "ΔL=0": Style("#111111", (), 2),
    "ΔL=+0.45": Style(COCO, (3, 1.5), 3),
    "ΔL=+0.90": Style("#1f9e89", (1, 1.2), 4),
}
_WINDOWS = {
    "2": Style("#7aa61e", (1, 1.2), 4),
    "4": Style("#1f9e89", (3, 1.5), 3),
    "8": Style(COCO, (), 0),
    "16": Style("#3b1c8c", (9, 2, 2, 2), 2),
    "32": Style("#240a45", (10, 3), 1),
    "": Style("#111111", (4, 1.5, 1, 1.5), 5),  # all points
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
