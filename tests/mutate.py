"""Break the code on purpose, one place at a time, and see whether the tests notice.

    python -m tests.mutate [WORDS ...]

applies each mutation of `mutations.py` to a copy of the package, runs the tests of its file, then
what every solver or every stream must pass, and prints those that survive both. WORDS select files
by name. The build of the core that this machine uses is compiled anew where a mutation is in it.
There are as many copies as processors. The exit code is 1 if one survives, or no longer applies.
"""

# ruff: noqa: T201
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from coco_denoiser._core import kernels
from tests.mutations import CHANGES

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src") / "coco_denoiser"
LATER = 2**32  # when what must not be compiled was
CONTRACTS = "contracts/test_solver.py contracts/test_stream.py test_fuzz.py"


class Mutation(NamedTuple):
    """In a file, one text is replaced by another, which tests should notice."""

    file: str
    tests: str
    old: str
    new: str


MUTATIONS = [Mutation(*place, *change) for place, some in CHANGES.items() for change in some]


def apply(mutation: Mutation, package: Path) -> bool:
    """Break a package like this; return whether there was something to, and it compiles."""
    path = package / mutation.file
    text = path.read_text("utf-8")
    if mutation.old not in text:
        return False
    path.write_text(text.replace(mutation.old, mutation.new), "utf-8")
    return not mutation.file.startswith("_core/") or build(package)


def build(package: Path) -> bool:
    """Compile the build of the core that is used here; return whether that succeeds."""
    for built in (package / "_core").glob("*.cpython-*"):
        if built.name.partition(".")[0] != kernels.__name__.rpartition(".")[2]:
            os.utime(built, (LATER, LATER))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    flags = {**os.environ, "COCO_DENOISER_CFLAGS": "-O1"}
    done = subprocess.run(
        command, cwd=package.parents[1], env=flags, capture_output=True, check=False
    )
    return done.returncode == 0


def passes(tests: str, package: Path) -> bool:
    """Return whether some tests pass with a package."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [f"tests/{name}" for name in tests.split()]
    path = {**os.environ, "PYTHONPATH": str(package.parent)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=path, capture_output=True, check=False, timeout=600.0
        )
    except subprocess.TimeoutExpired:  # a mutant that runs in circles is noticed too
        return False
    return done.returncode == 0


def verdict(mutation: Mutation, sound: Path) -> str:
    """Return what became of a mutation; nothing if it was noticed."""
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "broken"
        shutil.copytree(sound, broken)
        if not apply(mutation, broken / PACKAGE):
            return "does not apply"
        noticed = any(not passes(t, broken / PACKAGE) for t in (mutation.tests, CONTRACTS))
    return "" if noticed else "survives"


def main(words: list[str]) -> int:
    """Try the mutations, print survivors, and return 1 if there are any."""
    chosen = [m for m in MUTATIONS if not words or any(word in m.file for word in words)]
    bad = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        sound = Path(folder)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "tools", "src"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, sound / name)
        tests = sorted({name for m in chosen for name in f"{m.tests} {CONTRACTS}".split()})
        sane = pool.map(lambda name: passes(name, sound / PACKAGE), tests)
        if failing := [name for name, passed in zip(tests, sane, strict=True) if not passed]:
            print(f"these fail before anything is broken: {failing}")
            return 1
        found = pool.map(lambda mutation: verdict(mutation, sound), chosen)
        for number, (mutation, word) in enumerate(zip(chosen, found, strict=True), start=1):
            print(f"{number} of {len(chosen)} ", end="\r", file=sys.stderr, flush=True)
            if word:
                bad += 1
                old, new = mutation.old.strip(), mutation.new.strip()
                print(f"{word}: {mutation.file}: {old!r} -> {new!r}", flush=True)
    spent = os.times()
    minutes = (spent.children_user + spent.children_system) / 60.0
    print(f"{len(chosen) - bad} of {len(chosen)} mutants killed, {minutes:.0f} min of CPU time")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
