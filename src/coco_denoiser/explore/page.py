"""The page: settings on one side, pictures on the other, one callback that redraws them."""

import math
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from bokeh.document import Document
from bokeh.models import (
    Button,
    CustomJS,
    CustomJSTickFormatter,
    RadioButtonGroup,
    Select,
    Slider,
    Toggle,
)
from jinja2 import Template

from coco_denoiser import Solution
from coco_denoiser.explore.objectives import OBJECTIVES, contours
from coco_denoiser.explore.pictures import COLOURS, NO_DISC, Pictures, Scene, axes, frame, legend
from coco_denoiser.explore.presets import LIMITS, PRESETS, settings
from coco_denoiser.explore.remarks import remarks, summary
from coco_denoiser.explore.simulation import METHODS, Settings, Simulation, simulate
from coco_denoiser.palette import COCO

PATIENCE = 2.0  # seconds
FRAME = 120  # milliseconds between the frames of a run that plays
SLIDERS = {
    "window": "K, gradients in the window",
    "L": "L, as a multiple of the true one",
    "mu": "mu, as a multiple of L",
    "noise": "Noise, standard deviation",
    "step": "Step size, times 1 / true L",
    "steps": "Steps",
    "seed": "Seed of the noise",
}
# What the template's style cannot reach: widgets live in a shadow of their own.
_STYLE = """
:host { --font-size: 14px; font-size: 14px; }
p { margin: .3rem 0; }
.noUi-handle:focus-visible { outline: 3px solid #0062a8; outline-offset: 1px; }
"""
# The slider of L shows its logarithm.
_POWER = "return String(Number((10 ** tick).toPrecision(3)))"
_WRITE_ADDRESS = """
const query = new URLSearchParams();
for (const [name, widget] of Object.entries(widgets)) {
  const raw = name == "method" ? widget.labels[widget.active] : widget.value;
  const value = name == "L" ? Number((10 ** raw).toPrecision(4)) : raw;
  if (value != usual[name]) query.set(name, value);
}
const text = query.toString();
history.replaceState(null, "", location.pathname + (text ? "?" + text : ""));
"""


def words(simulation: Simulation) -> str:
    """Return what came out and what the settings mean, as paragraphs."""
    sentences = [summary(simulation), *remarks(simulation)]
    return "".join(f"<p>{escape(each)}</p>" for each in sentences)


def certificate(found: Solution, taken: int, last: int) -> str:
    """Return the proof of the answer that a step was taken with, as a paragraph."""
    return (
        f"<p>Step {taken} of {last}: {escape(found.status.value)}. "
        f"Relative gap {found.gap:.1e}, worst violation {found.violation:.1e}. "
        f"Method: {escape(found.method)}; iterations: {found.iterations}.</p>"
    )


class Page:
    """One visitor's page: the widgets, the pictures, and the step that is shown."""

    def __init__(self, document: Document, shown: Settings) -> None:
        self._document = document
        self._settings = shown
        self._playing: Any = None
        self._pending = False
        self._contours = ""  # of which function they are drawn
        self.preset = Select(
            title="Begin with", options=[("", "your own settings"), *((n, n) for n in PRESETS)],
            value="", name="preset", sizing_mode="stretch_width", stylesheets=[_STYLE],
        )  # fmt: skip
        self.objective = Select(
            title="Function", options=[(n, each.label) for n, each in OBJECTIVES.items()],
            name="objective", sizing_mode="stretch_width", stylesheets=[_STYLE],
        )  # fmt: skip
        self.method = RadioButtonGroup(labels=list(METHODS), name="method", stylesheets=[_STYLE])
        self.sliders = {
            name: _slider(name, title, *LIMITS[name]) for name, title in SLIDERS.items()
        }
        self.play = Toggle(
            label="Play", name="play", button_type="primary", width=75, stylesheets=[_STYLE]
        )
        self.one = Button(label="One step", name="one", width=90, stylesheets=[_STYLE])
        self.pictures = Pictures()
        self._turn(shown)
        self._listen()
        self.scene = self._run()
        self.pictures.fill(self.scene)

    def _turn(self, to: Settings) -> None:
        """Turn the widgets to these settings."""
        self.objective.value = to.objective
        self.method.active = list(METHODS).index(to.method)
        for name, slider in self.sliders.items():
            value = getattr(to, name)
            slider.value = math.log10(value) if name == "L" else value

    def _read(self) -> Settings:
        """Return the settings that the widgets are turned to, by whatever the browser sent."""
        asked: dict[str, object] = {name: slider.value for name, slider in self.sliders.items()}
        power = min(max(self.sliders["L"].value, -9.0), 9.0)
        asked["L"] = round(10.0**power, 4)
        asked["objective"] = self.objective.value
        asked["method"] = dict(enumerate(METHODS)).get(self.method.active)
        return settings(asked)

    def _listen(self) -> None:
        self.preset.on_change("value", self._preset_chosen)
        widgets = {"objective": self.objective, "method": self.method, **self.sliders}
        write = CustomJS(
            args={"widgets": widgets, "usual": asdict(Settings())}, code=_WRITE_ADDRESS
        )
        for name, widget in widgets.items():
            what = "active" if name == "method" else "value"
            widget.on_change(what, self._changed)
            widget.js_on_change(what, write)
        self.play.on_change("active", self._toggled)
        self.one.on_click(self._one_step)

    def _preset_chosen(self, _attr: str, _old: object, _new: object) -> None:
        chosen = PRESETS.get(self.preset.value, self._settings)
        if chosen != self._settings:
            self._turn(chosen)

    def _changed(self, _attr: str, _old: object, _new: object) -> None:
        """Redraw soon: a slider that is dragged asks faster than large windows are solved."""
        if not self._pending:
            self._pending = True
            self._document.add_timeout_callback(self._simulate, 1)

    def _simulate(self) -> None:
        self._pending = False
        self.pictures.send(self._run())

    def _run(self) -> Scene:
        """Run the present settings, and return all that changes on the page."""
        self._settings = self._read()
        self.simulation = simulate(self._settings, patience=PATIENCE)
        if self._playing is None:
            self._shown = self.simulation.last
        same = [name for name, preset in PRESETS.items() if preset == self._settings]
        self.preset.value = same[0] if same else ""
        scene = self._step()
        scene["sources"]["ball"] = NO_DISC
        if self._contours != self._settings.objective:  # they are most of a message
            self._contours = self._settings.objective
            xs, ys = contours(self._contours)
            scene["sources"]["contours"] = {"xs": xs, "ys": ys}
        scene["axes"] |= axes(self.simulation)
        scene["texts"] |= {"text": words(self.simulation)}
        return scene

    def _step(self) -> Scene:
        """Return what is shown of the present run."""
        self._shown = min(self._shown, self.simulation.last)
        content, taken, found = frame(self.simulation, self._shown)
        said = certificate(found, taken, self.simulation.last)
        return {"sources": content, "axes": {}, "texts": {"certificate": said}}

    def _toggled(self, _attr: str, _old: object, _new: object) -> None:
        if self.play.active and self._playing is None:
            self.play.label = "Pause"
            if self._shown == self.simulation.last:
                self._shown = 0
            self._playing = self._document.add_periodic_callback(self._next_frame, FRAME)
        elif not self.play.active and self._playing is not None:
            self.play.label = "Play"
            self._document.remove_periodic_callback(self._playing)
            self._playing = None

    def _next_frame(self) -> None:
        if self._shown >= self.simulation.last:
            self.play.active = False
            return
        self._shown += 1
        self.pictures.send(self._step())

    def _one_step(self) -> None:
        self.play.active = False
        self._shown = self._shown % self.simulation.last + 1
        self.pictures.send(self._step())

    @property
    def roots(self) -> list[Any]:
        """Everything that the template places, by name."""
        widgets = (self.preset, self.objective, self.method, *self.sliders.values(), self.play)
        return [*widgets, self.one, *self.pictures.plots.values()]


def _slider(name: str, title: str, least: float, largest: float, by: float) -> Slider:
    options: dict[str, Any] = {"start": least, "end": largest, "step": by}
    if name == "L":
        shown = CustomJSTickFormatter(code=_POWER)
        options |= {"start": math.log10(least), "end": math.log10(largest), "format": shown}
    return Slider(
        title=title, value=options["start"], name=name, sizing_mode="stretch_width",
        bar_color=COCO, stylesheets=[_STYLE], **options,
    )  # fmt: skip


def template(name: str) -> Template:
    """Return a template of this package."""
    text = files("coco_denoiser.explore").joinpath(name).read_text("utf-8")
    made: Template = Template(text)
    return made


def build(document: Document) -> None:
    """Put a page of its own into the document of a new visitor."""
    asked = document.session_context.request.arguments if document.session_context else {}
    query = {name: values[-1].decode(errors="replace") for name, values in asked.items()}
    page = Page(document, settings(query))
    for root in page.roots:
        document.add_root(root)
    document.title = "COCO denoiser: explore"
    document.template = template("template.html")
    document.template_variables.update(
        **page.scene["texts"], sliders=list(SLIDERS), **COLOURS, legend=legend()
    )
