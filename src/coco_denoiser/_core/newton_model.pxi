# The quadratic model of a step of Newton's method (newton.pxi), and its minimum over y >= 0. If it is
# large, gradients.pxi finds the minimum.


cdef void choose_pairs(Workspace ws, Model model) noexcept nogil:
    """List the pairs that take part in a step: those that pull, and those that should."""
    cdef Py_ssize_t m = 0, e
    memcpy(ws.old_lam, ws.lam, ws.pairs * sizeof(double))
    for e in range(ws.pairs):
        if ws.lam[e] > 0.0 or ws.w[e] * ws.inverse[e] > 1.0:
            model.listed[m], model.one[m], model.two[m] = e, ws.first[e], ws.second[e]
            m += 1
    model.m = m


cdef bint make_step(Workspace ws, Model model) noexcept nogil:
    """Find new multipliers by a quadratic model; return False if it cannot be solved."""
    cdef double ridge = 1e-12
    cdef Py_ssize_t count, k
    model.spent = 0.0
    if not model.is_small():
        if model.held < model.m:
            with gil:
                model.make_vectors(model.m)
        minimise_by_gradients(ws, model)
        return True
    if model.room < model.m:
        with gil:
            model.make_room(model.m)
    if model.m > CROWDED * (ws.K - 1) * ws.q:
        ridge = min(RIDGE, ws.relative_gap)
    for k in range(ws.q):
        take_differences(row(model.V, k), row(ws.columns, k), model.one, model.two, model.m)
    if ws.coloured:
        add_products(ws, model)
    else:
        fill_products(ws, model)
    fill_target(ws, model, ridge)
    count = minimise_model(model)
    if count < 0:
        return False
    for k in range(model.m):
        ws.lam[model.listed[k]] = 0.0
    for k in range(count):
        ws.lam[model.listed[model.at[k]]] = max(model.y[k], 0.0)
    return True


cdef inline void take_differences(
    Row out, Row x, Indices one, Indices two, Py_ssize_t m
) noexcept nogil:
    """Let out be the differences of pairs of entries."""
    for k in range(m):
        out[k] = x[one[k]] - x[two[k]]


cdef void fill_products(Workspace ws, Model model) noexcept nogil:
    """Fill in H = (b_e' M b_f)(v_e . v_f).

    Both factors are differences of rows, of X = M B and Y = phi v', (K, m), so that an entry costs
    three operations instead of q.
    """
    cdef Py_ssize_t i, k, m = model.m
    for i in range(ws.K):
        take_differences(row(model.X, i), row(ws.W, i), model.one, model.two, m)
        memset(row(model.Y, i), 0, m * sizeof(double))
        combine(row(model.Y, i), row(ws.phi, i), model.V.data, model.V.stride, ws.q, m)
    for k in range(m):
        multiply_differences(
            row(model.H, k), row(model.X, model.one[k]), row(model.X, model.two[k]),
            row(model.Y, model.one[k]), row(model.Y, model.two[k]), m,
        )


cdef void add_products(Workspace ws, Model model) noexcept nogil:
    """Fill in H with a covariance, coordinate by coordinate."""
    cdef Py_ssize_t i, k, c, m = model.m
    cdef Row nothing = row(model.Y, 0)
    memset(nothing, 0, m * sizeof(double))
    for k in range(m):
        memset(row(model.H, k), 0, m * sizeof(double))
    for c in range(ws.q):
        for i in range(ws.K):
            take_differences(row(model.X, i), row(layer(ws, c), i), model.one, model.two, m)
        for k in range(m):
            multiply_differences(
                model.factors, row(model.X, model.one[k]), row(model.X, model.two[k]),
                row(model.V, c), nothing, m,
            )
            add_multiple(row(model.H, k), row(model.V, c)[k], model.factors, m)


cdef void fill_target(Workspace ws, Model model, double ridge) noexcept nogil:
    """Fill in the target H lam + w^2 (w / rho - 1), with a ridge on H.

    The ridge, relative to the diagonal, grows with what a difference of rows has lost.
    """
    cdef Py_ssize_t m = model.m, k, e
    cdef Row own
    cdef double rest, lam
    memset(model.target, 0, m * sizeof(double))
    for k in range(m):
        e, own = model.listed[k], row(model.H, k)
        own[k] *= 1.0 + ridge + 1e-15 * ws.inverse[e]
        lam, rest = ws.lam[e], ws.w[e] * ws.w[e] * (ws.w[e] * ws.inverse[e] - 1.0)
        add_multiple(model.target, lam, own, m)
        model.target[k] += rest
        # At first as if there were no others, and twice as far; then as before.
        model.free[k] = lam + 2.0 * rest / own[k] > 0.0 if ws.steps == 1 else lam > 0.0


cdef Py_ssize_t minimise_model(Model model) noexcept nogil:
    """Find the y >= 0 that minimises 1/2 <y, H y> - <y, target>; return how many are free.

    All entries whose sign is wrong change sides at once, a few times at most. The answer is -1 if
    H is not positive definite.
    """
    cdef Py_ssize_t count = 0, k
    for _ in range(PIVOTS):
        count = 0
        for k in range(model.m):
            if model.free[k]:
                model.at[count] = k
                count += 1
        if not factorise(model, count):
            return -1
        if change_sides(model, count) == 0:
            break
    return count


cdef bint factorise(Model model, Py_ssize_t count) noexcept nogil:
    """Factor H, R' D^-1 R, beside the target, from the last row on; False if D is not positive.

    Row i of R holds the target's entry, i entries of the factor, and the inverse of D.
    """
    cdef Py_ssize_t i, j, k
    cdef Row own, given
    for i in range(count - 1, -1, -1):
        own, given = row(model.R, i), row(model.H, model.at[i])
        own[0] = model.target[model.at[i]]
        for j in range(i + 1):
            own[j + 1] = given[model.at[j]]
        for k in range(i + 1, count):
            given = row(model.R, k)
            model.factors[k] = -given[i + 1] * given[k + 1]
        if i + 1 < count:
            combine(
                own, model.factors + i + 1, row(model.R, i + 1), model.R.stride,
                count - i - 1, i + 2,
            )
        if not own[i + 1] > 0.0:
            return False
        own[i + 1] = 1.0 / own[i + 1]
    return True


cdef Py_ssize_t change_sides(Model model, Py_ssize_t count) noexcept nogil:
    """Find y by substitution, and let entries whose sign is wrong change sides; count these."""
    cdef Py_ssize_t i, k, wrong = 0
    cdef Row own
    memcpy(model.slope, model.target, model.m * sizeof(double))
    for i in range(count):
        own = row(model.R, i)
        model.y[i] = (own[0] - dot(own + 1, model.y, i)) * own[i + 1]
        add_multiple(model.slope, -model.y[i], row(model.H, model.at[i]), model.m)
    for i in range(count):
        model.slope[model.at[i]] = -model.y[i]
    for k in range(model.m):
        if model.slope[k] > 0.0:
            model.free[k] = not model.free[k]
            wrong += 1
    return wrong
