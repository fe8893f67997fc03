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
    """Tables of observations, in slots that are reused in a ring.

    Args:
        slots: how many observations are kept; None keeps all of them.

    Attributes:
        slots: how many observations are kept; None keeps all of them.
        tables: (3, room, room): distances between points, cosines, distances between residuals.
        all_variances: (room,), relative noise variances.
        count: how many slots are in use, always the first ones.
        next: the slot that the next observation takes: the oldest one's, if all are in use.
        newest: the slot of the newest observation.
        d: the number of coordinates.
        centre: c0 of the residuals.
    """

    cdef readonly object slots, tables, all_variances
    cdef public Py_ssize_t count, next, newest, d
    cdef public double centre
    cdef Py_ssize_t room, ring  # where the ring ends; 0 if it does not
    cdef double *entries
    cdef double *variance

    def __init__(self, slots):
        self.slots, self.ring = slots, slots or 0

    def hold(self, tables, variances) -> None:
        """Keep the tables of the window in these arrays from now on."""
        cdef Arrays given = Arrays()
        room = len(variances)
        self.entries = given.write(tables, 3 * room, room)
        self.variance = given.write(variances, room)
        self.tables, self.all_variances, self.room = tables, variances, room

    def insert(self, sums, Py_ssize_t count, Py_ssize_t slot, double variance) -> None:
        """Write the row of one observation, and turn the sums into that row.

        Args:
            sums: (3 * count,), ||dx||^2, <dx, dh> and ||dh||^2 to every slot in use; overwritten
                by ||dx||, the cosines and ||dh||.
            count: how many slots are in use, apart from a new one.
            slot: where the observation goes.
            variance: its relative noise variance.
        """
        cdef Arrays given = Arrays()
        if not (0 <= slot < self.room and 0 <= count <= self.room):
            raise IndexError(f"slot {slot} of {self.room} is out of range")
        insert_row(self, given.write(sums, 3 * count), count, slot)
        self.variance[slot] = variance


cdef void insert_row(
    Window window, double *sums, Py_ssize_t count, Py_ssize_t slot
) noexcept nogil:
    """Turn sums of squares and products into a row of the tables."""
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

    Vectors are more accurate than tables, and shorter where d < K: then they are used, if there
    are any. Cancellation is harmless while the shift is not much larger than the radius.
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
    if 0 < vectors.d < K:
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
