"""Imports go one way, from what is built on the core down to the core, which needs no extra."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import coco_denoiser

ROOT = Path(coco_denoiser.__file__).parent
# What is built on the core, from the ground up, the library before the paper; everything else is
# the core. Modules of one layer do not know of each other. The package's own __init__ only collects
# names.
LAYERS = (
    {"descent", "optax", "torch"},
    {"paper", "paper.fdpg", "paper.files", "paper.pairs", "paper.problems"},
    {"paper.optimizers"},
    {"paper.experiments"},
    {"paper.explore"},
    {"paper.cli"},
)

EXTRAS = ("bokeh", "cvxpy", "hypothesis", "jax", "matplotlib", "pooch", "sklearn", "torch")


def test_importing_the_core_and_the_command_imports_no_extra() -> None:
    code = (
        "import sys, coco_denoiser\n"
        "assert 'coco_denoiser.paper' not in sys.modules\n"
        "import coco_denoiser.paper.cli\n"
        f"print(*[name for name in {EXTRAS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_import_cycles() -> None:
    modules = _imports()
    assert modules["paper.cli"] >= {"paper.experiments", "paper.explore", "paper.files"}
    TopologicalSorter(modules).prepare()  # raises CycleError, which names the cycle


def test_imports_go_down() -> None:
    modules = _imports()
    assert modules.keys() >= {"__init__", "stream", "torch"}
    level = {module: number for number, layer in enumerate(LAYERS, start=1) for module in layer}
    upward = [
        f"{module} imports {other}"
        for module, others in modules.items()
        for other in others
        if module != "__init__" and level.get(other, 0) >= max(level.get(module, 0), 1)
    ]
    assert upward == []


@cache
def _imports() -> dict[str, set[str]]:
    """Return what each module imports: files and folders of the package, or of `paper`."""
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        module = _module(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                above = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for alias in node.names:
                    package, *rest = ".".join((*above, alias.name)).split(".")
                    if package == "coco_denoiser":
                        modules[module].add(_module(rest))
    return {module: others - {module} for module, others in modules.items()}


def _module(parts: Sequence[str]) -> str:
    name = ".".join(parts[: 2 if "paper" in parts[:1] else 1])
    place = ROOT / name.replace(".", "/")
    return name if place.is_dir() or place.with_suffix(".py").exists() else "__init__"
