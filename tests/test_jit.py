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
from coco_denoiser.compile import PARTS, compile_part
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


def _run(
    root: Path, here: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Compile with the package below `root`, for a user whose own folders are read-only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), os.devnull)
    return subprocess.run(
        [sys.executable, "-B", str(root / "mine.py")],
        env={**kept, **nowhere, "PYTHONPATH": str(root), **environment},
        cwd=here or root,
        capture_output=True,
        text=True,
        check=True,
    )


def _read_only_package(tmp_path: Path) -> None:
    package = tmp_path / "coco_denoiser"
    shutil.copytree(
        Path(coco_denoiser.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    # A file where the cache would go refuses root as well, whom no permission stops.
    for folder in (package, *(each for each in package.rglob("*") if each.is_dir())):
        (folder / "__pycache__").touch()
    (tmp_path / "mine.py").write_text(_MODULE)
    (tmp_path / "__pycache__").touch()


def test_where_no_folder_can_be_written_to_it_compiles_without_a_cache_and_warns_once(
    tmp_path: Path,
) -> None:
    _read_only_package(tmp_path)
    done = _run(tmp_path)
    assert done.stdout == "42\n"
    assert done.stderr.count("Warning") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr

    named = tmp_path / "cache"
    done = _run(tmp_path, NUMBA_CACHE_DIR=str(named))
    assert done.stdout == "42\n"
    assert "Warning" not in done.stderr
    assert list(named.rglob("mine.twice*.nbc"))


def test_folders_of_the_user_that_are_not_absolute_are_not_used(tmp_path: Path) -> None:
    """XDG_CACHE_HOME="" must not mean the current folder: what is in a cache is executed."""
    _read_only_package(tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    done = _run(tmp_path, here, XDG_CACHE_HOME="", HOME=str(tmp_path / "home"))
    assert done.stdout == "42\n"
    assert not list(here.rglob("*.nb*"))
    assert list((tmp_path / "home" / ".cache").rglob("mine.twice*.nbc"))
    done = _run(tmp_path, here, XDG_CACHE_HOME="cache", HOME=os.devnull)
    assert "NUMBA_CACHE_DIR" in done.stderr
    assert not list(here.rglob("*"))


@pytest.mark.skipif(os.name == "nt", reason="folders have no owner there")
def test_a_folder_of_somebody_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert _jit._is_own(str(tmp_path))
    assert not _jit._is_own(os.path.relpath(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert not _jit._is_own(str(tmp_path))


@pytest.mark.parametrize(
    ("module", "told"),
    [("coco_denoiser.mine", 1), ("mine", 0), (None, 0)],  # None: made by exec
)
def test_a_user_is_told_that_it_compiles(
    caplog: pytest.LogCaptureFixture, module: Any, told: int
) -> None:
    _jit._say_compiling.cache_clear()

    def plus_one(number: int) -> int:
        return number + 1

    plus_one.__module__ = module
    compiled: Any = numba.njit(plus_one)
    assert compiled(1) == 2
    assert compiled(1.5) == 2.5
    assert caplog.text.count("compiling kernels (first run only)") == told


def test_compiling_ahead_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _jit._say_compiling.cache_clear()
    monkeypatch.setitem(PARTS, "all others", _jit._say_compiling)
    compile_part("all others")
    assert not caplog.text


def test_the_help_compiles_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PARTS, "all others", pytest.fail)
    with pytest.raises(SystemExit) as end:
        compile_ahead(["--help"])
    assert end.value.code == 0
    assert "ahead of time" in capsys.readouterr().out


def test_compiling_ahead_of_time_leaves_no_method_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    out = capsys.readouterr().out
    assert re.fullmatch(r"(compiling (Newton's method|all others) … \d+\.\d s\n){2}", out)
    # The first three are not compiled, and `solve` calls Newton's method without its entry.
    assert called == set(METHODS) - {"closed-form", "line", "barrier", "newton"}
