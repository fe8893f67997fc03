# The passes over the vectors of a window: (K, size) points and residuals, of float32 or float64.
#
# `measure` reads the window once and writes nothing; its sums are added to, over blocks of
# parameters and over ranks. Between it and `commit`, which reads the residuals once and writes a
# slot, lies the decision whether the observation may enter at all. Folding needs no other pass: a
# residual is merged into the next by `commit`, and measured again. Both go block by block, while
# it is in the cache. Numbers that are stored are rounded to the dtype of the vectors, sums are
# formed in float64 from differences in float64.

cdef extern from *:
    """
    #include "lanes.h"
    #define REAL float
    #define LOAD widen
    #define ROUND narrow
    #define NAME(function) function##_float
    #include "passes.h"
    #undef REAL
    #undef LOAD
    #undef ROUND
    #undef NAME
    #define REAL double
    #define LOAD load
    #define ROUND(v) (v)
    #define NAME(function) function##_double
    #include "passes.h"
    """
    void observe_float(
        const float *x, const float *g, double c, double limit, Py_ssize_t n,
        double *wide_x, double *h, double *sums
    ) noexcept nogil
    void observe_double(
        const double *x, const double *g, double c, double limit, Py_ssize_t n,
        double *wide_x, double *h, double *sums
    ) noexcept nogil
    void products_float(
        int count, const float **points, const float **residuals,
        const double *x, const double *h, Py_ssize_t n, double (*sums)[3]
    ) noexcept nogil
    void products_double(
        int count, const double **points, const double **residuals,
        const double *x, const double *h, Py_ssize_t n, double (*sums)[3]
    ) noexcept nogil
    void add_four_float(
        float *out, const float *w, const float **rows, const float *own, Py_ssize_t n
    ) noexcept nogil
    void add_four_double(
        double *out, const double *w, const double **rows, const double *own, Py_ssize_t n
    ) noexcept nogil

from libc.string cimport memcpy, memmove

ctypedef fused real:
    float
    double

cdef enum:
    # Entries of a vector worked on at once: long enough for the processor to fetch ahead in 2K
    # streams, short enough for a few such blocks to stay in the cache.
    BLOCK = 4096


cdef struct Slots:
    # The vectors of a window, (rows, size) each, and an observation with room for its gradient.
    char kind  # f for float32, d for float64
    Py_ssize_t rows
    Py_ssize_t size
    void *points
    void *residuals
    void *x
    void *g
    void *out


cdef struct Entry:
    # How an observation enters a slot, and with which weights the first slots are averaged.
    Py_ssize_t slot
    double centre
    Py_ssize_t count  # of weights: none leave the gradient as it is
    const double *weights
    double shift
    bint merged  # whether the average is stored, and the slot takes part in it


cdef void sum_products(
    const real *points, const real *residuals, const Slots *at, double centre, double limit,
    Py_ssize_t used, Py_ssize_t skip, double *out
) noexcept nogil:
    """Add to out what `measure` says."""
    cdef Py_ssize_t block, a, n
    cdef const real *x = <const real *> at.x
    cdef const real *g = <const real *> at.g
    cdef double wide_x[BLOCK]
    cdef double h[BLOCK]
    for block in range((at.size + BLOCK - 1) // BLOCK):
        a = block * BLOCK
        n = min(BLOCK, at.size - a)
        if real is float:
            observe_float(x + a, g + a, centre, limit, n, wide_x, h, out + 3 * used)
        else:
            observe_double(x + a, g + a, centre, limit, n, wide_x, h, out + 3 * used)
        compare(points + a, residuals + a, at.size, wide_x, h, n, used, skip, out)


cdef void compare(
    const real *points, const real *residuals, Py_ssize_t size, const double *x, const double *h,
    Py_ssize_t n, Py_ssize_t used, Py_ssize_t skip, double *out
) noexcept nogil:
    """Add a block of ||dx||^2, <dx, dh> and ||dh||^2 of the slots in use to out, (3, used)."""
    cdef const real *P[4]
    cdef const real *R[4]
    cdef Py_ssize_t slots[4]
    cdef double sums[4][3]
    cdef Py_ssize_t i, k
    cdef int held = 0
    for i in range(used):
        if i != skip:
            P[held], R[held], slots[held] = points + i * size, residuals + i * size, i
            held += 1
        if held == 4 or (i == used - 1 and held > 0):
            if real is float:
                products_float(held, P, R, x, h, n, sums)
            else:
                products_double(held, P, R, x, h, n, sums)
            for k in range(held):
                out[slots[k]] += sums[k][0]
                out[slots[k] + used] += sums[k][1]
                out[slots[k] + 2 * used] += sums[k][2]
            held = 0


cdef void subtract_slope(
    real *h, const real *x, const real *g, double centre, Py_ssize_t n
) noexcept nogil:
    """Fill in the residual h = g - centre x, rounded once."""
    cdef Py_ssize_t j
    for j in range(n):
        h[j] = <real> (g[j] - centre * x[j])


cdef void store_and_average(
    real *points, real *residuals, const Slots *at, const Entry *entry
) noexcept nogil:
    """Do what `commit` says."""
    cdef Py_ssize_t block, a, n, own = entry.slot * at.size
    cdef const real *x
    cdef const real *g
    cdef real *out
    cdef real h[BLOCK]
    for block in range((at.size + BLOCK - 1) // BLOCK):
        a = block * BLOCK
        n = min(BLOCK, at.size - a)
        x, g, out = <const real *> at.x + a, <const real *> at.g + a, <real *> at.out + a
        subtract_slope(h, x, g, entry.centre, n)
        memmove(out, g, n * sizeof(real))
        add_average(out, residuals + a, h, at.size, entry, 1.0, n)
        if entry.shift != 0.0:
            add_average(out, points + a, x, at.size, entry, -entry.shift, n)
        if entry.merged:
            subtract_slope(h, x, out, entry.centre, n)
        memmove(points + own + a, x, n * sizeof(real))
        memcpy(residuals + own + a, h, n * sizeof(real))


cdef void add_average(
    real *out, const real *rows, const real *own, Py_ssize_t size, const Entry *entry,
    double factor, Py_ssize_t n
) noexcept nogil:
    """Add factor sum_i w_i (row_i - own) to out, four rows at a time."""
    cdef real w[4]
    cdef const real *row[4]
    cdef Py_ssize_t i, k, held = 0
    for i in range(entry.count):
        if entry.weights[i] != 0.0 and (entry.merged or i != entry.slot):
            row[held], w[held] = rows + i * size, <real> (factor * entry.weights[i])
            held += 1
        if held == 4:
            if real is float:
                add_four_float(out, w, row, own, n)
            else:
                add_four_double(out, w, row, own, n)
            held = 0
    for k in range(held):
        add_one(out, w[k], row[k], own, n)


cdef void add_one(
    real *out, real w, const real *row, const real *own, Py_ssize_t n
) noexcept nogil:
    """Add w (row - own) to out."""
    cdef Py_ssize_t j
    for j in range(n):
        out[j] += w * (row[j] - own[j])


cdef void measure_slots(
    const Slots *at, double centre, double limit, Py_ssize_t used, Py_ssize_t skip, double *out
) noexcept nogil:
    """Do what `measure` says, whatever the dtype."""
    if at.kind == b"f":
        sum_products[float](
            <const float *> at.points, <const float *> at.residuals, at, centre, limit, used, skip,
            out,
        )
    else:
        sum_products[double](
            <const double *> at.points, <const double *> at.residuals, at, centre, limit, used,
            skip, out,
        )


cdef void commit_slot(const Slots *at, const Entry *entry) noexcept nogil:
    """Do what `commit` says, whatever the dtype."""
    if at.kind == b"f":
        store_and_average[float](<float *> at.points, <float *> at.residuals, at, entry)
    else:
        store_and_average[double](<double *> at.points, <double *> at.residuals, at, entry)


cdef Slots take_vectors(Arrays given, points, residuals, x, g, out) except *:
    """Return the memory of vectors; None for out only reads."""
    cdef Slots at
    kind = points.dtype.char
    if kind not in ("f", "d"):
        raise TypeError(f"expected vectors of float32 or float64, got {points.dtype}")
    at.kind, at.rows, at.size = <char> ord(kind), len(points), x.size
    cdef bint writes = out is not None
    at.points = given.take(points, at.rows, at.size, at.kind, writes)
    at.residuals = given.take(residuals, at.rows, at.size, at.kind, writes)
    at.x = given.take(x, at.size, 1, at.kind, False)
    at.g = given.take(g, at.size, 1, at.kind, False)
    at.out = given.take(out, at.size, 1, at.kind, True) if writes else NULL
    return at


def measure(points, residuals, x, g, double centre, double limit, Py_ssize_t skip, out):
    """Add up how an observation relates to the slots in use; write nothing else.

    Args:
        points: (K, *shape), of float32 or float64, as all vectors.
        residuals: (K, *shape).
        x: (*shape), where the gradient was observed.
        g: (*shape), the gradient.
        centre: c of the residuals g - c x.
        limit: the largest entry that may enter.
        skip: a slot that is left out, as the observation takes its place; -1 for none.
        out: (3 used + 2,), what is added to, in float64: ||dx||^2, <dx, dh> and ||dh||^2 of every
            slot in use; the number of entries that are rejected; and the sum of |g|.
    """
    cdef Arrays given = Arrays.__new__(Arrays)
    cdef Slots at = take_vectors(given, points, residuals, x, g, None)
    cdef Py_ssize_t used = (len(out) - 2) // 3
    cdef double *sums = given.write(out, 3 * used + 2)
    if used > at.rows:
        raise ValueError(f"expected at most {at.rows} slots, got {used}")
    with nogil:
        measure_slots(&at, centre, limit, used, skip, sums)


def commit(points, residuals, x, g, double centre, Py_ssize_t slot, average, out):
    """Write an observation into a slot, and its gradient to out.

    With an average, a tuple of weights w for the first slots, a shift, and whether to merge, that
    is g + sum_i w_i ((h_i - h) - shift (x_i - x)): the weights sum to 1, and what all residuals
    have in common cancels before it is rounded. With None it is g. Merging stores the average in
    place of the gradient; what was in the slot takes part in it.
    """
    cdef Arrays given = Arrays.__new__(Arrays)
    cdef Slots at = take_vectors(given, points, residuals, x, g, out)
    cdef Entry entry = Entry(slot, centre, 0, NULL, 0.0, False)
    if average is not None:
        weights, entry.shift, entry.merged = average
        entry.count = len(weights)
        entry.weights = given.read(weights, entry.count)
    if not (0 <= slot < at.rows and entry.count <= at.rows):
        raise ValueError(
            f"expected at most {at.rows} slots, got slot {slot}, {entry.count} weights"
        )
    with nogil:
        commit_slot(&at, &entry)
