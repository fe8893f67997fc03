"""How a figure is described, once, for the printed picture and for the page alike."""

from dataclasses import dataclass, field
from enum import Enum


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
