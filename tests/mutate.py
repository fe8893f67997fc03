"""Break the code on purpose, one place at a time, and see whether the tests notice.

    python -m tests.mutate [WORDS ...]

applies each mutation of `mutations.py` to a copy of the package, runs the tests of its file, then
what every solver or every stream must pass, and prints those that survive both. WORDS select files
by name. The build of the core that this machine uses is compiled anew where a mutation is in it.
The exit code is 1 if one survives, or no longer applies.
"""

# ruff: noqa: T201
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutations import MUTATIONS, TABLE, Mutation

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src") / "coco_denoiser"


def apply(mutation: Mutation, package: Path) -> bool:
    """Break a package like this; return whether there was something to, and it compiles."""
    path = package / mutation.file
    text = path.read_text("utf-8")
    if mutation.old not in text:
        return False
    path.write_text(text.replace(mutation.old, mutation.new), "utf-8")
    return not mutation.file.startswith("_core/") or build(package)


def build(package: Path) -> bool:
    """Compile the core of a package; return whether that succeeds."""
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
            command, cwd=ROOT, env=path, capture_output=True, check=False, timeout=300.0
        )
    except subprocess.TimeoutExpired:  # a mutant that runs in circles is noticed too
        return False
    return done.returncode == 0


def main(words: list[str]) -> int:
    """Try the mutations, print survivors, and return 1 if there are any."""
    chosen = [m for m in MUTATIONS if not words or any(word in m.file for word in words)]
    bad, sound_passes = 0, dict[str, bool]()
    with tempfile.TemporaryDirectory() as folder:
        sound, broken = Path(folder) / "sound", Path(folder) / "broken"
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "tools", "src"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            sound.mkdir(exist_ok=True)
            copy(ROOT / name, sound / name)
        for number, mutation in enumerate(chosen, start=1):
            print(f"{number} of {len(chosen)} ", end="\r", file=sys.stderr, flush=True)
            shutil.rmtree(broken, ignore_errors=True)
            shutil.copytree(sound, broken)
            verdict = "survives"
            if not apply(mutation, broken / PACKAGE):
                verdict = "does not apply"
            for tests in filter(None, TABLE[mutation.file][:2]):
                if not verdict:
                    break
                if tests not in sound_passes:
                    sound_passes[tests] = passes(tests, sound / PACKAGE)
                if not sound_passes[tests]:
                    verdict = f"not tried, since {tests} fail as it is"
                elif verdict == "survives" and not passes(tests, broken / PACKAGE):
                    verdict = ""
            if verdict:
                bad += 1
                old, new = mutation.old.strip(), mutation.new.strip()
                print(f"{verdict}: {mutation.file}: {old!r} -> {new!r}", flush=True)
    spent = os.times()
    minutes = (spent.children_user + spent.children_system) / 60.0
    print(f"{len(chosen) - bad} of {len(chosen)} mutants killed, {minutes:.0f} min of CPU time")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
