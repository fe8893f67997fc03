"""How functions are compiled: whatever the machine is like, they are, or it says why."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import coco_denoiser

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
