# The tables of a window: of every two observations, how far apart their points are and their
# residuals h = g - c0 x, and the cosine between the two differences. One row is inserted at a time;
# for any other centre they reduce to a problem.


cdef struct Coordinates:
    Py_ssize_t d
    bint narrow  # float32
    void *points
    void *residuals


cdef inline double entry(void *table, bint narrow, Py_ssize_t k) noexcept nogil:
    """Return a number of either precision."""
    return (<float *> table)[k] if narrow else (<double *> table)[k]


cdef class Window:
    """Observations in slots that are reused in a ring, and tables of them.

    Args:
        slots: how many observations are stored; None stores all of them.
        folds: whether the one that leaves is merged into the next. With one slot that is the new
            one: a recursive filter, whose tables have two observations during a step.

    Attributes:
        slots: how many observations are stored; None stores all of them.
        folds: whether the one that leaves is merged into the next.
        points: (rows, *shape), or None if the vectors are elsewhere.
        residuals: (rows, *shape), h = g - c0 x.
        tables: (3, room, room): distances between points, cosines, distances between residuals.
        all_variances: (room,), relative noise variances.
        count: how many slots are in use, always the first ones.
        members: how many observations the last answer was made of.
        next: the slot that the next observation takes: the oldest one's, if all are in use.
        newest: the slot of the newest observation; in a filter its place among the members.
        d: the number of coordinates.
        centre: c0 of the residuals.
    """

    cdef readonly object slots, tables, all_variances
    cdef object scratch
    cdef readonly bint folds
    cdef public object points, residuals
    cdef public Py_ssize_t count, members, next, newest, d
    cdef public double centre
    cdef Py_ssize_t room, ring  # where the ring ends; 0 if it does not
    cdef double *entries
    cdef double *variance
    cdef double *sums  # of a step, and of what it merges
    cdef readonly Workspace work  # for the problem of a step

    def __init__(self, slots, folds=False):
        self.slots, self.ring, self.folds = slots, slots or 0, folds

    def hold(self, tables, variances) -> None:
        """Keep the tables of the window in these arrays from now on."""
        cdef Arrays given = Arrays()
        room = len(variances)
        self.entries = given.write(tables, 3 * room, room)
        self.variance = given.write(variances, room)
        self.scratch = empty(6 * room + 4)
        self.sums = given.write(self.scratch, 6 * room + 4)
        self.tables, self.all_variances, self.room = tables, variances, room

    def distances(self, double centre):
        """Return the distances ||dg - centre dx||, (members, members)."""
        cdef Arrays given = Arrays()
        cdef Py_ssize_t K = self.members, size = self.room * self.room, i, j, k
        check_tables(self, K)
        table = empty((K, K))
        cdef double *out = given.write(table, K, K)
        for i in range(K):
            for j in range(K):
                k = i * self.room + j
                out[i * K + j] = recentred(
                    self.entries[k], self.entries[size + k], self.entries[2 * size + k],
                    centre - self.centre,
                )
        return table

    @property
    def leaving(self) -> int:
        """The slot whose observation the next one replaces; -1 for none."""
        return leaving_slot(self)

    def fold(self, limits):
        """Return how the observation that leaves is merged into the next, which changes nothing.

        Returns:
            The two slots, the weight of the first in the second, by how much the centre of the
            bounds differs from that of the residuals, and the largest entry of what that adds;
            None if it is dropped.
        """
        check_tables(self, self.count)
        cdef Fold found = fold_oldest(self, limits.centre, limits.radius)
        if found.weight == 0.0:
            return None
        return found.old, found.new, found.weight, found.shift, found.reach

    def admit(self, sums, double variance, limits, merged) -> None:
        """Take an observation into the tables.

        Args:
            sums: (3 count + 2,), what `measure` adds up; overwritten.
            variance: relative noise variance of the observation.
            limits: the curvature bounds.
            merged: what `measure` adds up of the observation that another was merged into, the new
                one being in its slot; None if none was.
        """
        cdef Arrays given = Arrays()
        check_room(self, self.room)
        cdef Fold fold = fold_oldest(self, limits.centre, limits.radius)
        cdef double *row = given.write(sums, 3 * self.count + 2)
        admit_row(self, row, self.count, variance)
        if merged is not None:
            insert_row(self, given.write(merged, 3 * self.count + 2), self.count, fold.new)
            self.variance[fold.new] = fold.variance

    def settle(self, limits) -> None:
        """Let the observation of a filter, which is written, stand for what was before it."""
        check_tables(self, self.count)
        settle_filter(self, limits.centre, limits.radius)


cdef struct Fold:
    # How one observation is merged into another, and the variance of the result.
    Py_ssize_t old
    Py_ssize_t new
    double weight  # 0 if it is dropped
    double variance
    double shift
    double reach


cdef int check_room(Window window, Py_ssize_t rows) except -1:
    """Raise IndexError if there is no room for the next observation."""
    cdef Py_ssize_t slot = window.next, used = window.count
    if not (0 <= slot <= used <= rows and slot < rows and used < window.room + (slot < used)):
        raise IndexError(f"slot {slot} of {rows} is out of range")
    if is_filter(window) and window.room < 2:
        raise IndexError("a filter needs tables of two observations")
    return 0


cdef int check_tables(Window window, Py_ssize_t used) except -1:
    """Raise IndexError if the tables do not hold so many observations."""
    if not 0 <= used <= window.room:
        raise IndexError(f"{used} observations do not fit in tables of {window.room}")
    return 0


cdef inline bint is_filter(Window window) noexcept nogil:
    """Return whether one slot stands for everything."""
    return window.folds and window.ring == 1


cdef Py_ssize_t leaving_slot(Window window) noexcept nogil:
    """Return the slot whose observation the next one replaces; -1 for none."""
    return window.next if window.next < window.count and not is_filter(window) else -1


cdef Fold fold_oldest(Window window, double centre, double radius) noexcept nogil:
    """Return how the observation that leaves is merged into the next; not at all in a filter."""
    cdef Py_ssize_t old = leaving_slot(window)
    cdef Fold fold = Fold(-1, -1, 0.0, 1.0, 0.0, 0.0)
    if window.folds and old >= 0:
        fold = fold_pair(window, old, (old + 1) % window.count, centre, radius)
    return fold


cdef Fold fold_pair(
    Window window, Py_ssize_t old, Py_ssize_t new, double centre, double radius
) noexcept nogil:
    """Return how one observation is merged into another.

    The second half of their two-point problem, with the variance that fixed weights would give it.
    """
    cdef Py_ssize_t k = old * window.room + new, size = window.room * window.room
    cdef double shift = centre - window.centre, dx = window.entries[k], rho = radius * dx
    cdef double apart = recentred(dx, window.entries[size + k], window.entries[2 * size + k], shift)
    cdef double older = window.variance[old], newer = window.variance[new], w = 0.0, variance
    if not rho > 0.0:  # at coinciding points, even equal gradients count as two observations
        w = newer / (older + newer)
    elif apart > rho:
        w = (1.0 - rho / apart) * (newer / (older + newer))
    variance = (1.0 - w) * (1.0 - w) * newer + w * w * older
    return Fold(old, new, w, variance, shift, w * fabs(shift) * dx)


cdef void admit_row(
    Window window, double *sums, Py_ssize_t used, double variance
) noexcept nogil:
    """Take an observation into the next slot; that of a filter comes after the past."""
    cdef Py_ssize_t slot = used if is_filter(window) else window.next
    insert_row(window, sums, used, slot)
    window.variance[slot], window.newest = variance, slot
    window.count = window.members = max(used, slot + 1)
    if not is_filter(window):
        window.next = slot + 1 if slot + 1 != window.ring else 0


cdef void settle_filter(Window window, double centre, double radius) noexcept nogil:
    """Let the newest observation of a filter take the place of both."""
    if is_filter(window) and window.count == 2:
        window.variance[0] = fold_pair(window, 0, 1, centre, radius).variance
        window.count = 1


cdef void insert_row(
    Window window, double *sums, Py_ssize_t count, Py_ssize_t slot
) noexcept nogil:
    """Turn sums of squares and products, to the slots in use, into a row of the tables."""
    cdef Py_ssize_t i, k, room = window.room
    cdef double x, h, cosine
    for i in range(count):
        x, h = sqrt(sums[i]), sqrt(sums[2 * count + i])
        cosine = sums[count + i] / (x * h) if x * h > 0.0 else 0.0
        sums[i], sums[count + i], sums[2 * count + i] = x, min(1.0, max(-1.0, cosine)), h
        if i != slot:
            for k in range(3):
                window.entries[(k * room + slot) * room + i] = sums[k * count + i]
                window.entries[(k * room + i) * room + slot] = sums[k * count + i]


cdef inline double recentred(double dx, double cosine, double dh, double shift) noexcept nogil:
    """Return ||dh - shift dx||: a sum of squares that are not negative, which cannot overflow."""
    cdef double e = shift * dx, top = max(dh, fabs(e)), a, b
    if shift == 0.0 or top == 0.0:
        return dh
    a, b = dh / top, e / top
    return top * sqrt(max((a - b) * (a - b) + 2.0 * a * b * (1.0 - cosine), 0.0))


cdef void reduce_window(
    Workspace ws, Window window, Coordinates vectors, double shift, double radius
) noexcept nogil:
    """Make the problem of a window, of size about 1, the most central residual at zero.

    Vectors are more accurate than tables: they are used if there are any. Cancellation is harmless
    while the shift is not much larger than the radius.
    """
    cdef Py_ssize_t K = ws.K, room = window.room, i, j, k, central = 0
    cdef double *tables = window.entries
    cdef double scale = 0.0, nearest = INFINITY, least = INFINITY, total, apart
    for i in range(K):
        total = 0.0
        for j in range(K):
            k = i * room + j
            apart = recentred(
                tables[k], tables[room * room + k], tables[2 * room * room + k], shift
            )
            row(ws.W, i)[j] = apart
            total += apart
            scale = max(scale, apart)
        least = min(least, window.variance[i])
        if total < nearest:  # to the others overall: the origin
            central, nearest = i, total
    scale, ws.least = 1.0 if scale == 0.0 else scale, least
    for i in range(K):
        ws.n[i] = least / window.variance[i]
        for j in range(K):
            row(ws.bounds, i)[j] = radius * tables[i * room + j] / scale
    if vectors.points != NULL:
        take_coordinates(ws, vectors, central, shift, scale)
    else:
        embed(ws, central, scale)


cdef void take_coordinates(
    Workspace ws, Coordinates vectors, Py_ssize_t central, double shift, double scale
) noexcept nogil:
    """Let the residuals be those of the vectors, relative to the central one."""
    cdef Py_ssize_t d = vectors.d, i, c, k, o
    cdef double dx, dh
    set_coordinates(ws, d)
    for i in range(ws.K):
        for c in range(d):
            k, o = i * d + c, central * d + c
            dx = entry(vectors.points, vectors.narrow, k) - entry(vectors.points, vectors.narrow, o)
            dh = entry(vectors.residuals, vectors.narrow, k)
            dh -= entry(vectors.residuals, vectors.narrow, o)
            row(ws.h, i)[c] = (dh - shift * dx) / scale


cdef void embed(Workspace ws, Py_ssize_t central, double scale) noexcept nogil:
    """Find residuals whose distances are W, which is overwritten.

    They are the columns of a pivoted Cholesky factor of the Gram matrix. Pivots below the rounding
    of the largest are noise, not a further dimension.
    """
    cdef Py_ssize_t K = ws.K, q = 0, i, j, c
    cdef double *column = ws.size
    cdef double pivot
    for i in range(K):
        for j in range(K):
            row(ws.W, i)[j] = (row(ws.W, i)[j] / scale) * (row(ws.W, i)[j] / scale)
        column[i] = row(ws.W, i)[central]
    for i in range(K):
        for j in range(K):
            row(ws.W, i)[j] = 0.5 * (column[i] + column[j] - row(ws.W, i)[j])
    while q < K:
        c = 0
        for i in range(K):
            if row(ws.W, i)[i] > row(ws.W, c)[c]:
                c = i
        if q > 0 and row(ws.W, c)[c] <= 1e-15 * K:
            break
        pivot = 1.0 / sqrt(row(ws.W, c)[c]) if row(ws.W, c)[c] > 0.0 else 0.0
        for i in range(K):
            column[i] = row(ws.h, i)[q] = row(ws.W, c)[i] * pivot
        for i in range(K):
            add_multiple(row(ws.W, i), -column[i], column, K)
        q += 1
    set_coordinates(ws, q)
