"""How a figure is described, once, for the printed picture and for the page alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Style(NamedTuple):
    """How a series looks. Colours go from dark to light, so that they survive a printout."""

    colour: str
    dash: tuple[float, ...]  # lengths in points of line and gap, () for a solid line
    marker: int


_COLOURS = ("#111111", "#3b1c8c", "#21708c", "#1fa187", "#7aa61e", "#c98f00", "#b3401f")
_DASHES = ((), (7, 2), (4, 1.5, 1, 1.5), (3, 1.5), (1, 1.2), (9, 2, 2, 2), (5, 1, 1, 1, 1, 1))
# From dark to light, for more series than have names of their own.
_RAMP = (
    "#440154", "#482878", "#3e4a89", "#31688e", "#26828e",
    "#1f9e89", "#35b779", "#6ece58", "#a5c82a", "#d1b60b",
)  # fmt: skip
_REFERENCE = Style("#777777", (5, 3), 0)


def styles(series: Sequence[str], references: frozenset[str]) -> dict[str, Style]:
    """Return a style for every series; those to compare with are dashed.

    A reference called `X, …` has the colour of the series X, any other is grey.
    """
    own = [name for name in series if name not in references]
    colours = _COLOURS if len(own) <= len(_COLOURS) else _RAMP
    found = {
        name: Style(colours[i % len(colours)], _DASHES[i % len(_DASHES)], i)
        for i, name in enumerate(own)
    }

    def reference(name: str) -> Style:
        return _REFERENCE._replace(
            colour=found.get(name.split(",", maxsplit=1)[0], _REFERENCE).colour
        )

    return {name: found.get(name) or reference(name) for name in series}


class Kind(Enum):
    """The ways a panel is drawn."""

    LINES = "lines with a band of one standard error"
    MARKERS = "markers with bars of one standard error"
    SPACE = "points in space, from three series of coordinates"


@dataclass(frozen=True)
class Panel:
    """One coordinate system.

    Attributes:
        name: the panel of the curves.
        title, x, y: what stands above, below and beside it. Plain text.
        series: the series drawn, in this order; all of the panel's if empty.
        references: the series that are drawn as thin dashed lines, to compare with.
        log: which axes are logarithmic, a part of "xy".
        kind: how it is drawn.
        new_row: whether it starts a row of the figure.
        magnitude: whether absolute values are drawn, as the paper does for the bias.
    """

    name: str
    title: str
    x: str
    y: str
    series: tuple[str, ...] = ()
    references: frozenset[str] = field(default_factory=frozenset)
    log: str = ""
    kind: Kind = Kind.LINES
    new_row: bool = False
    magnitude: bool = False
