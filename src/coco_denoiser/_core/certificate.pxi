# How good an answer is, from the definition of the problem alone. It takes nothing from a solver
# but the elimination of a Laplacian, and any forces would do for a valid bound.
#
# For any feasible phi and any forces y_e on the pairs, weak duality says that the objective at
# phi exceeds its minimum by at most
#
#     gap = 1/2 sum_i ||f_i||^2 / n_i + sum_e (rho_e ||y_e|| - <y_e, v_e>),
#
# where f_i = n_i (h_i - phi_i) - sum of the forces on i, and v_e = phi_m - phi_l. Every term is
# non-negative, so nothing cancels. A distance is known up to ROUNDING times the size of its two
# points, and rho_e ||y_e|| up to that times ||y_e||. That much is forgiven; otherwise no answer to
# a window whose bounds are barely broken would pass. The multipliers give the forces:
# y_e = lam_e (v_e + u_m - u_l), where u makes up for the rounding of phi, which large multipliers
# would magnify. Points that move as one have infinite multipliers.
#
# Comparisons are such that what is not a number counts against the answer.

UNCERTAINTY = ROUNDING  # for Python


cdef bint certify_answer(Workspace ws) noexcept nogil:
    """Judge the answer of a workspace; return whether it is good enough."""
    cdef double value = weigh(ws), gap = 0.0
    cdef Py_ssize_t i, j
    load_rest(ws)
    if ws.coloured:
        for i in range(ws.K):
            memcpy(row(ws.u, i), row(ws.system.A, i), ws.system.q * sizeof(double))
        solve_shares(ws.system, ws.n, ws.multipliers, ws.shares, ws.system.q, ws.u)
    else:
        solve_system(ws.system, ws.u)
    ws.violation = 0.0
    for i in range(ws.K):
        for j in range(i):
            ws.violation = max(ws.violation, excess_of(ws, i, j))
            if is_held(row(ws.multipliers, i)[j]):
                gap += slack_of(ws, i, j)
    gap += unbalanced(ws)
    if gap == 0.0 and value >= 0.0:
        ws.gap = 0.0
    else:
        ws.gap = gap / value if gap > 0.0 and value > 0.0 else INFINITY
    return is_good(ws.gap, ws.violation, ws.tol)


cdef inline bint is_held(double lam) noexcept nogil:
    """Return whether a pair has a force that its multiplier tells."""
    return lam != 0.0 and lam < INFINITY


cdef double weigh(Workspace ws) noexcept nogil:
    """Fill in the forces n (h - phi) and the sizes of the points; return the objective."""
    cdef double value = 0.0, change
    cdef Py_ssize_t i, c
    for i in range(ws.K):
        ws.size[i] = 0.0
        for c in range(ws.system.q):
            change = row(ws.h, i)[c] - row(ws.phi, i)[c]
            row(ws.force, i)[c] = ws.n[i] * ws.shares[c] * change
            value += 0.5 * row(ws.force, i)[c] * change
            ws.size[i] += fabs(row(ws.phi, i)[c]) + fabs(change)
    return value


cdef void load_rest(Workspace ws) noexcept nogil:
    """Set the system for u: what the forces lam v leave of n (h - phi)."""
    cdef Py_ssize_t i, j, c, q = ws.system.q
    cdef double lam
    cdef Row own
    for i in range(ws.K):
        own = row(ws.system.A, i)
        memcpy(own, row(ws.force, i), q * sizeof(double))
        own[q] = ws.n[i]
        for j in range(ws.K):
            lam = row(ws.multipliers, i)[j]
            if is_held(lam):
                for c in range(q):
                    own[c] -= lam * (row(ws.phi, i)[c] - row(ws.phi, j)[c])
        for j in range(i):
            own[q + 1 + j] = min(row(ws.multipliers, i)[j], 1e30)


cdef double excess_of(Workspace ws, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Return by what share a pair breaks its bound."""
    cdef double bound = row(ws.bounds, i)[j], lost, excess
    lost = ROUNDING * min(1.0, ws.size[i] + ws.size[j])
    excess = sqrt(squared_distance(row(ws.phi, i), row(ws.phi, j), ws.system.q)) - bound
    if excess <= 2.0 * lost:  # once for the answer, once for this sum
        return 0.0
    excess /= bound + lost
    return excess if excess > 0.0 else INFINITY


cdef double slack_of(Workspace ws, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Take the force of a pair from its two points; return rho ||y|| - <y, v>."""
    cdef double lam = row(ws.multipliers, i)[j], y, v, strength = 0.0, work = 0.0
    cdef Row a = row(ws.phi, i), p = row(ws.u, i), mine = row(ws.force, i)
    cdef Row b = row(ws.phi, j), r = row(ws.u, j), other = row(ws.force, j)
    for c in range(ws.system.q):
        v = a[c] - b[c]
        y = lam * (v + (p[c] - r[c]))
        strength += y * y
        work += y * v
        mine[c] -= y
        other[c] += y
    return forgiven(ws, i, j, sqrt(strength), work)


cdef double forgiven(
    Workspace ws, Py_ssize_t i, Py_ssize_t j, double strength, double work
) noexcept nogil:
    """Return rho ||y|| - <y, v>, less what is not known of it."""
    cdef double known = ROUNDING * min(1.0, 2.0 * (ws.size[i] + ws.size[j]))
    cdef double slack = fabs(row(ws.bounds, i)[j] * strength - work) - known * strength
    return 0.0 if slack <= 0.0 else slack


cdef double unbalanced(Workspace ws) noexcept nogil:
    """Return what the forces that no multiplier accounts for add to the gap.

    Among points that move as one, a force for each pair balances all but the mean; that is
    unbalanced, unless it is rounding.
    """
    cdef double gap = 0.0, force, n
    cdef Py_ssize_t i, j, c, count
    for i in range(ws.K):
        count = 1
        memcpy(ws.mean, row(ws.force, i), ws.system.q * sizeof(double))
        for j in range(ws.K):
            if row(ws.multipliers, i)[j] == INFINITY:
                count += 1
                add_multiple(ws.mean, 1.0, row(ws.force, j), ws.system.q)
        for c in range(ws.system.q):
            force, n = ws.mean[c] / count, ws.n[i] * ws.shares[c]
            if not fabs(force) <= ROUNDING * n:
                gap += 0.5 * force * force / n
        for j in range(i):
            if row(ws.multipliers, i)[j] == INFINITY:
                gap += slack_within(ws, i, j, count)
    return gap


cdef double slack_within(Workspace ws, Py_ssize_t i, Py_ssize_t j, Py_ssize_t count) noexcept nogil:
    """Return rho ||y|| - <y, v> of a pair among `count` points that move as one."""
    cdef double y, strength = 0.0, work = 0.0
    for c in range(ws.system.q):
        y = (row(ws.force, i)[c] - row(ws.force, j)[c]) / count
        strength += y * y
        work += y * (row(ws.phi, i)[c] - row(ws.phi, j)[c])
    return forgiven(ws, i, j, sqrt(strength), work)


def certify(problem, phi, multipliers) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of an answer.

    Args:
        problem: K residuals and what is asked of them.
        phi: (K, q), the residuals of the answer.
        multipliers: (K, K), symmetric; infinite for pairs that move as one.
    """
    cdef Memory given = Memory()
    cdef Workspace ws = loaded(problem)
    cdef Py_ssize_t i
    cdef Row moved = given.read(ascontiguousarray(phi), ws.K, ws.q)
    cdef Row lam = given.read(ascontiguousarray(multipliers), ws.K, ws.K)
    set_identity(ws)
    for i in range(ws.K):
        memcpy(row(ws.phi, i), moved + i * ws.q, ws.q * sizeof(double))
        memcpy(row(ws.multipliers, i), lam + i * ws.K, ws.K * sizeof(double))
    certify_answer(ws)
    found = ws.gap, ws.violation
    give_back(ws)
    return found
