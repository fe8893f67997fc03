"""Break the code on purpose, one place at a time, and see whether the tests notice.

    python -m tests.mutate [WORDS ...]

applies each mutation below to a copy of the package, runs the tests of its file, then what every
solver or every stream must pass, and prints those that survive both. WORDS select files by name.
The build of the core that this machine uses is compiled anew where a mutation is in it. The exit
code is 1 if one survives, or no longer applies.
"""

# ruff: noqa: T201
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from coco_denoiser._core import kernels

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "coco_denoiser"


class Mutation(NamedTuple):
    """In a file, one text is replaced by another."""

    file: str
    old: str
    new: str


SOLVERS, STREAMS = "contracts/test_solver.py test_fuzz.py", "contracts/test_stream.py"
TESTS = {
    "certificate.py": ("test_certificate.py", SOLVERS),
    "problem.py": (
        "test_certificate.py test_status.py test_covariance.py test_neighbors.py",
        SOLVERS,
    ),
    "_validation.py": ("test_validation.py", ""),
    "solvers/__init__.py": ("test_status.py solvers/test_line.py", SOLVERS),
    "solvers/closed_form.py": ("solvers/test_closed_form.py test_covariance.py", SOLVERS),
    "solvers/line.py": ("solvers/test_line.py", SOLVERS),
    "solvers/newton.py": (
        "solvers/test_newton.py models/test_cocoercive.py test_streaming.py",
        f"{SOLVERS} test_status.py",
    ),
    "solvers/interior_point.py": ("solvers/test_interior_point.py solvers/test_newton.py", SOLVERS),
    "solvers/barrier.py": ("solvers/test_barrier.py", SOLVERS),
    "solvers/large.py": ("solvers/test_large.py test_covariance.py", SOLVERS),
    "window.py": ("test_streaming.py test_folding.py", STREAMS),
    "vectors.py": ("test_streaming.py test_folding.py", STREAMS),
    "stream.py": ("test_streaming.py test_folding.py", STREAMS),
    "cocoercive.py": ("models/test_cocoercive.py test_streaming.py", STREAMS),
    "descent.py": ("test_minimize.py", ""),
    "optimizers/driver.py": ("optimizers/test_proximal.py test_validation.py", ""),
    "optimizers/proximal.py": ("optimizers/test_proximal.py", ""),
    "files.py": ("test_files.py", ""),
    "experiments/claims.py": ("experiments/test_claims.py", ""),
    "experiments/units.py": ("experiments/test_units.py", ""),
    "explore/simulation.py": ("explore/test_simulation.py", ""),
}

MUTATIONS = [
    Mutation(file, *change)
    for file, changes in {
        "optimizers/driver.py": [
            (
                "x = apply(optimizer.advance(oracle, x, rng))",
                "x = optimizer.advance(oracle, x, rng)",
            ),
            ("type(optimizer).answer is not Optimizer.answer", "False"),
        ],
        "optimizers/proximal.py": [
            ("surplus, kept - 1, axis=-1) / kept", "surplus, kept - 1, axis=-1) / (kept + 1)"),
            ("math.sqrt(k) * size(k)", "size(k)"),
            ("self._corner(self.denoised(x, g)) - x", "self._corner(self.denoised(x, g))"),
            ("np.where(inside, x, ", "np.where(False, x, "),
        ],
        "certificate.py": [
            ("gap += 0.5 * f * f / n", "gap += 0.5 * f * f"),
            ("mean[c] / count", "mean[c]"),
            ("lost = ROUNDING * min(1.0, size[i] + size[j])", "lost = ROUNDING"),
            ("not abs(f) <= ROUNDING * n", "not abs(f) <= 1e-3 * n"),
            ("not excess <= 2.0 * lost", "not excess <= 1e-3"),
            ("excess / (bounds[i, j] + lost)", "excess / 2.0"),
            ("known = ROUNDING * min(1.0,", "known = 1e7 * ROUNDING * min(1.0,"),
            ("y = (force[i, c] - force[j, c]) / count", "y = force[i, c] - force[j, c]"),
            ("work += y * v", "work += y * (v + u[i, c] - u[j, c])"),
            ("value += 0.5 * force", "value += force"),
            ("np.minimum(multipliers, 1e30), problem, rest)", "multipliers, problem, 0.0 * rest)"),
        ],
        "problem.py": [
            ("return 0.5 * L + 0.5 * mu,", "return 0.5 * L,"),
            ("np.where(near | near.T,", "np.where(near & near.T,"),
            ("np.where(bounds > COINCIDENT, bounds", "np.where(bounds >= 0, bounds"),
            ("if total < least:", "if total > least:"),
            ("1.0) <= 1.0 + within", "1.0) <= 1.0 + 1e-3"),
            ("np.minimum(1.0, size[:, None] + size)", "np.ones_like(size)"),
            ("spread = float(eigenvalues.min())", "spread = 1.0"),
            ("shares = spread / eigenvalues", "shares = eigenvalues / eigenvalues.max()"),
            ("unit = 1.0 / (least * spread)", "unit = 1.0"),
            ("move @ self.axes.T if", "move @ self.axes if"),
            ("block.argmin()", "block.argmax()"),
            (
                "solve_laplacian(multipliers / share,",
                "solve_laplacian(1.0 * multipliers,",
            ),
            ("part = forces[:, s == share] / share", "part = 1.0 * forces[:, s == share]"),
            ("W / worst + (1.0 - 1.0 / worst)", "W + (1.0 - 1.0 / worst)"),
            ("* (n / merged.precisions[labels])", "* 1.0"),
            ("centroid + (phi - centroid) / worst", "phi / worst"),
            ("residuals += pull / problem.table[members]", "pass"),
            ("precisions=n / n.max()", "precisions=n"),
            ("if worst > 1.0 + within:", "if False:"),
            ("moved, worst = mend(theta, x,", "moved, worst = mend(theta.copy(), x,"),
            ("share = variances[i] / (variances[i] + variances[j])", "share = 1.0"),
        ],
        "_validation.py": [
            ("    if masked:\n", "    if False:\n"),
        ],
        "solvers/__init__.py": [
            ('        yield "barrier", COINCIDENT\n', "        pass\n"),
            ("held * problem.precisions[members].max()", "held"),
            ("if count == 1 or problem.bounds[inside].max() <= ROUNDING * size:", "if True:"),
            ('        yield "line", 0.0\n', '        yield "line", COINCIDENT\n'),
            ("return max(answer.gap, answer.violation)", "return answer.gap"),
            ("if gap <= tol and violation <= tol:", "if gap <= tol:"),
            ("if gap <= tol and violation <= tol:", "if not (gap > tol or violation > tol):"),
            ("if not distinct.is_feasible():", "if True:"),
        ],
        "solvers/closed_form.py": [
            ("v = d * (s / (s + t))", "v = d / (1.0 + t)"),
            ("lam = t / (1.0 / n + 1.0 / m)", "lam = t"),
        ],
        "solvers/line.py": [
            ("bounds[new, order[0]] < bounds[new, order[-1]]", "bool(order)"),
            ("np.where(ahead, np.cumsum(force)[:-1], ", "np.where(True, np.cumsum(force)[:-1], "),
            ("k = right if values[right] < -values[right - 1] else right - 1", "k = right"),
            ("problem.precisions[order]", "np.ones(len(order))"),
        ],
        "solvers/large.py": [
            ("own.T * self.v * self.v", "own.T * self.v"),
            ("rows = v[:, None] * (M[i] - M[j])", "rows = M[i] - M[j]"),
            ("unit = 1.0 / np.sqrt(np.diag(H))", "unit = np.ones(len(H))"),
        ],
        "solvers/interior_point.py": [
            ("1e-3 * tol * dual", "1e-3 * tol"),
            ("ridge < 1e-3 and left >= cost", "ridge < 1e-3"),
            ("np.where(active, self.lam, 0.0)", "self.lam"),
            ("if error <= max(2.0 * before, _FLOOR):", "if True:"),
        ],
        "solvers/newton.py": [
            ("= lam[e], w[e] * w[e] *", "= lam[e], 2.0 * w[e] * w[e] *"),
            ("if f < 0.0 if free[k] else f > 0.0:", "if f < 0.0 and free[k]:"),
            ("            if gap < best:\n", "            if True:\n"),
            ("if left < 0.0 or iterations", "if iterations"),
            ("= max(y[i], 0.0)", "= y[i]"),
            ("RIDGE, CROWDED = 0.01, 0.6", "RIDGE, CROWDED = 1e-12, 0.6"),
            ("RIDGE, CROWDED = 0.01, 0.6", "RIDGE, CROWDED = 0.01, 1e9"),
            ("HALVINGS = 4", "HALVINGS = 0"),
            ("if third == 0 else 0.0", "if True else 0.0"),
            ("(a[p] < shorter) & (b[p] < shorter)", "True"),
            ("min(0.01, excess * inverse[e])", "0.01"),
            ("min(ROUNDING, size[i] + size[j])", "ROUNDING"),
            ("if not distinct:", "if False:"),
            ("2.0 * a * b * (1.0 - tables[1, i, j])", "2.0 * a * b"),
            ("], shift * tables[0, i, j]", "], -shift * tables[0, i, j]"),
            ("n[i] = least / variances[i]", "n[i] = 1.0"),
            ("bounds[i, j] = radius * tables", "bounds[i, j] = tables"),
            ("M[c, c] <= 1e-15 * K", "M[c, c] <= 1e-9 * K"),
            ("- residuals[central, c]) - e) / scale", "- residuals[central, c]) - e)"),
            ("if total < nearest:", "if total > nearest:"),
            ("bad += 0 if fine else 1", "bad += 0"),
            ("b = min(1.0, max(-1.0, M[i, 0] / (a * e))) if", "b = M[i, 0] / (a * e) if"),
            ("(1e-200 < total < 1e250 and 1e-200 < worst < 1e250)", "True"),
            ("        variances[slot] = variance\n", ""),
            ("((s[j] - r[j]) - shift * (p[j] - x[j]))", "(s[j] - r[j])"),
            ("(1.0 - shrink) / total) * n[j]", "(1.0 - shrink) / total)"),
        ],
        "cocoercive.py": [
            ("* (v / (v + u))", "* (u / (v + u))"),
            ("if gap <= tol and violation <= tol else -1", ""),
        ],
        "solvers/barrier.py": [
            ("order = np.argsort(-problem.precisions", "order = np.argsort(0 * problem.precisions"),
            (
                "slack = s - length * (along + 0.5 * length * square)",
                "slack = 0.5 * (rho**2 - np.sum((v + length * dv) ** 2, axis=1))",
            ),
            ("0.1 * tol * loss / rho.size", "10.0 * tol * loss / rho.size"),
            ("return 0.5 * float(K * K *", "return 0.0 * float(K * K *"),
        ],
        "window.py": [
            ("_cycle(self.next if self.count == self.slots else 0,", "_cycle(0,"),
            ("= variance if start == 0 else merged", "= merged"),
            ("min(1.0, max(-1.0, cosine))", "cosine"),
        ],
        "vectors.py": [
            (".max) / 4.0", ".max)"),
            ("FLOAT64: 1e300", "FLOAT64: 1.7e308"),
            ("if abs(M[j]) <= 2.0 * limit else kind(1.0)", ""),
        ],
        "stream.py": [
            ("(window.next + 1) % window.count", "window.next"),
            ("            self.reset()\n            vectors.reset()\n", ""),
            ("w = t * (newer / (older + newer))", "w = t * (older / (older + newer))"),
            ("(1.0 - w) ** 2 * newer + w**2 * older", "newer"),
            ("if rho > 0.0 else 1.0", "if True else 1.0"),
            ("shift = self.model.centre - window.centre", "shift = 0.0"),
        ],
        "descent.py": [
            ("if fit and not part.steady(half, slope):", "if False:"),
            ("min(fit, key=self._score)", "fit[-1]"),
            ("min(fit, key=self._score)", "fit[0]"),
            ("self.mapping(best.x, best.g)[1]", "best.x"),
            ("self.size * self.gain)", "self.size)"),
            ("path.L = L or path.L", "path.L = L"),
            ("min(max(self.speed * change, 1.0), _FASTEST)", "1.0"),
            ("deepcopy(earlier)", "earlier"),
            ("self.reach > _FAR * self.first and", ""),
            ("and self.typical >= 0.5 * self.initial", "and False"),
        ],
        "files.py": [
            (" or len({*names}) < len(names)", ""),
            ("    check_regular(path)\n", ""),
            ("table.shape[1] != len(names) or ", ""),
            ("if part and not _running(int(part[1])):", "if part:"),
            ("if part and not _running(int(part[1])):", "if False:"),
        ],
        "experiments/claims.py": [
            ("exact = bool(np.all(", "exact = bool(np.any("),
            ("FEWEST = 5", "FEWEST = 3"),
            ("refuted=lowest <= -critical(t.size,", "refuted=lowest <= -critical(1,"),
        ],
        "experiments/units.py": [
            ("np.array_equal(name, self._name(index))", "True"),
            ("name is not None and", "name is None or"),
        ],
        "explore/simulation.py": [("min(max(number, least), largest)", "number")],
    }.items()
    for change in changes
]


def apply(mutation: Mutation, package: Path) -> bool:
    """Break a package like this; say whether there was something to break, and it compiles."""
    path = package / mutation.file
    text = path.read_text("utf-8")
    if mutation.old not in text:
        return False
    path.write_text(text.replace(mutation.old, mutation.new), "utf-8")
    return not mutation.file.startswith("_core/") or build(package)


def build(package: Path) -> bool:
    """Compile the build of the core that is used here; say whether that succeeds."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    top = package.parent.parent
    done = subprocess.run(command, cwd=top, capture_output=True, check=False)
    return done.returncode == 0


def passes(tests: str, package: Path) -> bool:
    """Say whether some tests pass with a package, in a process of their own."""
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(tests, package))
    process.start()
    process.join(300.0)  # a mutant that runs in circles is noticed too
    process.kill()
    process.join()
    return process.exitcode == 0


def _run(tests: str, package: Path) -> None:
    with Path(os.devnull).open("w") as silent:
        os.dup2(silent.fileno(), 1)
        os.dup2(silent.fileno(), 2)
    os.chdir(ROOT)
    path = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    files = [f"tests/{name}" for name in tests.split()]
    os.execve(path[0], [*path, *files], {**os.environ, "PYTHONPATH": str(package.parent)})


def main(words: list[str]) -> int:
    """Try the mutations, print survivors, and return 1 if there are any."""
    chosen = [m for m in MUTATIONS if not words or any(word in m.file for word in words)]
    bad, sound_passes = 0, dict[str, bool]()
    with tempfile.TemporaryDirectory() as folder:
        sound, broken = (Path(folder) / name / "coco_denoiser" for name in ("sound", "broken"))
        shutil.copytree(SOURCE, sound, ignore=shutil.ignore_patterns("__pycache__"))
        for path in sound.rglob("*.py"):
            path.write_text(path.read_text("utf-8") + "#" + 500 * " ", "utf-8")  # room to grow
        for number, mutation in enumerate(chosen, start=1):
            print(f"{number} of {len(chosen)} ", end="\r", file=sys.stderr, flush=True)
            verdict = "survives"
            for tests in filter(None, TESTS[mutation.file]):
                if tests not in sound_passes:
                    sound_passes[tests] = passes(tests, sound)
                shutil.rmtree(broken, ignore_errors=True)
                shutil.copytree(sound, broken)
                if not sound_passes[tests]:
                    verdict = f"not tried, since {tests} fail as it is"
                elif not apply(mutation, broken):
                    verdict = "does not apply"
                elif not passes(tests, broken):
                    verdict = ""
                    break
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
