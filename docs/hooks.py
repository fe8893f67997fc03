"""What MkDocs runs while it builds the site.

Mathematics becomes MathML: `$...$` and `$$...$$` are LaTeX, in pages and docstrings alike.
Browsers need neither a script nor a font for that, so the site works without the network.

A notebook is run from top to bottom and becomes a page; a cell that fails ends the build. The
presets of the interactive page are computed anew.
"""

import posixpath
import re
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

import nbformat
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import ExecutePreprocessor
from PIL import Image

from coco_denoiser.paper.explore import page as explore

_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_FIGURE = re.compile(r'(<img [^>]*\bsrc="([^"]+)"[^>]*>)')
_CELL_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)(?=[^\n]*</t[dh]>)")
_LONG_NAME = re.compile(r"(?<=<code>)[^<\s]{36,}(?=</code>[^\n]*</li>)")  # wider than a phone
_HYPHENATED = re.compile(r"(?<=<code>)[^<\n]*-[^<\n]*(?=</code>)")
_PUNCTUATED = re.compile(r"(<math (?:(?!</math>).)*</math>)([.,;:)]+)", re.DOTALL)
_INCHES = 6.1  # a picture wider than this has several panels, or too much for a phone


def on_post_build(config: Any, **_: Any) -> None:
    """Add the presets of the interactive page, which a page of the site embeds."""
    target = Path(config.site_dir) / "play" / "presets.html"
    target.parent.mkdir(exist_ok=True)
    target.write_text(explore.html(live=False), "utf-8")


def on_page_content(html: str, page: Any, config: Any, **_: Any) -> str:
    """Replace formulas by MathML, link figures to their full size, say where names may break."""

    def formula(match: re.Match[str]) -> str:
        return mathml(match[2], display=match[1] == "div", where=page.file.src_uri)

    def figure(match: re.Match[str]) -> str:
        path = Path(config.docs_dir) / posixpath.normpath(posixpath.join(page.url, match[2]))
        inches = _width(path) if path.exists() else 0.0
        # Where it is wide it scrolls on a phone, at 80 dots to an inch: there a panel fits.
        kind = f'"wide" style="--width: {80 * inches:.0f}px"' if inches > _INCHES else '"figure"'
        return f'<a class={kind} href="{match[2]}">{match[1]}</a>'

    for names in (_CELL_CODE, _LONG_NAME):
        html = names.sub(lambda name: re.sub(r"(?<=[._/])|(?<=::)", "<wbr>", name[0]), html)
    # Browsers break after any hyphen: `--quick` would become `--` and `quick`.
    html = _HYPHENATED.sub(
        lambda code: re.sub(r"[\w-]*-[\w-]*", r'<span class="whole">\g<0></span>', code[0]), html
    )
    html = _FIGURE.sub(figure, _FORMULA.sub(formula, html))
    return _PUNCTUATED.sub(r'<span class="whole">\1\2</span>', html)


def _width(picture: Path) -> float:
    """Return the width of a PNG in inches, by the resolution that it states, or 80 dots."""
    with Image.open(picture) as image:
        return float(image.width / image.info.get("dpi", (80.0, 80.0))[0])


def mathml(marked: str, *, display: bool, where: str) -> str:
    r"""Return MathML for the LaTeX between \( and \) or \[ and \], its HTML entities escaped."""
    latex = unescape(marked.strip())[2:-2].strip()
    math = convert(latex, display="block" if display else "inline")
    # The converter writes what it does not know as text instead of refusing it.
    if "\\" in math or "<mi>&</mi>" in math:
        raise PluginError(f"{where}: no MathML for the formula {latex}")
    math = math.replace("<math ", f'<math alttext="{escape(latex)}" ', 1)
    return f'<div class="formula">{math}</div>' if display else math


def on_files(files: Files, config: Any) -> Files:
    """Add a page, and its pictures, for every notebook; the notebook itself stays, to download."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        name = file.src_uri.removesuffix(".ipynb")
        text = Path(file.abs_src_path or "").read_text("utf-8")
        page, pictures = rendered(text, Path(name).name)
        files.append(File.generated(config, f"{name}.md", content=page))
        for picture, content in pictures.items():
            place = Path(file.src_uri).parent / picture
            files.append(File.generated(config, place.as_posix(), content=content))
    return files


@cache  # while `mkdocs serve` runs, a notebook is executed again only when it has changed
def rendered(notebook: str, name: str) -> tuple[str, dict[str, bytes]]:
    """Run a notebook, and return it as Markdown with the pictures that it drew."""
    cells = nbformat.reads(notebook, as_version=4)
    ExecutePreprocessor(timeout=600).preprocess(cells)
    resources = {"output_files_dir": f"{name}_files", "unique_key": name}
    page, found = MarkdownExporter().from_notebook_node(cells, resources)
    return page.replace("![png]", "![what the code above draws]"), found["outputs"]
