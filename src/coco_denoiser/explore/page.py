"""The page: sliders on one side, pictures on the other, one callback that redraws them."""

from html import escape
from importlib.resources import files
from typing import Any

from bokeh.document import Document
from bokeh.models import Button, Div, RadioButtonGroup, Slider, Toggle
from jinja2 import Template

from coco_denoiser.explore.pictures import Curves, Paths, Weights
from coco_denoiser.explore.remarks import remarks, summary
from coco_denoiser.explore.simulation import METHODS, Settings, simulate
from coco_denoiser.palette import COCO

PATIENCE = 2.0  # seconds
FRAME = 120  # milliseconds between the frames of a run that plays
SLIDERS = {
    "window": ("K, gradients in the window", 1, 64, 1),
    "L": ("L, as a multiple of the true one", 0.1, 10.0, 0.1),
    "mu": ("mu, as a multiple of L", -1.0, 0.9, 0.1),
    "noise": ("Noise, standard deviation", 0.0, 10.0, 0.25),
    "step": ("Step size, times 1 / true L", 0.05, 1.9, 0.05),
    "steps": ("Steps", 10, 150, 5),
    "seed": ("Seed of the noise", 1, 50, 1),
}
# What the template's style cannot reach: widgets live in a shadow of their own.
_STYLE = """
:host { --font-size: 14px; font-size: 14px; }
p { margin: .3rem 0; }
.noUi-handle:focus-visible { outline: 3px solid #0062a8; outline-offset: 1px; }
"""


class Page:
    """One visitor's page: the widgets, the pictures, and the step that is shown."""

    def __init__(self, document: Document) -> None:
        self._document = document
        start = Settings()
        self._settings = start
        self._playing: Any = None
        self._pending = False
        names = list(METHODS)
        self.method = RadioButtonGroup(
            labels=names,
            active=names.index(start.method),
            name="method",
            stylesheets=[_STYLE],
        )
        self.sliders = {
            name: Slider(
                title=title, start=low, end=high, step=by, value=getattr(start, name), name=name,
                sizing_mode="stretch_width", bar_color=COCO, stylesheets=[_STYLE],
            )
            for name, (title, low, high, by) in SLIDERS.items()
        }  # fmt: skip
        self.play = Toggle(
            label="Play", name="play", button_type="primary", width=75, stylesheets=[_STYLE]
        )
        self.one = Button(label="One step", name="one", width=90, stylesheets=[_STYLE])
        self.text = Div(name="text", sizing_mode="stretch_width", stylesheets=[_STYLE])
        self.certificate = Div(
            name="certificate", sizing_mode="stretch_width", stylesheets=[_STYLE]
        )
        self.paths = Paths()
        self.curves = Curves()
        self.weights = Weights()
        self.method.on_change("active", self._changed)
        for slider in self.sliders.values():
            slider.on_change("value", self._changed)
        self.play.on_change("active", self._toggled)
        self.one.on_click(self._one_step)
        self._simulate()

    def _changed(self, _attr: str, _old: object, _new: object) -> None:
        """Redraw soon: a slider that is dragged asks faster than large windows are solved."""
        if not self._pending:
            self._pending = True
            self._document.add_timeout_callback(self._simulate, 1)

    def _simulate(self) -> None:
        self._pending = False
        values = {name: type(getattr(self._settings, name))(slider.value)
                  for name, slider in self.sliders.items()}  # fmt: skip
        self._settings = Settings(method=list(METHODS)[self.method.active], **values)
        self.simulation = simulate(self._settings, patience=PATIENCE)
        if self._playing is None:
            self._shown = self._last
        self._draw()

    @property
    def _last(self) -> int:
        return max(len(self.simulation.plain.points), len(self.simulation.coco.points)) - 1

    def _draw(self) -> None:
        k = self._shown = min(self._shown, self._last)
        taken = min(k, len(self.simulation.coco.points) - 1)  # a run may have been stopped
        chosen, found = self.simulation.window(taken)
        self._document.hold("combine")  # so that the browser draws once
        self.paths.draw(self.simulation, k, chosen, found.gradients)
        self.curves.draw(self.simulation, k)
        self.weights.draw(found.weights[-1])
        sentences = [summary(self.simulation), *remarks(self.simulation)]
        self.text.text = "".join(f"<p>{escape(each)}</p>" for each in sentences)
        self.certificate.text = (
            f"<p>Step {taken} of {self._last}: {escape(found.status.value)}. "
            f"Relative gap {found.gap:.1e}, worst violation {found.violation:.1e}, "
            f"by the {escape(found.method)} method in {found.iterations} iterations.</p>"
        )
        self._document.unhold()

    def _toggled(self, _attr: str, _old: object, _new: object) -> None:
        if self.play.active and self._playing is None:
            self.play.label = "Pause"
            if self._shown == self._last:
                self._shown = 0
            self._playing = self._document.add_periodic_callback(self._next_frame, FRAME)
        elif not self.play.active and self._playing is not None:
            self.play.label = "Play"
            self._document.remove_periodic_callback(self._playing)
            self._playing = None

    def _next_frame(self) -> None:
        if self._shown >= self._last:
            self.play.active = False
            return
        self._shown += 1
        self._draw()

    def _one_step(self) -> None:
        self.play.active = False
        self._shown = self._shown % self._last + 1
        self._draw()

    @property
    def roots(self) -> list[Any]:
        """Everything that the template places, by name."""
        plots = (self.paths, self.curves.distance, self.curves.error, self.weights)
        widgets = (self.method, *self.sliders.values(), self.play, self.one)
        return [*widgets, self.text, self.certificate, *(each.plot for each in plots)]


def build(document: Document) -> None:
    """Put a page of its own into the document of a new visitor."""
    for root in Page(document).roots:
        document.add_root(root)
    document.title = "COCO denoiser: explore"
    document.template = Template(
        files("coco_denoiser.explore").joinpath("template.html").read_text("utf-8")
    )
    document.template_variables["sliders"] = list(SLIDERS)
