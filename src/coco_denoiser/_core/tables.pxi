# The tables of a window: of every two observations, how far apart their points are and their
# residuals h = g - c0 x, and the cosine between the two differences. One row is inserted at a time;
# for any other centre they reduce to a problem.


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
        next: the slot that the next observation takes: the oldest one's, if all are in use.
        newest: the slot of the newest observation; in a filter its place among the members.
        d: the number of coordinates.
        centre: c0 of the residuals.
        work: the problem of the last step, and its answer.
    """

    cdef readonly object slots, tables, all_variances
    cdef object scratch
    cdef readonly bint folds
    cdef public object points, residuals
    cdef readonly Py_ssize_t count, next, newest
    cdef public Py_ssize_t d
    cdef public double centre
    # How many slots there are, and how many of them the next observation never takes: 1 in a
    # filter, whose tables then have one observation more than slots.
    cdef Py_ssize_t ring, past, room
    cdef Row entries, variance
    cdef Row sums  # of a step, and of what it merges
    cdef readonly Workspace work

    def __init__(self, slots, folds=False):
        self.slots, self.ring, self.folds = slots, slots or maxsize, folds
        self.past = 1 if folds and slots == 1 else 0

    @property
    def members(self) -> int:
        """How many observations the last answer was made of; one more than slots in a filter."""
        return max(self.count, self.newest + 1)

    def hold(self, tables, variances, Py_ssize_t count=0, Py_ssize_t following=0,
             Py_ssize_t newest=-1) -> None:
        """Keep the tables in these arrays from now on, and set count, next and newest."""
        cdef Memory given = Memory()
        cdef Py_ssize_t room = len(variances)
        if not (0 <= following <= count <= min(room, self.ring) and -1 <= newest < room):
            raise IndexError(f"{count} observations do not fit in tables of {room}")
        self.entries = given.write(tables, 3 * room, room)
        self.variance = given.write(variances, room)
        self.scratch = empty(6 * room + 4)
        self.sums = given.write(self.scratch, 6 * room + 4)
        self.tables, self.all_variances, self.room = tables, variances, room
        self.count, self.next, self.newest = count, following, newest

    def distances(self, double centre):
        """Return the distances ||dg - centre dx||, (members, members)."""
        cdef Memory given = Memory()
        cdef Py_ssize_t K = self.members, size = self.room * self.room, i, j, k
        table = empty((K, K))
        cdef Row out = given.write(table, K, K)
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
        cdef Fold found = fold_oldest(self, limits.centre, limits.radius)
        if found.weight == 0.0:
            return None
        return found.old, found.new, found.weight, found.shift, found.reach

    def admit(self, sums, double variance, limits, merged) -> None:
        """Take an observation into the tables.

        Args:
            sums: (3 count + 2,), what `measure` adds up.
            variance: relative noise variance of the observation.
            limits: the curvature bounds.
            merged: what `measure` adds up of the observation that another was merged into, the new
                one being in its slot; None if none was.
        """
        cdef Memory given = Memory()
        check_room(self, self.ring)
        cdef Py_ssize_t size = 3 * self.count + 2
        cdef Fold fold = fold_oldest(self, limits.centre, limits.radius)
        cdef Row own = given.read(sums, size)
        cdef Row other = NULL if merged is None else given.read(merged, size)
        admit_rows(self, &fold, own, other, variance, NULL, NULL)

    def settle(self, limits) -> None:
        """Let the observation of a filter, which is written, stand for what was before it."""
        settle_filter(self, limits.centre, limits.radius)


cdef struct Fold:
    # How one observation is merged into another, and the variance of the result.
    Py_ssize_t old, new
    double weight  # 0 if it is dropped
    double variance, shift, reach


cdef int check_room(Window window, Py_ssize_t rows) except -1:
    """Raise IndexError if there is no room for the next observation."""
    cdef Py_ssize_t slot = next_slot(window)
    if not (slot < window.room and min(slot, window.ring - 1) < rows and window.count <= rows):
        raise IndexError(f"slot {slot} of {min(rows, window.room)} is out of range")
    return 0


cdef inline Py_ssize_t next_slot(Window window) noexcept nogil:
    """Return the slot that the next observation takes; in a filter, after the past."""
    return max(window.next, min(window.past, window.count))


cdef inline Py_ssize_t leaving_slot(Window window) noexcept nogil:
    """Return the slot whose observation the next one replaces; -1 for none."""
    return next_slot(window) if next_slot(window) < window.count else -1


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


cdef void admit_rows(
    Window window, const Fold *fold, const double *sums, const double *merged, double variance,
    const Slots *at, const Slots *stored,
) noexcept nogil:
    """Take an observation into the next slot, and what another was merged into, if any was."""
    cdef Py_ssize_t slot = next_slot(window), used = window.count
    insert_row(window, sums, used, slot, at, window.centre)
    if merged != NULL:
        insert_row(window, merged, used, fold.new, stored, 0.0)
        window.variance[fold.new] = fold.variance
    window.variance[slot], window.newest = variance, slot
    window.count = max(used, slot + 1)
    window.next = slot + 1 if slot + 1 < window.ring else 0


cdef void settle_filter(Window window, double centre, double radius) noexcept nogil:
    """Let the newest observation of a filter take the place of both."""
    if window.count > window.ring:
        window.variance[0] = fold_pair(window, 0, 1, centre, radius).variance
        window.count = 1


cdef void insert_row(
    Window window, const double *sums, Py_ssize_t used, Py_ssize_t slot, const Slots *at,
    double centre,
) noexcept nogil:
    """Turn sums of squares and products, to the slots in use, into a row of the tables.

    What is so close that squares have lost digits is measured again, if the vectors are there.
    Squares of float32 cannot underflow.
    """
    cdef Py_ssize_t i, k, room = window.room
    cdef double found[3]
    for i in range(used):
        if i == slot:
            continue
        found[0], found[2] = sqrt(sums[i]), sqrt(sums[2 * used + i])
        found[1] = found[0] * found[2]
        if found[1] > 0.0:
            found[1] = min(1.0, max(-1.0, sums[used + i] / found[1]))
        if at != NULL and at.kind == b"d" and min(found[0], found[2]) < CLOSE:
            measure_pair(at, centre, i, found)
        for k in range(3):
            window.entries[(k * room + slot) * room + i] = found[k]
            window.entries[(k * room + i) * room + slot] = found[k]


cdef void measure_pair(
    const Slots *at, double centre, Py_ssize_t slot, double *found
) noexcept nogil:
    """Fill in two distances and the cosine between them, from differences scaled to size 1."""
    cdef Row p = <Row> at.points + slot * at.size, x = <Row> at.x
    cdef Row r = <Row> at.residuals + slot * at.size, g = <Row> at.g
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


cdef inline double recentred(double dx, double cosine, double dh, double shift) noexcept nogil:
    """Return ||dh - shift dx||: a sum of squares that are not negative, which cannot overflow."""
    cdef double e = shift * dx, top = max(dh, fabs(e)), a, b
    if shift == 0.0 or top == 0.0:
        return dh
    a, b = dh / top, e / top
    return top * sqrt(max((a - b) * (a - b) + 2.0 * a * b * (1.0 - cosine), 0.0))


cdef void reduce_window(
    Workspace ws, Window window, const Slots *at, double centre, double radius
) noexcept nogil:
    """Make the problem of a window, of size about 1, the most central residual at zero.

    Vectors that are shorter than what the tables tell of them are more accurate; at is NULL if they
    are elsewhere. Cancellation is harmless while the shift is not much larger than the radius.
    """
    cdef Py_ssize_t K = ws.K, room = window.room, i, j, k, central = 0
    cdef Row tables = window.entries
    cdef double scale = 0.0, nearest = INFINITY, total, apart, shift = centre - window.centre
    ws.least = INFINITY
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
        ws.least = min(ws.least, window.variance[i])
        if total < nearest:  # to the others overall: the origin
            central, nearest = i, total
    scale = 1.0 if scale == 0.0 else scale
    for i in range(K):
        ws.n[i] = ws.least / window.variance[i]
        for j in range(K):
            row(ws.bounds, i)[j] = radius * tables[i * room + j] / scale
    if at != NULL and has_short_vectors(window, at, K):
        take_coordinates(ws, at, central, shift, scale)
    else:
        embed(ws, central, scale)


cdef inline bint has_short_vectors(Window window, const Slots *at, Py_ssize_t K) noexcept nogil:
    """Return whether the vectors of all K observations have slots, and fewer than K entries."""
    return at.size < K <= window.ring


cdef void take_coordinates(
    Workspace ws, const Slots *at, Py_ssize_t central, double shift, double scale
) noexcept nogil:
    """Let the residuals be those of the vectors, relative to the central one."""
    cdef Py_ssize_t d = at.size, i, c, k, o
    cdef double dx, dh
    set_coordinates(ws, d)
    for i in range(ws.K):
        for c in range(d):
            k, o = i * d + c, central * d + c
            dx = number(at.points, at.kind, k) - number(at.points, at.kind, o)
            dh = number(at.residuals, at.kind, k) - number(at.residuals, at.kind, o)
            row(ws.h, i)[c] = (dh - shift * dx) / scale


cdef inline double number(const void *vector, char kind, Py_ssize_t k) noexcept nogil:
    """Return a number of either precision."""
    return (<const float *> vector)[k] if kind == b"f" else (<const double *> vector)[k]


cdef void embed(Workspace ws, Py_ssize_t central, double scale) noexcept nogil:
    """Find residuals whose distances are W, which is overwritten.

    They are the columns of a pivoted Cholesky factor of the Gram matrix. Pivots below the rounding
    of the largest are noise, not a further dimension.
    """
    cdef Py_ssize_t K = ws.K, q = 0, i, j, c
    cdef Row column = ws.size
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
