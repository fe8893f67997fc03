"""The site as MkDocs builds it: nothing that was written is lost on the way to the browser."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e '.[test]'")
ROOT = Path(__file__).resolve().parent.parent
BUILT = "COCO_DENOISER_BUILT_SITE"  # names the folder of a site that is built already
PACKAGES = [
    f"coco_denoiser{name}"
    for name in ("", ".curvature", ".optax", ".paper.optimizers", ".paper.problems", ".torch")
]
FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$\w])\$(?=\S)([^$\n]+?(?:\n[^$\n]+?)*?)(?<=\S)\$", re.DOTALL
)
# What a formula looks like that was not marked as one: norms, LaTeX, subscripts, powers.
UNMARKED = re.compile(r"\|\||[‖⟨Σ∇]|\\[a-z]+\b|\$\$|\b[a-zA-Z]+_[ijklm]\b|[a-z)]\^[-\d(]|<=")

# What a browser makes of a page: elements and attributes that it does not know, formulas, text that
# is neither code nor math, what is wider than the screen where nothing scrolls, and items whose
# bullet would be clipped.
READ = """
const scrolls = e => e && (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)
                           || scrolls(e.parentElement));
const content = document.querySelector(".md-content") || document.createElement("div");
const all = [...document.querySelectorAll("*")], inside = [...content.querySelectorAll("*")];
const odd = name => !/^([a-z][a-z:-]*[a-z0-9]|d|x|y|r)$/i.test(name);
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), text = [];
while (walker.nextNode())
  if (!walker.currentNode.parentElement.closest("code, pre, math, script, style"))
    text.push(walker.currentNode.data);
const shown = elements => elements.map(e => e.outerHTML.slice(0, 100));
return {
  strange: shown(all.filter(
    e => e instanceof HTMLUnknownElement || e.getAttributeNames().some(odd))),
  formulas: [...document.querySelectorAll("math")].map(e => e.getAttribute("alttext")),
  text: text,
  cut: shown([document.documentElement].filter(e => e.scrollWidth > 390)
    .concat(inside.filter(e => e.getBoundingClientRect().right > 391 && !scrolls(e.parentElement)))
    .concat(inside.filter(e => e.matches("li") && getComputedStyle(e).overflowX !== "visible"))),
};
"""


def _plain(latex: str) -> str:
    return " ".join(latex.split())


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a phone makes of every page."""
    from tests.browser import chromium, resize

    site, found = Path(os.environ.get(BUILT) or tmp_path_factory.mktemp("site")), {}
    if BUILT not in os.environ:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
        env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        subprocess.run([*command, str(site)], cwd=ROOT, env=env, check=True)
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        resize(browser, 390)
        for page in sorted(site.rglob("*.html")):
            browser.get(page.as_uri())
            found[str(page.relative_to(site))] = browser.execute_script(READ)
    return found


@pytest.mark.parametrize("wrong", ["strange", "cut"])
def test_everything_is_known_to_browsers_and_nothing_is_cut_on_a_phone(
    wrong: str, pages: dict[str, dict[str, Any]]
) -> None:
    assert len(pages) > 20
    assert {name: page[wrong] for name, page in pages.items() if page[wrong]} == {}


def test_every_formula_arrives(pages: dict[str, dict[str, Any]]) -> None:
    written = {
        _plain(first or second)
        for text in (*_sources(), *_docstrings())
        for first, second in FORMULA.findall(text)
    }
    shown = {_plain(f) for page in pages.values() for f in page["formulas"]}
    assert len(written) > 30
    assert written - shown == set()


def test_no_formula_is_left_as_text(pages: dict[str, dict[str, Any]]) -> None:
    left = [
        (n, line) for n, page in pages.items() for line in page["text"] if UNMARKED.search(line)
    ]
    assert left == []


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
