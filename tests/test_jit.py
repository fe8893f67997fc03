"""How functions are compiled: whatever the machine is like, they are, or it says why."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

import coco_denoiser
from coco_denoiser import _jit
from coco_denoiser.compile import main as compile_ahead
from coco_denoiser.solvers import METHODS, Method

_MODULE = """
import coco_denoiser
from coco_denoiser._jit import kernel

@kernel
def twice(number):
    return 2 * number

print(twice(21))
"""


def _run(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Compile with the package below `root`, for a user whose own folders are read-only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), os.devnull)
    return subprocess.run(
        [sys.executable, "-B", "mine.py"],
        env={**kept, **nowhere, "PYTHONPATH": str(root), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )


def test_where_no_folder_can_be_written_to_it_compiles_without_a_cache_and_warns_once(
    tmp_path: Path,
) -> None:
    package = tmp_path / "coco_denoiser"
    shutil.copytree(
        Path(coco_denoiser.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    # A file where the cache would go refuses root as well, whom no permission stops.
    for folder in (package, *(each for each in package.rglob("*") if each.is_dir())):
        (folder / "__pycache__").touch()
    (tmp_path / "mine.py").write_text(_MODULE)
    (tmp_path / "__pycache__").touch()

    done = _run(tmp_path)
    assert done.stdout == "42\n"
    assert done.stderr.count("Warning") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr

    named = tmp_path / "cache"
    done = _run(tmp_path, NUMBA_CACHE_DIR=str(named))
    assert done.stdout == "42\n"
    assert done.stderr == ""
    assert list(named.rglob("mine.twice*.nbc"))


class _Terminal:
    """A standard error that somebody reads, or nobody."""

    def __init__(self, *, read: bool) -> None:
        self.read, self.text = read, ""

    def isatty(self) -> bool:
        return self.read

    def write(self, text: str) -> None:
        self.text += text


@pytest.mark.parametrize(
    ("module", "read", "told"),
    [
        ("coco_denoiser.mine", True, 1),
        ("coco_denoiser.mine", False, 0),
        ("mine", True, 0),
        (None, True, 0),  # made by exec, as symbolic packages do
    ],
)
def test_a_user_at_a_terminal_is_told_once_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch, module: Any, read: bool, told: int
) -> None:
    terminal = _Terminal(read=read)
    monkeypatch.setattr(sys, "stderr", terminal)
    _jit._say_compiling.cache_clear()

    def plus_one(number: int) -> int:
        return number + 1

    plus_one.__module__ = module
    compiled: Any = numba.njit(plus_one)
    assert compiled(1) == 2
    assert compiled(1.5) == 2.5
    assert terminal.text.count("compiling the solver, once") == told


def test_compiling_ahead_of_time_names_what_it_compiles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert compile_ahead() == 0
    out = capsys.readouterr().out
    assert re.fullmatch(r"compiling solve\(\) … \d+\.\d s\ncompiling Denoiser … \d+\.\d s\n", out)


def test_compiling_ahead_of_time_leaves_no_method_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard window must not be the first to compile the method that it needs."""
    called = set()

    def noted(name: str, method: Method) -> Method:
        def solve(*arguments: Any, **options: Any) -> tuple[Any, ...]:
            called.add(name)
            return method.solve(*arguments, **options)

        return method._replace(solve=solve)

    for name, method in METHODS.items():
        monkeypatch.setitem(METHODS, name, noted(name, method))
    assert compile_ahead() == 0
    assert called == set(METHODS) - {"closed-form", "barrier"}  # one is a formula, one not compiled
