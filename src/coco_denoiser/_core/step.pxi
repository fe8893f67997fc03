# A step of a stream: measure the observation, admit it, let the model answer, commit. Two calls
# where the model is a function of Python's, which lies between them; one where the core answers.


def step(Window window, x, g, theta, double variance, double limit, limits, model):
    """Take an observation into a window and denoise it.

    Args:
        window: the vectors, with room for the observation, and the tables.
        x: (*shape), of float32 or float64, as all vectors.
        g: (*shape), its gradient.
        theta: (*shape), filled with the denoised gradient, or with the gradient.
        variance: relative noise variance of the observation.
        limit: the largest entry that may enter.
        limits: the curvature bounds of this step.
        model: `most`, up to which size Newton's method solves a window, `tol` and `within`.

    Returns:
        None if the observation is refused, and nothing has changed. Otherwise it is in the window,
        and True if its gradient is ready, False if a model must answer before `complete`.
    """
    cdef Arrays given = Arrays.__new__(Arrays)
    cdef Slots at = take_vectors(given, window.points, window.residuals, x, g, theta)
    cdef double centre = limits.centre, radius = limits.radius
    check_room(window, at.rows)
    cdef Py_ssize_t K = window.count + (leaving_slot(window) < 0)
    cdef Workspace ws = None
    cdef bint accepted, solved = K == 1
    if 1 < K <= model.most:
        ws = memory_for(window, K, limits, model)
    with nogil:
        accepted = take(window, &at, Limits(centre, radius, limit), variance)
        if accepted:
            if at.size < K and not is_filter(window):  # the problem is made of the vectors then
                write_newest(window, &at, NULL, 0.0)
            if ws is not None:
                reduce_window(ws, window, coordinates(window, &at, K), ws.shift, radius)
                solved = is_solved(ws)
            if solved:
                write_newest(window, &at, row(ws.W, window.newest) if K > 1 else NULL, centre)
                settle_filter(window, centre, radius)
    return solved if accepted else None


def complete(Window window, x, g, theta, weights, limits) -> None:
    """Write an observation that is admitted, and its gradient, averaged with weights (count,)."""
    cdef Arrays given = Arrays()
    cdef Slots at = take_vectors(given, window.points, window.residuals, x, g, theta)
    cdef double *w = given.read(weights, window.count)
    if not 0 <= window.newest < window.count <= at.rows + is_filter(window):
        raise IndexError(f"slot {window.newest} of {at.rows} is out of range")
    check_tables(window, window.count)
    write_newest(window, &at, w, limits.centre)
    settle_filter(window, limits.centre, limits.radius)


def workspace(Window window, limits, model) -> Workspace:
    """Return the problem of a window, in memory that its next step uses again."""
    cdef Arrays given = Arrays()
    cdef Slots at
    cdef Workspace ws = memory_for(window, window.count, limits, model)
    cdef Coordinates vectors = Coordinates(0, False, NULL, NULL)
    if window.points is not None and not is_filter(window):
        first = window.points[0]
        at = take_vectors(given, window.points, window.residuals, first, first, None)
        vectors = coordinates(window, &at, window.count)
    reduce_window(ws, window, vectors, ws.shift, ws.radius)
    return ws


cdef Workspace memory_for(Window window, Py_ssize_t K, limits, model):
    """Return memory for a problem of K observations, and its settings."""
    cdef Workspace ws = window.work
    if K > window.room:
        raise ValueError(f"expected a window of {K} observations, got {window.room}")
    if ws is None or ws.K != K:
        ws = window.work = Workspace(K, K)
    ws.tol, ws.within = model.tol, model.within
    ws.shift, ws.radius = limits.centre - window.centre, limits.radius
    return ws


cdef struct Limits:
    double centre
    double radius
    double largest  # entry that may enter


cdef bint take(
    Window window, const Slots *at, Limits limits, double variance
) noexcept nogil:
    """Measure an observation and admit it, which may fold another; False if it is refused."""
    cdef Py_ssize_t used = window.count
    cdef Fold fold = fold_oldest(window, limits.centre, limits.radius)
    cdef double *sums = window.sums
    cdef double *merged = sums + 3 * used + 2
    cdef Py_ssize_t k
    cdef double *x
    cdef double *h
    memset(sums, 0, (6 * used + 4) * sizeof(double))
    measure_slots(at, window.centre, limits.largest, used, leaving_slot(window), sums)
    if sums[3 * used] > 0.0 or fold.reach > limits.largest:
        return False
    if fold.weight > 0.0:
        merge_slot(at, &fold, window.centre, used, merged)
    admit_row(window, sums, used, variance)
    if fold.weight > 0.0:
        insert_row(window, merged, used, fold.new)
        window.variance[fold.new] = fold.variance
    if at.kind == b"d":  # squares of float32 cannot underflow
        measure_close(
            window, at, <double *> at.x, <double *> at.g, window.centre, used, window.newest
        )
        if fold.weight > 0.0:
            k = fold.new * at.size
            x, h = <double *> at.points + k, <double *> at.residuals + k
            measure_close(window, at, x, h, 0.0, used, fold.new)
    window.d = at.size
    return True


cdef void measure_close(
    Window window, const Slots *at, const double *x, const double *g, double centre,
    Py_ssize_t used, Py_ssize_t slot
) noexcept nogil:
    """Measure again, for a row of the tables, what is so close that squares have lost digits."""
    cdef Py_ssize_t room = window.room, i, t
    cdef double *row = window.entries + slot * room
    cdef double found[3]
    for i in range(used):
        if i != slot and min(row[i], row[2 * room * room + i]) < CLOSE:
            measure_pair(at, x, g, centre, i, found)
            for t in range(3):
                row[t * room * room + i] = found[t]
                window.entries[(t * room + i) * room + slot] = found[t]


cdef void measure_pair(
    const Slots *at, const double *x, const double *g, double centre, Py_ssize_t slot, double *found
) noexcept nogil:
    """Fill in two distances and the cosine between them, from differences scaled to size 1."""
    cdef const double *p = <const double *> at.points + slot * at.size
    cdef const double *r = <const double *> at.residuals + slot * at.size
    cdef double widest = 0.0, largest = 0.0, xx = 0.0, xh = 0.0, hh = 0.0, dx, dh
    cdef Py_ssize_t j
    for j in range(at.size):
        widest = max(widest, fabs(p[j] - x[j]))
        largest = max(largest, fabs(r[j] - (g[j] - centre * x[j])))
    for j in range(at.size):
        dx = (p[j] - x[j]) / widest if widest > 0.0 else 0.0
        dh = (r[j] - (g[j] - centre * x[j])) / largest if largest > 0.0 else 0.0
        xx, xh, hh = xx + dx * dx, xh + dx * dh, hh + dh * dh
    found[0], found[2] = widest * sqrt(xx), largest * sqrt(hh)
    found[1] = min(1.0, max(-1.0, xh / sqrt(xx * hh))) if xx * hh > 0.0 else 0.0


cdef void merge_slot(
    const Slots *at, const Fold *fold, double centre, Py_ssize_t used, double *sums
) noexcept nogil:
    """Merge a slot into another, put the observation in its place, and measure the merged one."""
    cdef Py_ssize_t width = at.size * (4 if at.kind == b"f" else 8)
    cdef Entry entry = Entry(fold.new - fold.old, 0.0, 1, &fold.weight, fold.shift, True)
    cdef Slots pair = at[0]
    pair.x = <char *> at.points + fold.new * width
    pair.g = <char *> at.residuals + fold.new * width
    pair.points = <char *> at.points + fold.old * width
    pair.residuals = <char *> at.residuals + fold.old * width
    commit_slot(&pair, &entry)
    entry = Entry(fold.old, centre, 0, NULL, 0.0, False)
    commit_slot(at, &entry)
    pair.points, pair.residuals = at.points, at.residuals
    measure_slots(&pair, 0.0, INFINITY, used, fold.new, sums)


cdef void write_newest(
    Window window, const Slots *at, const double *weights, double centre
) noexcept nogil:
    """Write the newest observation and its gradient, averaged if there are weights."""
    cdef bint merged = is_filter(window) and window.newest == 1
    cdef Entry entry = Entry(0 if merged else window.newest, window.centre, 0, NULL, 0.0, False)
    if weights != NULL and weights[window.newest] != 1.0:
        entry.count, entry.weights = 1 if merged else window.count, weights
        entry.shift, entry.merged = centre - window.centre, merged
    commit_slot(at, &entry)


cdef Coordinates coordinates(Window window, const Slots *at, Py_ssize_t K) noexcept nogil:
    """Return the vectors of a window, if these are shorter than what the tables tell of them."""
    if at.size >= K or is_filter(window):
        return Coordinates(0, False, NULL, NULL)
    return Coordinates(at.size, at.kind == b"f", at.points, at.residuals)


cdef bint is_solved(Workspace ws) noexcept nogil:
    """Solve a problem by Newton's method; return whether the answer is good enough."""
    return solve_window(ws, -1, EITHER)
