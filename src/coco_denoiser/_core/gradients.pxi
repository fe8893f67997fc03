# The minimum of the model of newton_model.pxi where its matrix is too large to be stored.
#
# Once its diagonal is 1, the system over the pairs, sum_c (b_e' M_c b_f) v_ec v_fc, is well
# conditioned, and to apply it takes one product with M, K by K. Conjugate gradients go on where
# they were when pairs change sides.

cdef enum:
    PRODUCTS = 400  # that a step may take

cdef extern from *:
    """
    #define SUFFICIENT 1e-3 /* how far conjugate gradients go, relative to where they start */
    #define PAIR 16.0 /* multiplications in whose time a product spreads and collects one pair */
    """
    double SUFFICIENT, PAIR


cdef void minimise_by_gradients(Workspace ws, Model model) noexcept nogil:
    """Find new multipliers by the model of make_step, without a ridge."""
    cdef Py_ssize_t k, left = PRODUCTS, wrong, round
    cdef double enough = load_gradients(ws, model)
    for round in range(PIVOTS):
        for k in range(model.m):
            model.slope[k] = 0.0 if model.free[k] else -model.y[k]
            model.y[k] += model.slope[k]
        apply_system(ws, model)
        add_multiple(model.target, -1.0, model.factors, model.m)
        left = conjugate(ws, model, enough, left)
        wrong = 0
        for k in range(model.m):
            if model.y[k] < 0.0 if model.free[k] else model.target[k] > 0.0:
                model.free[k] = not model.free[k]
                wrong += 1
        if wrong == 0 or left <= 0:
            break
    for k in range(model.m):
        ws.lam[model.listed[k]] = max(model.y[k], 0.0)


cdef double load_gradients(Workspace ws, Model model) noexcept nogil:
    """Set where conjugate gradients start; return the square at which they end."""
    cdef Py_ssize_t k, c, e, i, j
    cdef double enough = 0.0
    cdef Row v
    cdef Table M
    for k in range(model.m):
        e, i, j, v = model.listed[k], model.one[k], model.two[k], row(model.vectors, k)
        model.diagonal[k] = 0.0
        for c in range(ws.q):
            v[c], M = row(ws.phi, i)[c] - row(ws.phi, j)[c], layer(ws, c)
            model.diagonal[k] += v[c] * v[c] * (row(M, i)[i] + row(M, j)[j] - 2.0 * row(M, i)[j])
        model.y[k], model.target[k] = ws.lam[e], ws.w[e] * ws.w[e] * (ws.w[e] * ws.inverse[e] - 1.0)
        model.free[k] = model.y[k] + 2.0 * model.target[k] / model.diagonal[k] > 0.0
        enough += model.target[k] * model.target[k] / model.diagonal[k]
    return SUFFICIENT * SUFFICIENT * enough


cdef Py_ssize_t conjugate(Workspace ws, Model model, double enough, Py_ssize_t left) noexcept nogil:
    """Let y and the rest of the target go on by conjugate gradients over the pairs that are free.

    Return how many products are left: none if they did not suffice.
    """
    cdef Py_ssize_t k, m = model.m
    cdef double size = 0.0, before, bend, length
    memset(model.slope, 0, m * sizeof(double))
    while True:
        before, size = size, 0.0
        for k in range(m):
            if model.free[k]:
                size += model.target[k] * model.target[k] / model.diagonal[k]
        if not size > enough:
            return left
        for k in range(m):
            if model.free[k]:
                model.slope[k] *= size / before if before > 0.0 else 0.0
                model.slope[k] += model.target[k] / model.diagonal[k]
        apply_system(ws, model)
        bend = dot(model.slope, model.factors, m)
        if left <= 0 or not bend > 0.0:  # singular: the certificate tells what that is worth
            return 0
        length = size / bend
        add_multiple(model.y, length, model.slope, m)
        add_multiple(model.target, -length, model.factors, m)
        left -= 1


cdef void apply_system(Workspace ws, Model model) noexcept nogil:
    """Let factors be the system times slope: forces on the points, their moves, those of pairs."""
    cdef Py_ssize_t k, c, i, K = ws.K, q = ws.system.q
    cdef Row v, a, b
    model.spent += <double> K * K * ws.q + PAIR * model.m
    for i in range(K):
        memset(row(model.forces, i), 0, q * sizeof(double))
        memset(row(model.moves, i), 0, q * sizeof(double))
    for k in range(model.m):
        if model.slope[k] != 0.0:
            v = row(model.vectors, k)
            add_multiple(row(model.forces, model.one[k]), model.slope[k], v, q)
            add_multiple(row(model.forces, model.two[k]), -model.slope[k], v, q)
    if ws.coloured:
        for c in range(ws.q):
            for i in range(K):
                ws.size[i] = row(model.forces, i)[c]
            for i in range(K):
                row(model.moves, i)[c] = dot(row(layer(ws, c), i), ws.size, K)
    else:
        for i in range(K):
            combine(
                row(model.moves, i), row(ws.W, i), model.forces.data, model.forces.stride, K, q
            )
    for k in range(model.m):
        v, a, b = row(model.vectors, k), row(model.moves, model.one[k]), row(model.moves, model.two[k])
        model.factors[k] = 0.0
        for c in range(ws.q):
            model.factors[k] += v[c] * (a[c] - b[c])
