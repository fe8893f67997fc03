"""The site as MkDocs builds it: nothing that was written is lost on the way to the browser."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e '.[test]'")
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = [
    f"coco_denoiser{name}"
    for name in ("", ".curvature", ".optax", ".optimizers", ".problems", ".torch")
]
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
HTML = """a abbr article aside audio b blockquote body button caption cite code colgroup dd del
    details dialog div dl dt em figcaption figure footer form h1 h2 h3 h4 h5 h6 head header html i
    iframe ins kbd label legend li main mark nav noscript ol option p picture pre s samp script
    section select small span strong style sub summary sup table tbody td template tfoot th thead
    time title tr u ul var video"""
MATHML = """math menclose mfrac mi mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub
    msubsup msup mtable mtd mtext mtr munder munderover"""
SVG = """circle clippath defs ellipse g line lineargradient path polygon polyline rect stop svg
    symbol text tspan use"""
KNOWN = {*VOID, *HTML.split(), *MATHML.split(), *SVG.split()}
ATTRIBUTE = re.compile(r"[a-z][a-z:-]*[a-z0-9]|d|x|y|r")
FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?=\S)([^$\n]+?(?:\n[^$\n]+?)*?)(?<=\S)\$", re.DOTALL
)
# What a formula looks like that was not marked as one: norms, LaTeX, subscripts, powers.
UNMARKED = re.compile(r"\|\||[‖⟨Σ∇]|\\[a-z]+\b|\$\$|\b[a-zA-Z]+_[ijklm]\b|[a-z)]\^[-\d(]|<=")

# What is wider than the screen where nothing scrolls, and items whose bullet would be clipped.
CUT = """
const scrolls = e => e && (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)
                           || scrolls(e.parentElement));
const content = document.querySelector(".md-content"), cut = [];
if (document.documentElement.scrollWidth > 390) cut.push("the page");
for (const e of content ? content.querySelectorAll("*") : [])
  if (e.getBoundingClientRect().right > 391 && !scrolls(e.parentElement)) cut.push(e.outerHTML);
for (const e of content ? content.querySelectorAll("li") : [])
  if (getComputedStyle(e).overflowX !== "visible") cut.push(e.outerHTML);
return cut.map(text => text.slice(0, 100));
"""


class Reader(HTMLParser):
    """Collects elements, their attributes, formulas, and the text that is neither code nor math."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.formulas: set[str] = set()
        self.text: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag == "math":
            self.formulas.add(_plain(dict(attrs)["alttext"] or ""))
        if tag not in VOID:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not {"code", "pre", "math", "script", "style"} & set(self._inside):
            self.text.append(data)


def _plain(latex: str) -> str:
    return " ".join(latex.split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return site


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Reader]:
    found: dict[str, Reader] = {}
    for path in sorted(site.rglob("*.html")):
        found[str(path.relative_to(site))] = reader = Reader()
        reader.feed(path.read_text("utf-8"))
    return found


def test_every_element_is_one_that_browsers_know(pages: dict[str, Reader]) -> None:
    assert len(pages) > 20
    for name, page in pages.items():
        assert page.tags <= KNOWN, name
        strange = [word for word in page.attributes if not ATTRIBUTE.fullmatch(word)]
        assert strange == [], name


def test_every_formula_arrives(pages: dict[str, Reader]) -> None:
    written = {
        _plain(first or second)
        for text in (*_sources(), *_docstrings())
        for first, second in FORMULA.findall(text)
    }
    shown = set().union(*(page.formulas for page in pages.values()))
    assert len(written) > 30
    assert written - shown == set()


def test_no_formula_is_left_as_text(pages: dict[str, Reader]) -> None:
    left = [(n, line) for n, page in pages.items() for line in page.text if UNMARKED.search(line)]
    assert left == []


def test_on_a_phone_nothing_is_cut_and_items_keep_their_bullets(site: Path, tmp_path: Path) -> None:
    from tests.browser import chromium

    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    with chromium(tmp_path) as browser:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        for page in sorted(site.rglob("index.html")):
            browser.get(page.as_uri())
            cut = browser.execute_script(CUT)
            assert cut == [], page.relative_to(site)


def test_every_picture_says_how_large_it_is() -> None:
    """A phone shows it by its size in inches: as it is, or scrolling."""
    from PIL import Image

    pictures = sorted((ROOT / "docs").rglob("*.png"))
    assert len(pictures) > 20
    for path in pictures:
        with Image.open(path) as picture:
            assert picture.info.get("dpi"), path


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_public_has_its_place_in_the_reference(package: str) -> None:
    module = importlib.import_module(package)
    described = {id(_named(name)) for name in _described()}
    names = {name for name in module.__all__ if not name.startswith("__")}
    assert {name for name in names if id(getattr(module, name)) not in described} == set()


def _sources() -> Iterator[str]:
    """Every page as Markdown, without its code."""
    for path in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        yield re.sub(r"`[^`\n]+`", "", text)


def _docstrings() -> Iterator[str]:
    """The docstrings that the site shows."""
    for name, with_members in _described().items():
        thing = _named(name)
        yield inspect.getdoc(thing) or ""
        if inspect.isclass(thing) and with_members:
            for member, value in vars(thing).items():
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    yield inspect.getdoc(value) or ""


def _described() -> dict[str, bool]:
    """What `:::` names on any page, and whether its members are shown with it."""
    found = {}
    for path in (ROOT / "docs").rglob("*.md"):
        text = path.read_text("utf-8")
        for name, rest in re.findall(r"^::: (\S+)\n((?: {4}.*\n)*)", text, re.MULTILINE):
            found[name] = "members: false" not in rest
    return found


def _named(name: str) -> object:
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last)
    except ModuleNotFoundError:
        return getattr(_named(module), last)
