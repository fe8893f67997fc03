# Exact multipliers of an ordinary window by Newton's method on the pairs at their bounds.
#
# For K residuals h_i, precisions n_i and bounds rho_ml,
#
#     minimise  1/2 sum_i n_i ||phi_i - h_i||^2   subject to   ||phi_m - phi_l|| <= rho_ml.
#
# Multipliers lam make phi = M N h stationary, with M = (N + Laplacian(lam))^-1; w are its
# distances. For one pair, 1 / w is linear in its multiplier, so w(lam) = rho is solved as
# 1 / w = 1 / rho (as More and Sorensen do in a trust region):
#
#     H dlam = w^2 (w / rho - 1)    with H the Hessian of the dual, (b_e' M b_f)(v_e . v_f).
#
# Which pairs are at their bounds is decided by the same model: multipliers lam + dlam that are
# not negative, and zero where the model says that the pair is then inside its bound. From a few
# multiplicative rounds, lam <- lam (w / rho)^2, this takes three to five steps. A step after which
# the dual, which is concave, is lower than before was too long, and is halved. Where there are
# more pairs than residuals have degrees of freedom, as in the plane, multipliers are not unique
# and H is singular: a ridge that falls with the gap (Levenberg and Marquardt) keeps steps short
# without slowing down the last ones. It may still fall short: the certificate tells.

cdef enum:
    STEPS = 60
    PIVOTS = 12  # how often the pairs at their bounds are chosen anew in one step
    HALVINGS = 4  # of a step
    ROUNDS = 60  # multiplicative ones, at most, before the steps

cdef extern from *:
    """
    /* Rounds end when no pair exceeds its bound by more than READY, and those nearer to it than
     * NEAR alone keep all others within CARRY. */
    #define READY 1.07
    #define NEAR 0.9
    #define CARRY 1.25
    /* Multipliers that hold two points together, by what holds them where they are. */
    #define STIFF 100.0
    /* The ridge is the relative gap, at most RIDGE, from CROWDED pairs per degree of freedom on. */
    #define RIDGE 0.01
    #define CROWDED 0.6
    /* Multiplications that a window of K points may cost, as a multiple of max(K, 16)^3: for large
     * windows, and for those that then cost less than the third number. */
    #define ALLOWED 1000.0
    #define ALLOWED_SMALL 8000.0
    #define ENOUGH_WORK 2e9
    """
    double READY, NEAR, CARRY, STIFF, RIDGE, CROWDED, ALLOWED, ALLOWED_SMALL, ENOUGH_WORK


cdef bint solve_newton(Workspace ws, int max_iter) noexcept nogil:
    """Solve the problem of a workspace; return False if two points coincide."""
    cdef bint last
    if not begin(ws, COINCIDENT):
        return True
    if not ws.apart:
        return False
    guess_multipliers(ws)
    if ws.K > 2 or ws.coloured:
        approach(ws)
        last = iterate(ws, ws.tol, min(max_iter, <int> STEPS))
    else:
        last = False  # the guess is exact
    if not last:
        memcpy(ws.lam, ws.best, ws.pairs * sizeof(double))
        move(ws)
    finish(ws)
    return True


cdef bint begin(Workspace ws, double near) noexcept nogil:
    """Let the answer be the observations; return whether they break a bound.

    If not, they stay the same to the last bit.
    """
    ws.steps, ws.active = 0, 0
    set_identity(ws)
    ws.apart = list_pairs(ws, near)
    prepare(ws)
    return is_broken(ws)


cdef void set_identity(Workspace ws) noexcept nogil:
    """Let the answer be the observations themselves."""
    for i in range(ws.K):
        memset(row(ws.W, i), 0, ws.K * sizeof(double))
        memset(row(ws.multipliers, i), 0, ws.K * sizeof(double))
        memcpy(row(ws.phi, i), row(ws.h, i), ws.system.q * sizeof(double))
        row(ws.W, i)[i] = 1.0


cdef bint list_pairs(Workspace ws, double near) noexcept nogil:
    """Fill in bounds and their inverses; return False if one is not above `near`."""
    cdef Py_ssize_t e = 0, i, j
    cdef double rho
    cdef bint distinct = True
    for i in range(ws.K):
        for j in range(i):
            ws.rho[e] = rho = row(ws.bounds, i)[j]
            ws.inverse[e] = 0.0
            if not rho > near:
                distinct = False
            elif not is_implied(ws.bounds, ws.K, i, j):
                ws.inverse[e] = 1.0 / rho
            e += 1
    return distinct


cdef bint is_implied(Table bounds, Py_ssize_t K, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Return whether a third point implies the bound of a pair, rho_ip + rho_pj <= rho_ij.

    Both must be shorter: without that, near-duplicates would imply each other away.
    """
    cdef Row a = row(bounds, i), b = row(bounds, j)
    cdef double rho = a[j], shorter = rho * (1.0 - 1e-14), reach = rho * (1.0 + 2e-15)
    cdef Py_ssize_t p
    cdef int third = 0
    for p in range(K):  # counted, since a way out would keep it from vectorising
        third += (a[p] + b[p] <= reach) & (a[p] < shorter) & (b[p] < shorter)
    return third > 0


cdef void prepare(Workspace ws) noexcept nogil:
    """Fill in N h, and the distances of the observations themselves."""
    cdef Py_ssize_t i, q = ws.system.q
    for i in range(ws.K):
        memset(row(ws.right, i), 0, q * sizeof(double))
        add_multiple(row(ws.right, i), ws.n[i], row(ws.h, i), q)
        row(ws.right, i)[q] = ws.n[i]
    measure_pairs(ws)


cdef bint is_broken(Workspace ws) noexcept nogil:
    """Return whether the observations break a bound."""
    cdef Py_ssize_t e
    cdef int broken = 0
    for e in range(ws.pairs):
        broken |= ws.w[e] - ws.rho[e] > ws.rho[e] * WITHIN + ws.lost[e]
    return broken > 0


cdef void guess_multipliers(Workspace ws) noexcept nogil:
    """Guess multipliers from the distances of the observations.

    What would be right if all pairs were alike: by the precision with which the two know their
    difference.
    """
    cdef double excess = 0.0, ratio, a, b
    cdef Py_ssize_t e
    for e in range(ws.pairs):
        if ws.inverse[e] > 0.0:
            excess = max(excess, ws.w[e] - ws.rho[e])
    for e in range(ws.pairs):
        a, b = ws.n[ws.first[e]], ws.n[ws.second[e]]
        ratio = ws.w[e] * ws.inverse[e] - 1.0
        if ws.inverse[e] > 0.0 and ws.K > 2:
            ratio = max(ratio, min(0.01, excess * ws.inverse[e])) * 2.0 / ws.K
        ws.lam[e] = ws.best[e] = max(ratio, 0.0) * a * b / (a + b)
        ws.last[e] = 1.0


cdef void move(Workspace ws) noexcept nogil:
    """Let phi = (N + Laplacian(lam))^-1 N h, and measure the pairs."""
    cdef Py_ssize_t i, c, e = 0, q = ws.system.q
    cdef Row own
    if ws.coloured:  # coordinate by coordinate
        for i in range(ws.K):
            for c in range(q):
                row(ws.phi, i)[c] = ws.shares[c] * row(ws.right, i)[c]
            memcpy(row(ws.multipliers, i), ws.lam + e, i * sizeof(double))
            e += i
        solve_shares(ws.system, ws.n, ws.multipliers, ws.shares, q, ws.phi)
    else:
        for i in range(ws.K):
            own = row(ws.system.A, i)
            memcpy(own, row(ws.right, i), (q + 1) * sizeof(double))
            memcpy(own + q + 1, ws.lam + e, i * sizeof(double))
            e += i
        solve_system(ws.system, ws.phi)
    measure_pairs(ws)


cdef void measure_pairs(Workspace ws) noexcept nogil:
    """Fill in the distances of all pairs, how well they are known, and the worst ratio."""
    cdef Py_ssize_t i, c, j, e = 0
    cdef Row own, given
    cdef double total
    for i in range(ws.K):
        own, given, total = row(ws.phi, i), row(ws.h, i), 0.0
        for c in range(ws.q):
            row(ws.columns, c)[i] = own[c]
            total += fabs(own[c]) + fabs(own[c] - given[c])
        ws.size[i] = ROUNDING * total
        distances_to(ws.w + e, ws.columns.data, ws.columns.stride, own, ws.q, i)
        for j in range(i):
            ws.lost[e + j] = min(ROUNDING, ws.size[i] + ws.size[j])
        e += i
    for e in range(ws.pairs):
        ws.term[e] = (ws.w[e] - ws.lost[e]) * ws.inverse[e]
    ws.worst = largest(ws.term, ws.pairs)


cdef void approach(Workspace ws) noexcept nogil:
    """Go near the answer by multiplicative rounds, lam <- lam (w / rho)^2."""
    cdef size_t size = ws.pairs * sizeof(double)
    cdef Py_ssize_t e
    cdef double ratio, power
    for _ in range(ROUNDS):
        move(ws)
        if ws.worst <= READY:
            memcpy(ws.old_lam, ws.lam, size)
            memcpy(ws.old_w, ws.w, size)
            for e in range(ws.pairs):
                ws.lam[e] = 0.0 if ws.w[e] * ws.inverse[e] <= NEAR else ws.lam[e]
            move(ws)
            if ws.worst <= CARRY:
                return
            memcpy(ws.lam, ws.old_lam, size)
            memcpy(ws.w, ws.old_w, size)
        for e in range(ws.pairs):
            # Power 1 is monotone, and exact for a tight pair; power 2 is faster, but swings to
            # and fro on such a pair, and is given up there.
            ratio = max(ws.w[e] * ws.inverse[e], 0.1)
            power = ratio if (ratio - 1.0) * (ws.last[e] - 1.0) < 0.0 else ratio * ratio
            ws.lam[e] *= power
            ws.last[e] = ratio
    move(ws)


cdef bint iterate(Workspace ws, double tol, int limit) noexcept nogil:
    """Make Newton's steps; return False if the best multipliers are not the last ones."""
    cdef double best = INFINITY, highest = -INFINITY, cube = max(ws.K, <Py_ssize_t> 16), m
    cdef double left = max(
        ALLOWED * cube * cube * cube, min(ALLOWED_SMALL * cube * cube * cube, ENOUGH_WORK)
    )
    cdef int halvings = 0
    cdef bint done
    while True:
        evaluate(ws)
        if ws.relative_gap < best:
            best = ws.relative_gap
            memcpy(ws.best, ws.lam, ws.pairs * sizeof(double))
        if not ws.relative_gap < INFINITY:
            return False
        # Half the tolerance: the certificate is computed after a last rounding.
        done = ws.relative_gap <= 0.5 * tol
        if not done and ws.dual < highest * (1.0 - 1e-13) and halvings < HALVINGS:
            halvings += 1
            for e in range(ws.pairs):
                ws.lam[e] = 0.5 * (ws.lam[e] + ws.old_lam[e])
            move(ws)
            continue
        if done:
            return True
        highest, halvings = ws.dual, 0
        left -= fill_inverse(ws)
        choose_pairs(ws, ws.model)
        if ws.model.is_small():
            m = <double> ws.model.m
            left -= m * m * (m / 24.0 + (ws.q if ws.coloured else 3.0))
        if left < 0.0 or ws.steps >= limit:
            return False
        ws.steps += 1
        if not make_step(ws, ws.model):
            return False
        left -= ws.model.spent
        move(ws)
        settle(ws)


cdef double fill_inverse(Workspace ws) noexcept nogil:
    """Fill in M, of every coordinate with a covariance; return how many multiplications that is."""
    cdef Py_ssize_t c, i, K = ws.K
    cdef Laplacian s
    if not ws.coloured:
        invert(ws.system, ws.W)
        return <double> K * K * (K + ws.q)
    for c in range(ws.q):
        s = load_share(ws.system, ws.n, ws.multipliers, ws.shares[c])
        eliminate(s)
        invert(s, layer(ws, c))
        for i in range(K):
            multiply(row(layer(ws, c), i), 1.0 / ws.shares[c], K)
    return <double> K * K * K * ws.q


cdef inline Table layer(Workspace ws, Py_ssize_t c) noexcept nogil:
    """Return M of a coordinate, (K, K)."""
    return Table(row(ws.layers, c * ws.K), ws.layers.stride) if ws.coloured else ws.W


cdef void settle(Workspace ws) noexcept nogil:
    """Fit the multipliers of near points, lam <- lam w / rho, to the forces on them.

    The model takes the direction of v_e for fixed. Between near points it is not: that of a rod
    turns with the forces on its ends, long before these change the dual. Its length is then off
    by percents, and phi would be shrunk by them.
    """
    cdef bint off = False
    cdef double a, b, ratio
    cdef Py_ssize_t e
    for e in range(ws.pairs):
        a, b, ratio = ws.n[ws.first[e]], ws.n[ws.second[e]], ws.w[e] * ws.inverse[e]
        if ws.lam[e] * (a + b) > STIFF * a * b and fabs(ratio - 1.0) > 0.1 * ws.tol and ratio > 0.1:
            ws.lam[e] *= ratio
            off = True
    if off:
        move(ws)


cdef void evaluate(Workspace ws) noexcept nogil:
    """Compute the dual, and the relative gap of phi, shrunk until every pair fits."""
    cdef double gap, dual = 0.0, spread = 0.0, value = 0.0
    cdef double shrink = 1.0 / ws.worst if ws.worst > 1.0 + ws.within else 1.0
    cdef Row own, given
    cdef double moved, shrunk, square, share
    cdef Py_ssize_t i, c, e
    for i in range(ws.K):
        own, given = row(ws.phi, i), row(ws.h, i)
        moved, shrunk, square = 0.0, 0.0, 0.0
        for c in range(ws.q):
            share = ws.shares[c]
            moved += share * (own[c] - given[c]) * (own[c] - given[c])
            shrunk += share * (shrink * own[c] - given[c]) * (shrink * own[c] - given[c])
            square += share * own[c] * own[c]
        dual += 0.5 * ws.n[i] * moved
        value += 0.5 * ws.n[i] * shrunk
        spread += 0.5 * ws.n[i] * square
    for e in range(ws.pairs):
        ws.term[e] = ws.lam[e] * ws.w[e] * max(
            fabs(ws.rho[e] - shrink * ws.w[e]) - 0.5 * ws.lost[e], 0.0
        ) if ws.lam[e] > 0.0 else 0.0
    gap = add_up(ws.term, ws.pairs)
    for e in range(ws.pairs):  # the bound of a pair without a multiplier may be infinite
        ws.term[e] = 0.5 * ws.lam[e] * (ws.w[e] - ws.rho[e]) * (
            ws.w[e] + ws.rho[e]
        ) if ws.lam[e] > 0.0 else 0.0
    ws.dual = dual + add_up(ws.term, ws.pairs)
    ws.relative_gap = (gap + (1.0 - shrink) * (1.0 - shrink) * spread) / value


cdef void finish(Workspace ws) noexcept nogil:
    """Let W = M N, drawn towards the centroid with phi until every pair fits.

    With a covariance every coordinate has a W of its own, and none is returned.
    """
    cdef double shrink = 1.0, total = 0.0, mean
    cdef Py_ssize_t e, i, j, c
    if not ws.coloured:
        invert(ws.system, ws.W)
    for i in range(ws.K):
        total += ws.n[i]
    for e in range(ws.pairs):
        i, j = ws.first[e], ws.second[e]
        row(ws.multipliers, i)[j] = row(ws.multipliers, j)[i] = ws.best[e]
        ws.active += ws.best[e] > 0.0
        if ws.w[e] - ws.lost[e] > ws.rho[e] * (1.0 + ws.within):
            shrink = min(shrink, ws.rho[e] / (ws.w[e] - ws.lost[e]))
    for i in range(ws.K):
        for j in range(ws.K):
            row(ws.W, i)[j] = (shrink * row(ws.W, i)[j] + (1.0 - shrink) / total) * ws.n[j]
            if ws.coloured:
                row(ws.W, i)[j] = NAN
    if shrink < 1.0:
        for c in range(ws.q):
            mean = 0.0
            for i in range(ws.K):
                mean += ws.n[i] * row(ws.phi, i)[c] / total
            for i in range(ws.K):
                row(ws.phi, i)[c] = mean + shrink * (row(ws.phi, i)[c] - mean)
