"""Imports go one way, from what is built on the core down to the core, which needs no extra."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import coco_denoiser

ROOT = Path(coco_denoiser.__file__).parent
# What is built on the core, from the ground up; everything else is the core. Rooms of one layer
# do not know of each other. The package's own __init__ only collects names.
LAYERS = (
    {"descent", "files", "optax", "torch"},
    {"problems"},
    {"optimizers"},
    {"experiments"},
    {"explore"},
    {"cli"},
)

EXTRAS = (
    "bokeh",
    "cvxpy",
    "hypothesis",
    "jax",
    "joblib",
    "matplotlib",
    "pooch",
    "sklearn",
    "torch",
)


def test_importing_the_core_and_the_command_imports_no_extra() -> None:
    code = (
        "import sys, coco_denoiser, coco_denoiser.cli\n"
        f"print(*[name for name in {EXTRAS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_room_imports_one_that_imports_it() -> None:
    rooms = _imports()
    assert rooms["cli"] >= {"experiments", "explore", "files"}  # so imports are found
    TopologicalSorter(rooms).prepare()  # raises CycleError, which names the cycle


def test_imports_go_down() -> None:
    rooms = _imports()
    level = {room: number for number, layer in enumerate(LAYERS, start=1) for room in layer}
    upward = [
        f"{room} imports {other}"
        for room, others in rooms.items()
        for other in others
        if room != "__init__" and level.get(other, 0) >= max(level.get(room, 0), 1)
    ]
    assert upward == []


def _imports() -> dict[str, set[str]]:
    """Return which rooms each room imports; a room is a module or a folder of the package."""
    rooms: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).with_suffix("").parts[0]
        rooms.setdefault(room, set()).update(_imported(ast.parse(path.read_text("utf-8"))))
    return {room: others - {room} for room, others in rooms.items()}


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, *rest = name.split(".")
            if package == "coco_denoiser":
                room = rest[0] if rest else "__init__"
                is_room = (ROOT / room).is_dir() or (ROOT / f"{room}.py").exists()
                yield room if is_room else "__init__"  # a name that the package collects
