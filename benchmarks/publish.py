"""Run every other benchmark and put what it prints and draws where the site shows it.

`docs/benchmarks/NAME.txt`, in Markdown, and `.png` are this program's; `docs/benchmarks.md`
includes them.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.__main__ import BENCHMARKS
from benchmarks.measure import RESULTS, machine

SITE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"


def main() -> None:
    SITE.mkdir(exist_ok=True)
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    for name in BENCHMARKS:
        if name == "publish":
            continue
        print(f"{name} …", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", name],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        text = f"```text\n{done.stdout.rstrip()}\n\n{about}\n```\n"
        picture = RESULTS / f"{name}.png"
        if picture.exists():
            shutil.copy(picture, SITE / picture.name)
            text += f"\n![The same as a plot.](benchmarks/{picture.name})\n"
        (SITE / f"{name}.txt").write_text(text, "utf-8")
