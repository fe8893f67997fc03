"""What `tests.mutate` breaks, file by file."""

from typing import NamedTuple


class Mutation(NamedTuple):
    """In a file, one text is replaced by another."""

    file: str
    old: str
    new: str


STATUS = "test_status.py solvers/test_near.py"
BATCH = f"test_certificate.py {STATUS} test_denoise.py test_validation.py"
STREAM = "test_streaming.py test_stream_failures.py test_folding.py"
NEWTON = f"solvers/test_newton.py models/test_cocoercive.py {STREAM}"
SOLVERS, STREAMS = "contracts/test_solver.py test_fuzz.py", "contracts/test_stream.py"
# Of every file: the tests that should notice, and those to try if they do not.
TESTS = {
    "_validation.py": ("test_validation.py", "test_streaming.py"),
    "curvature.py": ("test_curvature.py", ""),
    "descent.py": ("test_minimize.py", ""),
    "path.py": ("test_minimize.py", ""),
    "regression.py": ("test_minimize.py", ""),
    "models/cocoercive.py": (f"models/test_cocoercive.py {STATUS} {STREAM}", STREAMS),
    "models/gaussian.py": ("models test_validation.py", STREAMS),
    "problem.py": (f"test_certificate.py {STATUS} test_covariance.py", SOLVERS),
    "solvers/__init__.py": (STATUS, SOLVERS),
    "stream.py": (STREAM, STREAMS),
    "window.py": (STREAM, STREAMS),
    "_core/batch.pxi": (BATCH, SOLVERS),
    "_core/certificate.pxi": ("test_certificate.py", SOLVERS),
    "_core/groups.pxi": (f"test_denoise.py {NEWTON}", SOLVERS),
    "_core/barrier.pxi": ("solvers/test_barrier.py solvers/test_near.py", SOLVERS),
    "_core/gradients.pxi": (NEWTON, SOLVERS),
    "_core/laplacian.pxi": ("test_certificate.py test_covariance.py", SOLVERS),
    "_core/solve.pxi": (f"solvers/test_barrier.py {STATUS}", SOLVERS),
    "_core/workspace.pxi": (f"{STATUS} test_denoise.py", STREAMS),
    "_core/line.pxi": ("solvers/test_line.py solvers/test_near.py", SOLVERS),
    "_core/newton_model.pxi": (NEWTON, SOLVERS),
    "_core/newton.pxi": (NEWTON, f"{SOLVERS} {STATUS}"),
    "_core/passes.h": (f"core {STREAM}", STREAMS),
    "_core/residuals.pxi": (f"core {BATCH}", SOLVERS),
    "_core/step.pxi": (f"{NEWTON} {STATUS}", STREAMS),
    "_core/tables.pxi": (NEWTON, STREAMS),
    "paper/experiments/claims.py": ("paper/experiments/test_claims.py", ""),
    "paper/experiments/units.py": ("paper/experiments/test_units.py", ""),
    "paper/explore/simulation.py": ("paper/explore/test_simulation.py", ""),
    "paper/files.py": ("paper/test_files.py", ""),
    "paper/optimizers/driver.py": ("paper/optimizers/test_proximal.py test_validation.py", ""),
    "paper/optimizers/proximal.py": ("paper/optimizers/test_proximal.py", ""),
}
# What is broken.
CHANGES = {
    "_validation.py": [
        ("    if masked:\n", "    if False:\n"),
        ("    if not kernels.fits(points", "    if False and not kernels.fits(points"),
        ("np.dtype(np.float64): 1e150", "np.dtype(np.float64): 1e300"),
        ("np.dtype(np.float32): 1e37", "np.dtype(np.float32): 3e38"),
    ],
    "curvature.py": [
        ("if norms[-1] == 0.0:  #", "if norms[-1] <= 1e-6:  #"),
        ("and 0.0 not in norms:", "and not any(norm <= 1e-6 for norm in norms):"),
        ("0.5 * delta * math.sqrt(", "2.0 * delta * math.sqrt("),
        ("max(float(smallest), 0.0)", "float(smallest)"),
    ],
    "descent.py": [
        ("resume._path.copy()", "resume._path"),
        ("stationary and ended is None", "stationary"),
    ],
    "path.py": [
        ("if gap > _APART * chance:", "if False:"),
        ("best = min(best, (score, int(first)))", "best = (score, int(first))"),
        ("max(1.0, _PROTECT * math.sqrt(self.steps)) * h", "0.0 * h"),
        ("step * self.unit / self.scale", "step"),
        ("other.prox, other.points", "_, other.points"),
        ("2.0 ** math.frexp(size)[1]", "1.0"),
        ("self.reach > _FAR and", ""),
        ("bool(np.nanmean(last) >= 0.5 * np.nanmean(first))", "False"),
        ("if len(self.points) == most", "if False"),
        ("(x + y) / 2.0", "x"),
    ],
    "regression.py": [
        ("if field is None or not field.agrees(x, g):", "if field is None:"),
        ("self.h**2 + self.error**2", "self.h**2"),
        ("std = np.sqrt(sum(", "std = 0.3 * np.sqrt(sum("),
        ("new = prox(y - step * (H @ y + g), step)", "new = y - step * (H @ y + g)"),
    ],
    "models/gaussian.py": [("        check.in_range(x, g, 0.0)\n", "")],
    "models/cocoercive.py": [
        ("Status.SOLVED if moved else Status.UNCHANGED", "Status.SOLVED"),
        ("solvers.allowed(self.tol)", "self.tol"),
        ("and window.members == window.count", ""),
        ("start[window.newest] = start[:, window.newest] = 0.0", "pass"),
    ],
    "problem.py": [
        ("return 0.5 * L + 0.5 * mu,", "return 0.5 * L,"),
        ("shares = spread / eigenvalues", "shares = eigenvalues / eigenvalues.max()"),
        ("else move @ self.axes.T", "else move @ self.axes"),
        ("spread = float(eigenvalues.min())", "spread = 1.0"),
        ("1.0 / (batch.least * spread)", "1.0"),
    ],
    "solvers/__init__.py": [
        ("if gap <= tol and violation <= tol:", "if gap <= tol:"),
        ("if gap <= tol and violation <= tol:", "if not (gap > tol or violation > tol):"),
    ],
    "stream.py": [
        ("            stream.reset()  # tables", "            pass  # tables"),
        ("        window.points, window.residuals = held\n", ""),
        ("0.0 if self.model.fixed is None else limits.centre", "limits.centre"),
    ],
    "window.py": [
        ("self.next if self.count == self.slots else 0", "0"),
    ],
    "_core/batch.pxi": [
        ("            if not move:\n", "            if True:\n"),
        ("own /= batch.variances[i] + batch.variances[j]", "own = 1.0"),
        ("multipliers /= self.least", "pass"),
        ("            if worst == 0.0:\n", "            if True:\n"),
        ("(fabs(g[k] - c * x[k]) <= limit)", "1"),
        ("- (i == j))", ")"),
        ("add_multiple(row(h, i), -out[i * K + j], row(h, j), d)", "pass"),
        ("moved = moved or active", "moved = True"),
        ("n[k] = batch.least / batch.variances[k]", "n[k] = 1.0"),
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
    "_core/groups.pxi": [
        ("part.n[a] += ws.n[i]", "part.n[a] = ws.n[i]"),
        ("/= part.n[a]", "/= 1.0"),
        ("* (ws.n[j] / part.n[b])", ""),
        ("row(ws.bounds, i)[j] < least:", "row(ws.bounds, i)[j] > -1.0:"),
    ],
    "_core/barrier.pxi": [
        ("#define LEAST 0.01", "#define LEAST 0.0"),
        ("1.0 if self.square[e] <= self.rho[e] else 0.0", "0.0"),
        ("u[i] = u[self.parent[i]] + edge[i]", "u[i] += a * row(self.du, c)[i]"),
        ("held = max(max(mu, end), held)", "held = mu"),
    ],
    "_core/laplacian.pxi": [
        ("= row(x, i)[c] / shares[c]", "= row(x, i)[c]"),
        ("min(row(lam, i)[j], 1e30) / share", "min(row(lam, i)[j], 1e30)"),
    ],
    "_core/solve.pxi": [
        ("if max(ws.gap, ws.violation) > ws.least_error:", "if False:"),
        ("if count > distinct and attempt(", "if k == 0 and attempt("),
        ("        expand_groups(ws, part)\n", "        pass\n"),
    ],
    "_core/workspace.pxi": [
        ("if self.distinct <= 2:", "if self.K <= 2:"),
        ("return ws.gap <= ws.tol and ws.violation <= ws.tol", "return True"),
    ],
    "_core/line.pxi": [
        ("row(bounds, new)[order[first]] < row(bounds, new)[order[last]]", "k % 2"),
        ("(ahead[k] if size[k] <= total else force)", "ahead[k]"),
        ("k = right if self.value[right] < -self.value[right - 1] else right - 1", "k = right"),
        ("row(ws.h, line.order[k])[0], ws.n[line.order[k]]", "row(ws.h, line.order[k])[0], 1.0"),
    ],
    "_core/newton_model.pxi": [
        ("ws.lam[e], ws.w[e] * ws.w[e] *", "ws.lam[e], 2.0 * ws.w[e] * ws.w[e] *"),
        ("        if model.slope[k] > 0.0:", "        if model.slope[k] > 0.0 and model.free[k]:"),
        ("= max(model.y[k], 0.0)", "= model.y[k]"),
    ],
    "_core/gradients.pxi": [
        ("wrong == 0 or left <= 0", "True"),
        ("SUFFICIENT 1e-3", "SUFFICIENT 0.5"),
    ],
    "_core/newton.pxi": [
        ("        if ws.relative_gap < best:\n", "        if True:\n"),
        ("if left < 0.0 or ws.steps", "if ws.steps"),
        ("#define RIDGE 0.01", "#define RIDGE 1e-12"),
        ("#define CROWDED 0.6", "#define CROWDED 1e9"),
        ("HALVINGS = 4", "HALVINGS = 0"),
        ("        settle(ws)\n", ""),
        ("elif not is_implied(ws.bounds, ws.K, i, j):", "else:"),
        (" & (a[p] < shorter) & (b[p] < shorter)", ""),
        ("min(0.01, excess * ws.inverse[e])", "0.01"),
        ("min(ROUNDING, ws.size[i] + ws.size[j])", "ROUNDING"),
        ("    if not ws.apart:\n        return False\n", ""),
        ("            share = ws.shares[c]\n", "            share = 1.0\n"),
        ("(1.0 - shrink) / total) * ws.n[j]", "(1.0 - shrink) / total)"),
        ("mean + shrink * (row(ws.phi, i)[c] - mean)", "shrink * row(ws.phi, i)[c]"),
    ],
    "_core/passes.h": [
        ("if (entry->merged) NAME", "if (0) NAME"),
        ("if (i != skip) {", "if (1) {"),
        ("-entry->shift, n)", "entry->shift, n)"),
        ("(entry->merged || i != entry->slot)", "i != entry->slot"),
    ],
    "_core/residuals.pxi": [
        ("if total[i] < total[best]:", "if total[i] > total[best]:"),
        ("        h[i] /= scale\n", "        pass\n"),
        (
            "return sqrt(square) if square > TINY else small_length(a, b, c, x, y, n)",
            "return sqrt(square)",
        ),
    ],
    "_core/step.pxi": [
        ("sums[3 * used] > 0.0 or fold.reach > limit", "False"),
        ("or fold.reach > limit", ""),
        ("min(window.count, window.ring), weights", "window.count, weights"),
        ("solved, weights = solve_window(ws, -1, EITHER)", "solved, weights = True"),
        ("centre - window.centre, window.newest > last", "0.0, window.newest > last"),
    ],
    "_core/tables.pxi": [
        ("2.0 * a * b * (1.0 - cosine)", "2.0 * a * b"),
        ("cdef double e = shift * dx", "cdef double e = -shift * dx"),
        ("ws.n[i] = ws.least / window.variance[i]", "ws.n[i] = 1.0"),
        ("= radius * tables[i * room + j] / scale", "= tables[i * room + j] / scale"),
        ("row(ws.W, c)[c] <= 1e-15 * K", "row(ws.W, c)[c] <= 1e-9 * K"),
        ("(dh - shift * dx) / scale", "dh - shift * dx"),
        ("if total < nearest:", "if total > nearest:"),
        ("min(1.0, max(-1.0, sums[used + i] / found[1]))", "sums[used + i] / found[1]"),
        ("(old + 1) % window.count", "old"),
        ("(1.0 - rho / apart) * (newer / (older + newer))", "newer / (older + newer)"),
        ("(1.0 - w) * (1.0 - w) * newer + w * w * older", "newer"),
        ("w = newer / (older + newer)", "w = older / (older + newer)"),
        ("max(window.next, min(window.past, window.count))", "window.next"),
        ("and min(found[0], found[2]) < CLOSE:", "and False:"),
        ("insert_row(window, merged, used, fold.new, stored, 0.0)", "pass"),
        ("used, fold.new, stored, 0.0)", "used, fold.new, stored, 1.0)"),
        ("window.variance[fold.new] = fold.variance", "pass"),
        ("window.variance[slot], window.newest = variance, slot", "window.newest = slot"),
    ],
    "paper/experiments/claims.py": [
        ("exact = bool(np.all(", "exact = bool(np.any("),
        ("FEWEST = 5", "FEWEST = 3"),
        ("lowest <= -critical(t.size,", "lowest <= -critical(1,"),
    ],
    "paper/experiments/units.py": [
        ("np.array_equal(name, self._label(index))", "True"),
        ("name is not None and", "name is None or"),
    ],
    "paper/explore/simulation.py": [
        ("min(max(number, least), largest)", "number"),
    ],
    "paper/files.py": [
        ("if part and not _running(int(part[1])):", "if part:"),
        ("if part and not _running(int(part[1])):", "if False:"),
    ],
    "paper/optimizers/driver.py": [
        ("x = apply(optimizer.advance(oracle, x, rng))", "x = optimizer.advance(oracle, x, rng)"),
        ("type(optimizer).answer is not Optimizer.answer", "False"),
    ],
    "paper/optimizers/proximal.py": [
        ("surplus, kept - 1, axis=-1) / kept", "surplus, kept - 1, axis=-1) / (kept + 1)"),
        ("math.sqrt(self.steps) * super()", "super()"),
        ("self._corner(g) - x", "self._corner(g)"),
        ("np.where(inside, x, ", "np.where(False, x, "),
    ],
}
MUTATIONS = [Mutation(file, *change) for file, changes in CHANGES.items() for change in changes]
