"""What the README and the docs show works: code, commands and links."""

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.__main__ import BENCHMARKS
from coco_denoiser.paper import cli

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.MULTILINE | re.DOTALL
NAMES = ("README", "CODE_OF_CONDUCT", "CONTRIBUTING", "RELEASING", "SECURITY")
PAGES = [*(ROOT / f"{name}.md" for name in NAMES), *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), BLOCK)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    blocks = _blocks(page, "python")
    assert page != PAGES[0] or len(blocks) >= 2
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{page.name}, Python block {number}", "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page: Path) -> None:
    for block in _blocks(page, "bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "coco-denoiser":
                cli.parser().parse_args(words[1:])
            if words[:3] == ["python", "-m", "benchmarks"]:
                assert {*words[3:]} <= {*BENCHMARKS}


@pytest.mark.parametrize("name", ["reproduce", "test", "plug-ins"])
def test_each_command_is_marked_once_and_complete(name: str) -> None:
    text = PAGES[0].read_text("utf-8")
    (command,) = re.findall(rf"^<!-- {name} command -->\n```bash\n(.*?)^```$", text, BLOCK)
    assert command.startswith("python3 -m venv .venv &&\n.venv/bin/pip install ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere_and_included_files_are_included(page: Path) -> None:
    text = page.read_text("utf-8")
    paths = [page.parent / target for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)]
    # A notebook becomes a page of the same name.
    assert [p for p in paths if not (p.exists() or p.with_suffix(".ipynb").exists())] == []
    for target in re.findall(r"\]\((https?:[^)\s]*)\)", text):
        address = urlsplit(target)
        assert address.scheme == "https", target
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", address.netloc), target
    # A formatter that takes the mark for Python spreads it, and the page then shows it as it is.
    for line in text.splitlines():
        assert "--8" not in line or re.fullmatch(r' *--8<-- "[^"]+"', line), line
