# Points that coincide: for the others they are one, with the mean of their residuals and the sum of
# their precisions. Infinite multipliers hold them together.


cdef Py_ssize_t solve_groups(Workspace ws, double near, int max_iter) noexcept nogil:
    """Solve a problem as if points up to a bound of `near` coincided; return how many are left."""
    cdef Py_ssize_t count = label_groups(ws.bounds, ws.K, near, ws.label)
    if count == ws.K:
        solve_distinct(ws, near, max_iter)
        return count
    with gil:
        merge_groups(ws, count)
    solve_distinct(ws.part, near, max_iter)
    expand_groups(ws, ws.part)
    return count


cdef void solve_distinct(Workspace ws, double near, int max_iter) noexcept nogil:
    """Solve a problem whose bounds are all above `near`."""
    if ws.answered == LINE:
        solve_line(ws, ws.line)
    elif ws.answered == BARRIER:
        solve_barrier(ws, near, max_iter)
    else:
        solve_newton(ws, max_iter)


cdef Py_ssize_t label_groups(
    Table bounds, Py_ssize_t K, double limit, Indices label
) noexcept nogil:
    """Label the points by groups no further apart than a limit; return how many there are."""
    cdef Py_ssize_t i, j, k, count = 0, old
    for i in range(K):
        label[i] = i
        for j in range(i):
            if row(bounds, i)[j] <= limit and label[j] != label[i]:
                old = label[i]
                for k in range(i + 1):
                    if label[k] == old:
                        label[k] = label[j]
    for i in range(K):  # numbered in the order of first members, below zero for now
        old = label[i]
        if old >= 0:
            count += 1
            for k in range(i, K):
                if label[k] == old:
                    label[k] = -count
    for i in range(K):
        label[i] = -label[i] - 1
    return count


cdef Workspace merge_groups(Workspace ws, Py_ssize_t count):
    """Return the problem in which every group is one point."""
    cdef Py_ssize_t i, j, a, b, c
    if ws.part is None or ws.part.K != count or ws.part.most < ws.most:
        ws.part = Workspace(count, ws.most)
    cdef Workspace part = ws.part
    part.tol, part.within, part.answered = ws.tol, ws.within, ws.answered
    part.coloured = ws.coloured
    part.make_layers()
    set_coordinates(part, ws.q)
    memcpy(part.shares, ws.shares, ws.system.q * sizeof(double))
    for a in range(part.K):
        part.n[a] = 0.0
        memset(row(part.h, a), 0, ws.system.q * sizeof(double))
        for b in range(part.K):
            row(part.bounds, a)[b] = 0.0 if a == b else INFINITY
    for i in range(ws.K):
        a = ws.label[i]
        part.n[a] += ws.n[i]
        add_multiple(row(part.h, a), ws.n[i], row(ws.h, i), ws.system.q)
        for j in range(ws.K):
            b = ws.label[j]
            if a != b:
                row(part.bounds, a)[b] = min(row(part.bounds, a)[b], row(ws.bounds, i)[j])
    for a in range(part.K):
        for c in range(ws.q):
            row(part.h, a)[c] /= part.n[a]
    return part


cdef void expand_groups(Workspace ws, Workspace part) noexcept nogil:
    """Fill in the answer from that of the groups."""
    cdef Py_ssize_t i, j, a, b
    for i in range(ws.K):
        a = ws.label[i]
        memcpy(row(ws.phi, i), row(part.phi, a), ws.system.q * sizeof(double))
        memset(row(ws.multipliers, i), 0, ws.K * sizeof(double))
        for j in range(ws.K):
            b = ws.label[j]
            row(ws.W, i)[j] = row(part.W, a)[b] * (ws.n[j] / part.n[b])
            if a == b and i != j:
                row(ws.multipliers, i)[j] = INFINITY
    ws.steps, ws.active = part.steps, 0
    for a in range(part.K):
        for b in range(a):
            if row(part.multipliers, a)[b] > 0.0:
                hold_groups(ws, a, b, row(part.multipliers, a)[b])
    for i in range(ws.K):
        for j in range(i):
            ws.active += row(ws.multipliers, i)[j] > 0.0


cdef void hold_groups(Workspace ws, Py_ssize_t a, Py_ssize_t b, double lam) noexcept nogil:
    """Let what pulls two groups together act on their members with the smallest bound."""
    cdef double least = INFINITY
    cdef Py_ssize_t i, j, mine = -1, other = -1
    for i in range(ws.K):
        for j in range(ws.K):
            if ws.label[i] == a and ws.label[j] == b and row(ws.bounds, i)[j] < least:
                least, mine, other = row(ws.bounds, i)[j], i, j
    row(ws.multipliers, mine)[other] = row(ws.multipliers, other)[mine] = lam
