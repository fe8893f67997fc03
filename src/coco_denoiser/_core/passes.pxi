# The passes over the vectors of a window, of float32 or float64: `passes.h`.

from libc.string cimport memcpy

cdef extern from "passes.h" nogil:
    ctypedef struct Slots:
        char kind
        Py_ssize_t rows, size
        void *points
        void *residuals
        void *x
        void *g
        void *out
    ctypedef struct Entry:
        Py_ssize_t slot
        double centre
        Py_ssize_t count
        const double *weights
        double shift
        bint merged
    void measure_slots(
        const Slots *at, double centre, double limit, Py_ssize_t used, Py_ssize_t skip, double *out
    ) noexcept
    void commit_slot(const Slots *at, const Entry *entry) noexcept


cdef Slots take_vectors(Memory given, points, residuals, x, g, out) except *:
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
    cdef Memory given = Memory.__new__(Memory)
    cdef Slots at = take_vectors(given, points, residuals, x, g, None)
    cdef Py_ssize_t used = (len(out) - 2) // 3
    cdef Row sums = given.write(out, 3 * used + 2)
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
    cdef Memory given = Memory.__new__(Memory)
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
