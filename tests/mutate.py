"""Break the code on purpose, one place at a time, and see whether the tests notice.

    python -m tests.mutate [WORDS ...]

applies each mutation below to a copy of the package, runs the tests of its file, then what every
solver or every stream must pass, and prints those that survive both. WORDS select files by name.
The build of the core that this machine uses is compiled anew where a mutation is in it. The exit
code is 1 if one survives, or no longer applies.
"""

# ruff: noqa: T201
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src") / "coco_denoiser"


class Mutation(NamedTuple):
    """In a file, one text is replaced by another."""

    file: str
    old: str
    new: str


NEWTON = "solvers/test_newton.py models/test_cocoercive.py test_streaming.py test_folding.py"
SOLVERS, STREAMS = "contracts/test_solver.py test_fuzz.py", "contracts/test_stream.py"
TESTS = {
    "_core/certificate.pxi": ("test_certificate.py", SOLVERS),
    "_core/newton.pxi": (NEWTON, f"{SOLVERS} test_status.py"),
    "_core/groups.pxi": (NEWTON, SOLVERS),
    "_core/tables.pxi": (NEWTON, STREAMS),
    "_core/step.pxi": (NEWTON, STREAMS),
    "_core/passes.pxi": ("core test_streaming.py test_folding.py", STREAMS),
    "_core/passes.h": ("core test_streaming.py", STREAMS),
    "_core/batch.pxi": ("test_certificate.py test_status.py test_denoise.py", SOLVERS),
    "_core/barrier.pxi": ("solvers/test_barrier.py", SOLVERS),
    "_core/fdpg.pxi": ("solvers/test_fdpg.py", SOLVERS),
    "_core/buffers.pxi": ("core", ""),
    "certificate.py": ("test_certificate.py", SOLVERS),
    "problem.py": ("test_certificate.py test_status.py test_covariance.py", SOLVERS),
    "_validation.py": ("test_validation.py", ""),
    "solvers/__init__.py": ("test_status.py solvers/test_line.py", SOLVERS),
    "solvers/closed_form.py": ("solvers/test_closed_form.py test_covariance.py", SOLVERS),
    "solvers/line.py": ("solvers/test_line.py", SOLVERS),
    "solvers/interior_point.py": ("solvers/test_interior_point.py solvers/test_newton.py", SOLVERS),
    "solvers/barrier.py": ("solvers/test_barrier.py", SOLVERS),
    "solvers/large.py": ("solvers/test_large.py test_covariance.py", SOLVERS),
    "window.py": ("test_streaming.py test_folding.py", STREAMS),
    "stream.py": ("test_streaming.py test_folding.py", STREAMS),
    "models/cocoercive.py": ("models/test_cocoercive.py test_streaming.py", STREAMS),
    "descent.py": ("test_minimize.py", ""),
    "paper/optimizers/driver.py": ("paper/optimizers/test_proximal.py test_validation.py", ""),
    "paper/optimizers/proximal.py": ("paper/optimizers/test_proximal.py", ""),
    "paper/files.py": ("paper/test_files.py", ""),
    "paper/experiments/claims.py": ("paper/experiments/test_claims.py", ""),
    "paper/experiments/units.py": ("paper/experiments/test_units.py", ""),
    "paper/explore/simulation.py": ("paper/explore/test_simulation.py", ""),
}

MUTATIONS = [
    Mutation(file, *change)
    for file, changes in {
        "paper/optimizers/driver.py": [
            (
                "x = apply(optimizer.advance(oracle, x, rng))",
                "x = optimizer.advance(oracle, x, rng)",
            ),
            ("type(optimizer).answer is not Optimizer.answer", "False"),
        ],
        "paper/optimizers/proximal.py": [
            ("surplus, kept - 1, axis=-1) / kept", "surplus, kept - 1, axis=-1) / (kept + 1)"),
            ("math.sqrt(k) * size(k)", "size(k)"),
            ("self._corner(self.denoised(x, g)) - x", "self._corner(self.denoised(x, g))"),
            ("np.where(inside, x, ", "np.where(False, x, "),
        ],
        "_core/certificate.pxi": [
            ("gap += 0.5 * force * force / n", "gap += 0.5 * force * force"),
            ("claim.mean[c] / count", "claim.mean[c]"),
            ("lost = ROUNDING * min(1.0, claim.size[i] + claim.size[j])", "lost = ROUNDING"),
            ("not fabs(force) <= ROUNDING * n", "not fabs(force) <= 1e-3 * n"),
            ("if excess <= 2.0 * lost:", "if excess <= 1e-3:"),
            ("excess /= bound + lost", "excess /= 2.0"),
            ("known = ROUNDING * min(1.0,", "known = 1e7 * ROUNDING * min(1.0,"),
            ("row(claim.force, j)[c]) / count", "row(claim.force, j)[c])"),
            ("work += y * v", "work += y * (v + p[c] - r[c])"),
            ("value += 0.5 * row(claim.force", "value += row(claim.force"),
            ("gap += unbalanced(claim)", "pass"),
        ],
        "certificate.py": [
            ("np.minimum(multipliers, 1e30), problem, rest)", "multipliers, problem, 0.0 * rest)"),
        ],
        "problem.py": [
            ("return 0.5 * L + 0.5 * mu,", "return 0.5 * L,"),
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
            ("forces[:, s == share] / share)", "forces[:, s == share])"),
            ("W[inside] / worst + (1.0 - 1.0 / worst)", "W[inside] + (1.0 - 1.0 / worst)"),
            (
                "for labels in (connected, np.zeros_like(connected)):",
                "for labels in (0 * connected,):",
            ),
            ("* (n / merged.precisions[labels])", "* 1.0"),
            ("centroid + (phi[members] - centroid) / worst", "phi[members] / worst"),
            ("residuals += pull / problem.table[members]", "pass"),
            ("precisions=n / n.max()", "precisions=n"),
            ("if worst > 1.0 + within:", "if False:"),
        ],
        "_validation.py": [
            ("    if masked:\n", "    if False:\n"),
        ],
        "solvers/__init__.py": [
            ('        yield "barrier", COINCIDENT\n', "        pass\n"),
            ("_inner(name, own), near, tol, max_iter)", "_inner(name, own), near, tol, 1)"),
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
        "_core/newton.pxi": [
            ("ws.lam[e], ws.w[e] * ws.w[e] *", "ws.lam[e], 2.0 * ws.w[e] * ws.w[e] *"),
            (
                "        if model.slope[k] > 0.0:",
                "        if model.slope[k] > 0.0 and model.free[k]:",
            ),
            ("        if ws.relative_gap < best:\n", "        if True:\n"),
            ("if left < 0.0 or ws.steps", "if ws.steps"),
            ("= max(model.y[k], 0.0)", "= model.y[k]"),
            ("#define RIDGE 0.01", "#define RIDGE 1e-12"),
            ("#define CROWDED 0.6", "#define CROWDED 1e9"),
            ("HALVINGS = 4", "HALVINGS = 0"),
            ("elif not is_implied(ws.bounds, ws.K, i, j):", "else:"),
            (" & (a[p] < shorter) & (b[p] < shorter)", ""),
            ("min(0.01, excess * ws.inverse[e])", "0.01"),
            ("min(ROUNDING, ws.size[i] + ws.size[j])", "ROUNDING"),
            ("    if not distinct:\n        return False\n", ""),
            ("(1.0 - shrink) / total) * ws.n[j]", "(1.0 - shrink) / total)"),
            ("mean + shrink * (row(ws.phi, i)[c] - mean)", "shrink * row(ws.phi, i)[c]"),
        ],
        "_core/groups.pxi": [
            ("part.n[a] += ws.n[i]", "part.n[a] = ws.n[i]"),
            ("/= part.n[a]", "/= 1.0"),
            ("* (ws.n[j] / part.n[b])", ""),
            ("row(ws.bounds, i)[j] < least:", "row(ws.bounds, i)[j] > -1.0:"),
        ],
        "_core/tables.pxi": [
            ("2.0 * a * b * (1.0 - cosine)", "2.0 * a * b"),
            ("cdef double e = shift * dx", "cdef double e = -shift * dx"),
            ("ws.n[i] = least / window.variance[i]", "ws.n[i] = 1.0"),
            ("= radius * tables[i * room + j] / scale", "= tables[i * room + j] / scale"),
            ("row(ws.W, c)[c] <= 1e-15 * K", "row(ws.W, c)[c] <= 1e-9 * K"),
            ("(dh - shift * dx) / scale", "dh - shift * dx"),
            ("if total < nearest:", "if total > nearest:"),
            ("min(1.0, max(-1.0, cosine))", "cosine"),
            ("(old + 1) % window.count", "old"),
            ("(1.0 - rho / apart) * (newer / (older + newer))", "newer / (older + newer)"),
            ("(1.0 - w) * (1.0 - w) * newer + w * w * older", "newer"),
            ("w = newer / (older + newer)", "w = older / (older + newer)"),
            ("slot = used if is_filter(window) else window.next", "slot = window.next"),
            ("window.variance[slot], window.newest = variance, slot", "window.newest = slot"),
        ],
        "models/cocoercive.py": [
            ("and window.members == window.count", ""),
            ("start[window.newest] = start[:, window.newest] = 0.0", "pass"),
        ],
        "_core/step.pxi": [
            ("ws.gap <= ws.tol and ws.violation <= ws.tol", "True"),
            ("sums[3 * used] > 0.0 or fold.reach > limits.largest", "False"),
            ("or fold.reach > limits.largest", ""),
            ("insert_row(window, merged, used, fold.new)", "pass"),
            ("window.variance[fold.new] = fold.variance", "pass"),
            ("1 if merged else window.count, weights", "window.count, weights"),
            ("weights[window.newest] != 1.0", "True"),
            ("centre - window.centre, merged", "0.0, merged"),
        ],
        "_core/passes.pxi": [
            ("if entry.merged:\n", "if False:\n"),
            ("if i != skip:", "if True:"),
            ("-entry.shift, n)", "entry.shift, n)"),
            ("(entry.merged or i != entry.slot)", "i != entry.slot"),
        ],
        "_core/batch.pxi": [
            ("        if total < least:", "        if total > least:"),
            (
                "cdef double own = task.variances[i] / (task.variances[i] + task.variances[j])",
                "cdef double own = 1.0",
            ),
            ("            if move:\n", "            if False:\n"),
            ("        h[i] /= scale\n", "        pass\n"),
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
        ],
        "stream.py": [
            ("            stream.reset()  # tables", "            pass  # tables"),
            ("        window.points, window.residuals = held\n", ""),
            ("0.0 if self.model.fixed is None else limits.centre", "limits.centre"),
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
        "paper/files.py": [
            (" or len({*names}) < len(names)", ""),
            ("    check_regular(path)\n", ""),
            ("table.shape[1] != len(names) or ", ""),
            ("if part and not _running(int(part[1])):", "if part:"),
            ("if part and not _running(int(part[1])):", "if False:"),
        ],
        "paper/experiments/claims.py": [
            ("exact = bool(np.all(", "exact = bool(np.any("),
            ("FEWEST = 5", "FEWEST = 3"),
            ("refuted=lowest <= -critical(t.size,", "refuted=lowest <= -critical(1,"),
        ],
        "paper/experiments/units.py": [
            ("np.array_equal(name, self._name(index))", "True"),
            ("name is not None and", "name is None or"),
        ],
        "paper/explore/simulation.py": [("min(max(number, least), largest)", "number")],
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
    """Compile the core of a package; say whether that succeeds."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    flags = {**os.environ, "COCO_DENOISER_CFLAGS": "-O1"}
    done = subprocess.run(
        command, cwd=package.parents[1], env=flags, capture_output=True, check=False
    )
    return done.returncode == 0


def passes(tests: str, package: Path) -> bool:
    """Say whether some tests pass with a package."""
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
            for tests in filter(None, TESTS[mutation.file]):
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
