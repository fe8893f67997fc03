"""The core stands alone: importing it pulls in no extra."""

import inspect
import subprocess
import sys
from typing import Any

import coco_denoiser
from coco_denoiser import curvature, optimizers, problems

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
PUBLIC: list[Any] = [
    thing
    for package in (coco_denoiser, curvature, optimizers, problems)
    for thing in (*vars(package).values(), coco_denoiser.Denoiser.__call__)
    if inspect.isfunction(thing)
]


def test_importing_the_core_and_the_command_imports_no_extra() -> None:
    code = (
        "import sys, coco_denoiser, coco_denoiser.cli\n"
        f"print(*[name for name in {EXTRAS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_no_signature_spells_out_what_an_array_may_be() -> None:
    for thing in PUBLIC:
        assert "_SupportsArray" not in str(inspect.signature(thing)), thing
