# A step of a stream in one call: measure the observation, admit it, solve the window, commit.


cdef struct Observation:
    # What is observed, of float32 or float64, and where its denoised gradient goes.
    char kind
    void *points
    void *residuals
    void *x
    void *g
    void *theta


def step(Workspace ws, Window window, vectors, observation, theta, double variance, double limit):
    """Take an observation into a window and denoise it.

    Args:
        ws: room for as many observations as the window holds with this one, and its settings.
        window: the tables.
        vectors: points and residuals of the window, (room, d), of float32 or float64, as all
            that follow.
        observation: a point and its gradient, (d,).
        theta: (d,), filled with the denoised gradient, or with the gradient.
        variance: relative noise variance of the observation.
        limit: the largest entry that may enter.

    Returns:
        None if the observation is refused, and nothing has changed. Otherwise it is in the window,
        and True if its gradient is denoised, False if another method must solve the window.
    """
    cdef Arrays given = Arrays.__new__(Arrays)
    cdef Observation new
    cdef Plan plan
    points, residuals = vectors
    x, g = observation
    rows, plan.size = points.shape
    new.kind = kind_of(points)
    new.points = given.take(points, rows, plan.size, new.kind, True)
    new.residuals = given.take(residuals, rows, plan.size, new.kind, True)
    new.x = given.take(x, plan.size, 1, new.kind, False)
    new.g = given.take(g, plan.size, 1, new.kind, False)
    new.theta = given.take(theta, plan.size, 1, new.kind, True)
    cdef Py_ssize_t slot = window.next, used = window.count
    if not (0 <= slot <= used <= window.room and slot < min(window.room, <Py_ssize_t> rows)):
        raise IndexError(f"slot {slot} of {window.room} is out of range")
    if ws.K != max(used, slot + 1) or ws.most < ws.K:
        raise ValueError(f"expected room for {max(used, slot + 1)} observations, got {ws.K}")
    plan.centre, plan.used, plan.successor = window.centre, used, -1
    plan.oldest, plan.weight, plan.shift = slot if slot < used else -1, 0.0, 0.0
    cdef bint accepted, solved = False
    with nogil:
        accepted = admit(ws, window, &new, &plan, limit)
        if accepted:
            window.variance[slot] = variance
            solved = solve_and_commit(ws, window, &new, &plan)
    return solved if accepted else None


cdef bint admit(
    Workspace ws, Window window, Observation *new, Plan *plan, double limit
) noexcept nogil:
    """Measure an observation against the window, and insert its row; False if it is refused."""
    cdef double *sums = ws.sums
    cdef Py_ssize_t slot = window.next
    memset(sums, 0, (3 * plan.used + 2) * sizeof(double))
    if new.kind == b"f":
        sum_products[float](
            <float *> new.points, <float *> new.residuals, <float *> new.x, <float *> new.g,
            plan, limit, sums,
        )
    else:
        sum_products[double](
            <double *> new.points, <double *> new.residuals, <double *> new.x, <double *> new.g,
            plan, limit, sums,
        )
    if sums[3 * plan.used] > 0.0:
        return False
    insert_row(window, sums, plan.used, slot)
    window.newest, window.d = slot, plan.size
    window.count = max(window.count, slot + 1)
    window.next = slot + 1 if slot + 1 != window.ring else 0
    return True


cdef bint solve_and_commit(
    Workspace ws, Window window, Observation *new, Plan *plan
) noexcept nogil:
    """Solve the window of an observation that is admitted, and write it and its gradient."""
    cdef Py_ssize_t K = ws.K, slot = window.newest
    cdef Entry entry = Entry(plan.size, slot, plan.centre, 0, NULL, ws.shift)
    cdef Coordinates vectors = Coordinates(plan.size, new.kind == b"f", new.points, new.residuals)
    if plan.size < K:  # the problem is made of the vectors then
        store(new, &entry)
    reduce_window(ws, window, vectors, ws.shift, ws.radius)
    cdef bint solved = solve_window(ws, STEPS)
    if solved:
        certify_answer(ws)
        solved = ws.gap <= ws.tol and ws.violation <= ws.tol
    if solved and row(ws.W, slot)[slot] != 1.0:
        entry.count, entry.weights = K, row(ws.W, slot)
    store(new, &entry)
    return solved


cdef void store(Observation *new, Entry *entry) noexcept nogil:
    """Write an observation into its slot, and its gradient, denoised if there are weights."""
    if new.kind == b"f":
        store_and_average[float](
            <float *> new.points, <float *> new.residuals, <float *> new.x, <float *> new.g,
            entry, <float *> new.theta,
        )
    else:
        store_and_average[double](
            <double *> new.points, <double *> new.residuals, <double *> new.x, <double *> new.g,
            entry, <double *> new.theta,
        )
