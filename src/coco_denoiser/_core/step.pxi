# A step of a stream: measure the observation, admit it, let the model answer, commit.


def step(Window window, x, g, theta, double variance, double limit, limits, model, before):
    """Take an observation into a window and denoise it.

    Args:
        window: the vectors, with room for the observation, and the tables.
        x: (*shape), of float32 or float64, as all vectors.
        g: (*shape), its gradient.
        theta: (*shape), filled with the denoised gradient.
        variance: relative noise variance of the observation.
        limit: the largest entry that may enter.
        limits: the curvature bounds of this step.
        model: `compiled`, whether the core solves the window, by its `tol` and `max_iter`; if not,
            its `estimate` does.
        before: the estimate of the last step.

    Returns:
        None if the observation is refused, and nothing has changed. Otherwise the model's estimate;
        True if it was not asked.
    """
    cdef Memory given = Memory.__new__(Memory)
    cdef Slots at = take_vectors(given, window.points, window.residuals, x, g, theta)
    cdef double centre = limits.centre, radius = limits.radius
    check_room(window, at.rows)
    cdef Py_ssize_t K = window.count + (leaving_slot(window) < 0)
    cdef Workspace ws = None
    if K > 1 and model.compiled:
        ws = memory_for(window, K, model)
    cdef bint accepted
    cdef Row weights = NULL
    found = True
    with nogil:
        accepted = take(window, &at, centre, radius, limit, variance)
        if accepted and has_short_vectors(window, &at, K):  # which the problem is made of
            write_newest(window, &at, NULL, 0.0)
        if accepted and ws is not None:
            reduce_window(ws, window, &at, centre, radius)
            solve_window(ws, EITHER)
            weights = row(ws.W, window.newest)
        elif accepted and K > 1:
            with gil:
                found = model.estimate(window, limits, before)
                weights = given.read(found.weights, window.count)
        if accepted:
            write_newest(window, &at, weights, centre)
            settle_filter(window, centre, radius)
    return found if accepted else None


def workspace(Window window, limits, model) -> Workspace:
    """Return the problem of a window, in memory that its next step uses again."""
    cdef Memory given = Memory()
    cdef Slots at
    cdef Workspace ws = memory_for(window, window.count, model)
    first = None if window.points is None else window.points[0]
    if first is not None:
        at = take_vectors(given, window.points, window.residuals, first, first, None)
    reduce_window(ws, window, NULL if first is None else &at, limits.centre, limits.radius)
    return ws


cdef Workspace memory_for(Window window, Py_ssize_t K, model):
    """Return memory for a problem of K observations, and its settings."""
    cdef Workspace ws = window.work
    if K > window.room:
        raise ValueError(f"expected a window of {K} observations, got {window.room}")
    if ws is None or ws.K != K:
        ws = window.work = Workspace(K, K)
    ws.aim(model.tol, model.max_iter)
    return ws


cdef bint take(
    Window window, const Slots *at, double centre, double radius, double limit, double variance
) noexcept nogil:
    """Measure an observation and admit it, which may fold another; False if it is refused."""
    cdef Py_ssize_t used = window.count
    cdef Fold fold = fold_oldest(window, centre, radius)
    cdef Row sums = window.sums, merged = NULL
    cdef Slots stored = at[0]
    memset(sums, 0, (6 * used + 4) * sizeof(double))
    measure_slots(at, window.centre, limit, used, leaving_slot(window), sums)
    if sums[3 * used] > 0.0 or fold.reach > limit:
        return False
    if fold.weight > 0.0:
        merged = sums + 3 * used + 2
        stored.x, stored.g = slot_of(at, at.points, fold.new), slot_of(at, at.residuals, fold.new)
        merge_oldest(at, stored, &fold, window.centre)
        measure_slots(&stored, 0.0, INFINITY, used, fold.new, merged)
    admit_rows(window, &fold, sums, merged, variance, at, &stored)
    window.d = at.size
    return True


cdef inline void *slot_of(const Slots *at, void *vectors, Py_ssize_t slot) noexcept nogil:
    """Return where the vector in a slot begins."""
    return <char *> vectors + slot * at.size * (4 if at.kind == b"f" else 8)


cdef void merge_oldest(const Slots *at, Slots pair, const Fold *fold, double centre) noexcept nogil:
    """Merge the oldest slot into the next, which the pair observes; put the new one in its place."""
    cdef Entry entry = Entry(fold.new - fold.old, 0.0, 1, &fold.weight, fold.shift, True)
    pair.points = slot_of(at, at.points, fold.old)
    pair.residuals = slot_of(at, at.residuals, fold.old)
    commit_slot(&pair, &entry)
    entry = Entry(fold.old, centre, 0, NULL, 0.0, False)
    commit_slot(at, &entry)


cdef void write_newest(
    Window window, const Slots *at, const double *weights, double centre
) noexcept nogil:
    """Write the newest observation and its gradient, averaged if there are weights.

    That of a filter takes the place of the past, which takes part in the average.
    """
    cdef Py_ssize_t last = window.ring - 1
    cdef Entry entry = Entry(min(window.newest, last), window.centre, 0, NULL, 0.0, False)
    if weights != NULL and weights[window.newest] != 1.0:
        entry.count, entry.weights = min(window.count, window.ring), weights
        entry.shift, entry.merged = centre - window.centre, window.newest > last
    commit_slot(at, &entry)
