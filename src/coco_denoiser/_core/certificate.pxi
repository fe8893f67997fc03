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


cdef struct Claim:
    Py_ssize_t K, q  # q is a multiple of four; further coordinates are zero
    Table h, bounds, phi, lam
    Row n, shares  # precisions, and what they are multiplied by in each coordinate
    bint coloured  # whether these differ
    # Room to work in: forces, u, a system, the size of each point, a vector.
    Table force, u
    Laplacian system
    Row size, mean


cdef Py_ssize_t certificate_room(Py_ssize_t K, Py_ssize_t q) noexcept nogil:
    """Return how many numbers `divide_room` needs."""
    return 2 * K * whole(q) + K * whole(q + 1 + K) + K * whole(K) + 2 * whole(K) + whole(q)


cdef void divide_room(Claim *claim, Row room) noexcept nogil:
    """Set the tables that a claim is judged with."""
    cdef Py_ssize_t K = claim.K, q = claim.q
    claim.force.stride = claim.u.stride = whole(q)
    claim.force.data = room
    claim.u.data = claim.force.data + K * whole(q)
    claim.system.K, claim.system.q = K, q
    claim.system.A.stride, claim.system.F.stride = whole(q + 1 + K), whole(K)
    claim.system.A.data = claim.u.data + K * whole(q)
    claim.system.F.data = claim.system.A.data + K * whole(q + 1 + K)
    claim.system.pivot = claim.system.F.data + K * whole(K)
    claim.size = claim.system.pivot + whole(K)
    claim.mean = claim.size + whole(K)


cdef (double, double) judge(Claim *claim) noexcept nogil:
    """Return the relative gap and the worst relative violation."""
    cdef double value = weigh(claim), gap = 0.0, violation = 0.0
    cdef Py_ssize_t i, j
    load_rest(claim)
    if claim.coloured:
        for i in range(claim.K):
            memcpy(row(claim.u, i), row(claim.system.A, i), claim.q * sizeof(double))
        solve_shares(claim.system, claim.n, claim.lam, claim.shares, claim.q, claim.u)
    else:
        solve_system(claim.system, claim.u)
    for i in range(claim.K):
        for j in range(i):
            violation = max(violation, excess_of(claim, i, j))
            if is_held(row(claim.lam, i)[j]):
                gap += slack_of(claim, i, j)
    gap += unbalanced(claim)
    if gap == 0.0 and value >= 0.0:
        return 0.0, violation
    return (gap / value if gap > 0.0 and value > 0.0 else INFINITY), violation


cdef inline bint is_held(double lam) noexcept nogil:
    """Return whether a pair has a force that its multiplier tells."""
    return lam != 0.0 and lam < INFINITY


cdef double weigh(Claim *claim) noexcept nogil:
    """Fill in the forces n (h - phi) and the sizes of the points; return the objective."""
    cdef double value = 0.0, change
    cdef Py_ssize_t i, c
    for i in range(claim.K):
        claim.size[i] = 0.0
        for c in range(claim.q):
            change = row(claim.h, i)[c] - row(claim.phi, i)[c]
            row(claim.force, i)[c] = claim.n[i] * claim.shares[c] * change
            value += 0.5 * row(claim.force, i)[c] * change
            claim.size[i] += fabs(row(claim.phi, i)[c]) + fabs(change)
    return value


cdef void load_rest(Claim *claim) noexcept nogil:
    """Set the system for u: what the forces lam v leave of n (h - phi)."""
    cdef Py_ssize_t i, j, c, q = claim.q
    cdef double lam
    cdef Row own
    for i in range(claim.K):
        own = row(claim.system.A, i)
        memcpy(own, row(claim.force, i), q * sizeof(double))
        own[q] = claim.n[i]
        for j in range(claim.K):
            lam = row(claim.lam, i)[j]
            if is_held(lam):
                for c in range(q):
                    own[c] -= lam * (row(claim.phi, i)[c] - row(claim.phi, j)[c])
        for j in range(i):
            own[q + 1 + j] = min(row(claim.lam, i)[j], 1e30)


cdef double excess_of(Claim *claim, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Return by what share a pair breaks its bound."""
    cdef double bound = row(claim.bounds, i)[j], lost, excess
    lost = ROUNDING * min(1.0, claim.size[i] + claim.size[j])
    excess = sqrt(squared_distance(row(claim.phi, i), row(claim.phi, j), claim.q)) - bound
    if excess <= 2.0 * lost:  # once for the answer, once for this sum
        return 0.0
    excess /= bound + lost
    return excess if excess > 0.0 else INFINITY


cdef double slack_of(Claim *claim, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Take the force of a pair from its two points; return rho ||y|| - <y, v>."""
    cdef double lam = row(claim.lam, i)[j], y, v, strength = 0.0, work = 0.0
    cdef Row a = row(claim.phi, i), p = row(claim.u, i), mine = row(claim.force, i)
    cdef Row b = row(claim.phi, j), r = row(claim.u, j), other = row(claim.force, j)
    for c in range(claim.q):
        v = a[c] - b[c]
        y = lam * (v + (p[c] - r[c]))
        strength += y * y
        work += y * v
        mine[c] -= y
        other[c] += y
    return forgiven(claim, i, j, sqrt(strength), work)


cdef double forgiven(
    Claim *claim, Py_ssize_t i, Py_ssize_t j, double strength, double work
) noexcept nogil:
    """Return rho ||y|| - <y, v>, less what is not known of it."""
    cdef double known = ROUNDING * min(1.0, 2.0 * (claim.size[i] + claim.size[j]))
    cdef double slack = fabs(row(claim.bounds, i)[j] * strength - work) - known * strength
    return 0.0 if slack <= 0.0 else slack


cdef double unbalanced(Claim *claim) noexcept nogil:
    """Return what the forces that no multiplier accounts for add to the gap.

    Among points that move as one, a force for each pair balances all but the mean; that is
    unbalanced, unless it is rounding.
    """
    cdef double gap = 0.0, force, n
    cdef Py_ssize_t i, j, c, count
    for i in range(claim.K):
        count = 1
        memcpy(claim.mean, row(claim.force, i), claim.q * sizeof(double))
        for j in range(claim.K):
            if row(claim.lam, i)[j] == INFINITY:
                count += 1
                add_multiple(claim.mean, 1.0, row(claim.force, j), claim.q)
        for c in range(claim.q):
            force, n = claim.mean[c] / count, claim.n[i] * claim.shares[c]
            if not fabs(force) <= ROUNDING * n:
                gap += 0.5 * force * force / n
        for j in range(i):
            if row(claim.lam, i)[j] == INFINITY:
                gap += slack_within(claim, i, j, count)
    return gap


cdef double slack_within(Claim *claim, Py_ssize_t i, Py_ssize_t j, Py_ssize_t count) noexcept nogil:
    """Return rho ||y|| - <y, v> of a pair among `count` points that move as one."""
    cdef double y, strength = 0.0, work = 0.0
    for c in range(claim.q):
        y = (row(claim.force, i)[c] - row(claim.force, j)[c]) / count
        strength += y * y
        work += y * (row(claim.phi, i)[c] - row(claim.phi, j)[c])
    return forgiven(claim, i, j, sqrt(strength), work)


def certify(problem, phi, multipliers) -> tuple[float, float]:
    """Return the relative duality gap and the worst relative violation of an answer.

    Args:
        problem: K residuals and what is asked of them.
        phi: (K, q), the residuals of the answer.
        multipliers: (K, K), symmetric; infinite for pairs that move as one.
    """
    cdef Memory memory = Memory()
    cdef Claim claim
    residuals, bounds, precisions, shares = parts(problem)
    phi, multipliers = ascontiguousarray(phi), ascontiguousarray(multipliers)
    cdef Py_ssize_t K = residuals.shape[0], q = residuals.shape[1]
    claim.K, claim.q, claim.n = K, (q + 3) // 4 * 4, memory.read(precisions, K)
    claim.h = copy_in(memory, memory.read(residuals, K, q), K, q)
    claim.phi = copy_in(memory, memory.read(phi, K, q), K, q)
    claim.bounds = copy_in(memory, memory.read(bounds, K, K), K, K)
    claim.lam = copy_in(memory, memory.read(multipliers, K, K), K, K)
    divide_room(&claim, memory.vector(certificate_room(K, claim.q)))
    claim.shares = memory.vector(claim.q)
    claim.coloured = read_shares(claim.shares, memory.read(shares, q), q)
    return judge(&claim)


cdef bint read_shares(Row shares, const double *given, Py_ssize_t q) noexcept nogil:
    """Copy what precisions are multiplied by; return whether coordinates differ."""
    cdef bint coloured = False
    cdef Py_ssize_t c
    for c in range((q + 3) // 4 * 4):
        shares[c] = given[c] if c < q else 1.0
        coloured = coloured or shares[c] != 1.0
    return coloured


cdef Table copy_in(Memory memory, Row given, Py_ssize_t rows, Py_ssize_t columns) except *:
    """Return a padded copy of contiguous numbers."""
    cdef Table table = memory.table(rows, columns)
    for i in range(rows):
        memcpy(row(table, i), given + i * columns, columns * sizeof(double))
    return table
