"""The core stands alone: importing it pulls in no extra."""

import subprocess
import sys

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
