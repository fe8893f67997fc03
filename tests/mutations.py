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
    "certificate.py": ("test_certificate.py", SOLVERS),
    "curvature.py": ("test_curvature.py", ""),
    "descent.py": ("test_minimize.py", ""),
    "path.py": ("test_minimize.py", ""),
    "regression.py": ("test_minimize.py", ""),
    "models/cocoercive.py": (f"models/test_cocoercive.py {STATUS} {STREAM}", STREAMS),
    "models/gaussian.py": ("models test_validation.py", STREAMS),
    "problem.py": (f"test_certificate.py {STATUS} test_covariance.py", SOLVERS),
    "solvers/__init__.py": (STATUS, SOLVERS),
    "solvers/barrier.py": ("solvers/test_barrier.py solvers/test_near.py", SOLVERS),
    "solvers/closed_form.py": ("solvers/test_closed_form.py test_covariance.py", SOLVERS),
    "solvers/interior_point.py": (
        "solvers/test_large.py solvers/test_near.py solvers/test_newton.py",
        f"solvers/test_barrier.py {SOLVERS}",
    ),
    "solvers/large.py": ("solvers/test_large.py test_covariance.py", SOLVERS),
    "stream.py": (STREAM, STREAMS),
    "window.py": (STREAM, STREAMS),
    "_core/batch.pxi": (BATCH, SOLVERS),
    "_core/certificate.pxi": ("test_certificate.py", SOLVERS),
    "_core/groups.pxi": (f"test_denoise.py {NEWTON}", SOLVERS),
    "_core/barrier.pxi": ("solvers/test_barrier.py solvers/test_near.py", SOLVERS),
    "_core/solve.pxi": (f"solvers/test_barrier.py {STATUS}", SOLVERS),
    "_core/workspace.pxi": (f"{STATUS} test_denoise.py", STREAMS),
    "_core/line.pxi": ("solvers/test_line.py solvers/test_near.py", SOLVERS),
    "_core/newton_model.pxi": (NEWTON, SOLVERS),
    "_core/newton.pxi": (NEWTON, f"{SOLVERS} {STATUS}"),
    "_core/passes.pxi": (f"core {STREAM}", STREAMS),
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
    "certificate.py": [
        ("np.minimum(multipliers, 1e30), problem, rest)", "multipliers, problem, 0.0 * rest)"),
    ],
    "curvature.py": [
        ("if norms[-1] == 0.0:  #", "if norms[-1] <= 1e-6:  #"),
        ("and 0.0 not in norms:", "and not any(norm <= 1e-6 for norm in norms):"),
        ("0.5 * delta * math.sqrt(", "2.0 * delta * math.sqrt("),
        ("max(float(smallest), 0.0)", "float(smallest)"),
    ],
    "descent.py": [
        ("points=[*earlier.points], history=[*earlier.history]", "prox=None"),
        ("replace(earlier, points=[*earlier.points], history=[*earlier.history])", "earlier"),
    ],
    "path.py": [
        ("if gap > _APART * chance:", "if False:"),
        ("best = min(best, (score, int(first)))", "best = (score, int(first))"),
        ("max(1.0, _PROTECT * math.sqrt(self.steps)) * h", "0.0 * h"),
        ("step * self.unit / (self.scale or 1.0)", "step"),
        ("2.0 ** math.frexp(size)[1]", "1.0"),
        ("self.reach > _FAR and", ""),
        ("and last >= 0.5 * first", "and False"),
        ("if len(self.points) == most", "if False"),
        ("(x + y) / 2.0", "x"),
    ],
    "regression.py": [
        ("if field is None or not field.agrees(x, g):", "if field is None:"),
        ("self.h**2 + self.error**2", "self.h**2"),
        ("std = np.sqrt(variances[0]", "std = 0.3 * np.sqrt(variances[0]"),
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
        ("1.0) <= 1.0 + within", "1.0) <= 1.0 + 1e-3"),
        ("np.minimum(1.0, size[:, None] + size)", "np.ones_like(size)"),
        ("shares = spread / eigenvalues", "shares = eigenvalues / eigenvalues.max()"),
        ("else move @ self.axes.T", "else move @ self.axes"),
        ("block.argmin()", "block.argmax()"),
        ("solve_laplacian(multipliers / share,", "solve_laplacian(1.0 * multipliers,"),
        ("forces[:, s == share] / share)", "forces[:, s == share])"),
        ("W[inside] / worst + (1.0 - 1.0 / worst)", "W[inside] + (1.0 - 1.0 / worst)"),
        ("for labels in (connected, np.zeros_like(connected)):", "for labels in (0 * connected,):"),
        ("* (n / merged.precisions[labels])", "* 1.0"),
        ("centroid + (phi[members] - centroid) / worst", "phi[members] / worst"),
        ("residuals += pull / problem.table[members]", "pass"),
        ("if worst > 1.0 + within:", "if False:"),
        ("spread = float(eigenvalues.min())", "spread = 1.0"),
        ("1.0 / (batch.least * spread)", "1.0"),
        ("    n = n / n.max()\n", ""),
    ],
    "solvers/__init__.py": [
        ('        yield "large", COINCIDENT\n', "        pass\n"),
        ("own, METHODS[name].inner, near, tol, max_iter)", 'own, "barrier", near, tol, 1)'),
        ("held * problem.precisions[members].max()", "held"),
        ("if count == 1 or problem.bounds[inside].max() <= ROUNDING * size:", "if True:"),
        ("answer: max(answer.gap, answer.violation))", "answer: answer.gap)"),
        ("if gap <= tol and violation <= tol:", "if gap <= tol:"),
        ("if gap <= tol and violation <= tol:", "if not (gap > tol or violation > tol):"),
        ("if not distinct.is_feasible():", "if True:"),
    ],
    "solvers/barrier.py": [
        ("order = np.argsort(-problem.precisions", "order = np.argsort(0 * problem.precisions"),
        (
            "slack = s - length * (along + 0.5 * length * square)",
            "slack = 0.5 * (rho**2 - np.sum((v + length * dv) ** 2, axis=1))",
        ),
        ("0.1 * tol * loss / rho.size", "10.0 * tol * loss / rho.size"),
        ("return float(K * min(K, q)) ** 3", "return 0.0 * float(K * q)"),
    ],
    "solvers/closed_form.py": [
        ("v = d * (s / (s + t))", "v = d / (1.0 + t)"),
        ("lam = t / (1.0 / n + 1.0 / m)", "lam = t"),
    ],
    "solvers/interior_point.py": [
        ("1e-3 * tol * dual", "1e-3 * tol"),
        ("ridge < 1e-3 and left >= cost", "ridge < 1e-3"),
        ("np.where(active, self.lam, 0.0)", "self.lam"),
        ("if error <= max(2.0 * before, _FLOOR):", "if True:"),
    ],
    "solvers/large.py": [
        ("own.T * self.v * self.v", "own.T * self.v"),
        ("rows = v[:, None] * (M[i] - M[j])", "rows = M[i] - M[j]"),
        ("unit = 1.0 / np.sqrt(np.diag(H))", "unit = np.ones(len(H))"),
    ],
    "stream.py": [
        ("            stream.reset()  # tables", "            pass  # tables"),
        ("        window.points, window.residuals = held\n", ""),
        ("0.0 if self.model.fixed is None else limits.centre", "limits.centre"),
    ],
    "window.py": [
        ("_cycle(self.next if self.count == self.slots else 0,", "_cycle(0,"),
    ],
    "_core/batch.pxi": [
        ("            if move:\n", "            if False:\n"),
        (
            "cdef double own = batch.variances[i] / (batch.variances[i] + batch.variances[j])",
            "cdef double own = 1.0",
        ),
        ("lam[k] /= self.least", "lam[k] /= 1.0"),
        ("            if worst == 0.0:\n", "            if True:\n"),
        ("(fabs(g[k] - c * x[k]) <= limit)", "1"),
        ("- (i == j))", ")"),
        ("add_multiple(row(h, i), -out[i * K + j], row(h, j), d)", "pass"),
        ("moved = moved or ws.active > 0", "moved = True"),
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
    ],
    "_core/solve.pxi": [
        ("if ws.distinct < ws.K and solve_groups(", "if False and solve_groups("),
        ("    ws.answered, steps = BARRIER,", "    ws.answered, steps = NEWTON,"),
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
        ("    if not distinct:\n        return False\n", ""),
        ("(1.0 - shrink) / total) * ws.n[j]", "(1.0 - shrink) / total)"),
        ("mean + shrink * (row(ws.phi, i)[c] - mean)", "shrink * row(ws.phi, i)[c]"),
    ],
    "_core/passes.pxi": [
        ("if entry.merged:\n", "if False:\n"),
        ("if i != skip:", "if True:"),
        ("-entry.shift, n)", "entry.shift, n)"),
        ("(entry.merged or i != entry.slot)", "i != entry.slot"),
    ],
    "_core/residuals.pxi": [
        ("if total[i] < total[best]:", "if total[i] > total[best]:"),
        ("        h[i] /= scale\n", "        pass\n"),
        (
            "return sqrt(square) if square > TINY else small_length(a, b, c, x, y, n)",
            "return sqrt(square)",
        ),
        ("if not (0 <= one[e] < K and 0 <= two[e] < K):", "if False:"),
    ],
    "_core/step.pxi": [
        ("sums[3 * used] > 0.0 or fold.reach > limits.largest", "False"),
        ("or fold.reach > limits.largest", ""),
        ("insert_row(window, merged, used, fold.new)", "pass"),
        ("window.variance[fold.new] = fold.variance", "pass"),
        ("1 if merged else window.count, weights", "window.count, weights"),
        ("return solve_window(ws, -1, EITHER)", "return solve_window(ws, -1, EITHER) or True"),
        ("centre - window.centre, merged", "0.0, merged"),
        ("if i != slot and min(row[i], row[2 * room * room + i]) < CLOSE:", "if False:"),
        ("x, h, 0.0, used, fold.new)", "x, h, 1.0, used, fold.new)"),
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
    "paper/experiments/claims.py": [
        ("exact = bool(np.all(", "exact = bool(np.any("),
        ("FEWEST = 5", "FEWEST = 3"),
        ("refuted=lowest <= -critical(t.size,", "refuted=lowest <= -critical(1,"),
    ],
    "paper/experiments/units.py": [
        ("np.array_equal(name, self._name(index))", "True"),
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
        ("math.sqrt(k) * size(k)", "size(k)"),
        ("self._corner(self.denoised(x, g)) - x", "self._corner(self.denoised(x, g))"),
        ("np.where(inside, x, ", "np.where(False, x, "),
    ],
}
MUTATIONS = [Mutation(file, *change) for file, changes in CHANGES.items() for change in changes]
