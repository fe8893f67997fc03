"""How a figure is described, once, for the printed picture and for the page alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from coco_denoiser.paper.experiments import palette
from coco_denoiser.paper.experiments.palette import Style

_COLOURS = ("#111111", "#3b1c8c", "#21708c", "#1fa187", "#7aa61e", "#c98f00", "#b3401f")
_DASHES = ((), (7, 2), (4, 1.5, 1, 1.5), (3, 1.5), (1, 1.2), (9, 2, 2, 2), (5, 1, 1, 1, 1, 1))
# From dark to light, for more series than have names of their own.
_RAMP = (
    "#440154", "#482878", "#3e4a89", "#31688e", "#26828e",
    "#1f9e89", "#35b779", "#6ece58", "#a5c82a", "#d1b60b",
)  # fmt: skip
_REFERENCE = Style("#777777", (6, 2, 1, 2), 0)
_COMPANIONS = (_REFERENCE.dash, (1.0, 1.5))  # of references that differ in what follows the comma


def styles(series: Sequence[str], references: frozenset[str]) -> dict[str, Style]:
    """Return a style for every series; those to compare with are dash-dotted.

    A method has the style that it has everywhere. A reference called `X, what` has the colour of
    `what` if that has a style, or of the series X; any other is grey. A second kind is dotted.
    """
    own = [name for name in series if name not in references]
    colours = _COLOURS if len(own) <= len(_COLOURS) else _RAMP
    known = {name: style for name in own if (style := palette.method(name)) is not None}
    taken = {part for style in known.values() for part in (style.colour, style.dash)}
    free = [colour for colour in colours if colour not in taken] or list(colours)
    dashes = [dash for dash in _DASHES if dash not in taken] or list(_DASHES)
    found = known | {
        name: Style(free[i % len(free)], dashes[i % len(dashes)], i)
        for i, name in enumerate(name for name in own if name not in known)
    }

    kinds = companion_styles(series, references)

    def reference(name: str) -> Style:
        base, _, what = name.partition(", ")
        like = palette.method(what) or found.get(base) or palette.method(name) or _REFERENCE
        return kinds.get(what, _REFERENCE)._replace(colour=like.colour)

    return {name: found.get(name) or reference(name) for name in series}


def companions(series: Sequence[str], references: frozenset[str]) -> dict[str, str]:
    """Return the references called `X, what` of shown series X, with their `what`.

    They look like X, so that a legend names what they are once, and not for each X.
    """
    own = set(series) - references
    parts = {name: name.partition(", ") for name in series if name in references}
    return {name: what for name, (base, _, what) in parts.items() if what and base in own}


def companion_styles(series: Sequence[str], references: frozenset[str]) -> dict[str, Style]:
    """Return how a legend shows each `what`: in grey, with the dash of its companions."""
    kinds = dict.fromkeys(companions(series, references).values())
    return {
        what: palette.method(what) or _REFERENCE._replace(dash=_COMPANIONS[i % len(_COMPANIONS)])
        for i, what in enumerate(kinds)
    }


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
        references: the series that are drawn as thin dash-dotted lines, to compare with.
        log: which axes are logarithmic, a part of "xy".
        kind: how it is drawn.
        new_row: whether it starts a row of the figure.
        magnitude: whether absolute values are drawn, as the paper does for the bias.
        figure: the paper's figure that it is, such as "9, top"; empty for what is ours.
        y_range: the ends of the vertical axis, as in the paper; those of the data if left out.
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
    figure: str = ""
    y_range: tuple[float, float] | None = None

    @property
    def heading(self) -> str:
        """The title, with the number of the paper's figure."""
        return f"Figure {self.figure}. {self.title}" if self.figure else self.title
