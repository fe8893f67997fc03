"""What MkDocs runs while it builds the site: formulas as MathML, and the presets of the page.

`$...$` and `$$...$$` are LaTeX, in pages and docstrings alike. Browsers need neither a script
nor a font for MathML, so the site works without the network.
"""

import re
from html import escape, unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

from coco_denoiser.explore import standalone

_FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def on_post_build(config: Any, **_: Any) -> None:
    """Add the presets of the page to play with, which a page of the site embeds."""
    target = Path(config.site_dir) / "play" / "presets.html"
    target.parent.mkdir(exist_ok=True)
    target.write_text(standalone.html(), "utf-8")


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Replace every formula of a page by MathML."""

    def replace(match: re.Match[str]) -> str:
        return mathml(match[2], display=match[1] == "div", where=page.file.src_uri)

    return _FORMULA.sub(replace, html)


def mathml(marked: str, *, display: bool, where: str) -> str:
    r"""Return MathML for the LaTeX between \( and \) or \[ and \], its HTML entities escaped."""
    latex = unescape(marked.strip())[2:-2].strip()
    math = convert(latex, display="block" if display else "inline")
    # The converter writes what it does not know as text instead of refusing it.
    if "\\" in math or "<mi>&</mi>" in math:
        raise PluginError(f"{where}: no MathML for the formula {latex}")
    math = math.replace("<math ", f'<math alttext="{escape(latex)}" ', 1)
    return f'<div class="formula">{math}</div>' if display else math
