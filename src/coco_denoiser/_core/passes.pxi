# The passes over the vectors of a window: (K, size) points and residuals, of float32 or float64.
#
# `measure` reads the window once and writes nothing; its sums are added to, over blocks of
# parameters and over ranks. Between it and `commit`, which reads the residuals once and writes the
# new slot, lies the decision whether the observation may enter at all. Both go block by block,
# while it is in the cache. Numbers that are stored are rounded to the dtype of the vectors, sums
# are formed in float64 from differences in float64.

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

from libc.string cimport memcpy, memmove

ctypedef fused real:
    float
    double

cdef enum:
    # Entries of a vector worked on at once: long enough for the processor to fetch ahead in 2K
    # streams, short enough for a few such blocks to stay in the cache.
    BLOCK = 4096


cdef struct Plan:
    # What an observation does to a window, as in window.py, and the length of a vector.
    Py_ssize_t size
    double centre
    Py_ssize_t used
    Py_ssize_t oldest  # -1 for none
    Py_ssize_t successor  # -1 if the oldest is dropped
    double weight
    double shift


cdef struct Entry:
    # How an observation enters a slot, and with which weights the first slots are averaged.
    Py_ssize_t size
    Py_ssize_t slot
    double centre
    Py_ssize_t count  # of weights: none leave the gradient as it is
    const double *weights
    double shift


cdef void sum_products(
    const real *points, const real *residuals, const real *x, const real *g,
    const Plan *plan, double limit, double *out
) noexcept nogil:
    """Add to out what `measure` says."""
    cdef Py_ssize_t block, a, n, targets = 1 if plan.successor < 0 else 2
    cdef double *refused = out + 3 * targets * plan.used
    cdef double wide_x[BLOCK]
    cdef double h[BLOCK]
    cdef real merged[BLOCK]
    for block in range((plan.size + BLOCK - 1) // BLOCK):
        a = block * BLOCK
        n = min(BLOCK, plan.size - a)
        if targets == 2:
            merge_into(merged, points + a, residuals + a, plan, n)
            refused[0] += count_above(2.0 * limit, merged, n)
        if real is float:
            observe_float(x + a, g + a, plan.centre, limit, n, wide_x, h, refused)
        else:
            observe_double(x + a, g + a, plan.centre, limit, n, wide_x, h, refused)
        compare(points + a, residuals + a, merged, plan, wide_x, h, n, out)
        if targets == 2:
            copy(wide_x, points + plan.successor * plan.size + a, n)
            copy(h, merged, n)
            compare(points + a, residuals + a, merged, plan, wide_x, h, n, out + 3 * plan.used)


cdef void compare(
    const real *points, const real *residuals, const real *merged, const Plan *plan,
    const double *x, const double *h, Py_ssize_t n, double *out
) noexcept nogil:
    """Add a block of ||dx||^2, <dx, dh> and ||dh||^2 of the slots in use to out, (3, used)."""
    cdef const real *P[4]
    cdef const real *R[4]
    cdef Py_ssize_t slots[4]
    cdef double sums[4][3]
    cdef Py_ssize_t i, k
    cdef int held = 0
    for i in range(plan.used):
        if i != plan.oldest:
            P[held], slots[held] = points + i * plan.size, i
            R[held] = merged if i == plan.successor else residuals + i * plan.size
            held += 1
        if held == 4 or (i == plan.used - 1 and held > 0):
            if real is float:
                products_float(held, P, R, x, h, n, sums)
            else:
                products_double(held, P, R, x, h, n, sums)
            for k in range(held):
                out[slots[k]] += sums[k][0]
                out[slots[k] + plan.used] += sums[k][1]
                out[slots[k] + 2 * plan.used] += sums[k][2]
            held = 0


cdef void copy(double *out, const real *v, Py_ssize_t n) noexcept nogil:
    """Copy entries, widened."""
    cdef Py_ssize_t j
    for j in range(n):
        out[j] = v[j]


cdef Py_ssize_t count_above(double limit, const real *v, Py_ssize_t n) noexcept nogil:
    """Return how many entries exceed a limit or are NaN."""
    cdef Py_ssize_t j, count = 0
    for j in range(n):
        count += 1 - ((v[j] <= limit) & (v[j] >= -limit))
    return count


cdef void subtract_slope(
    real *h, const real *x, const real *g, double centre, Py_ssize_t n
) noexcept nogil:
    """Fill in the residual h = g - centre x, rounded once."""
    cdef Py_ssize_t j
    for j in range(n):
        h[j] = <real> (g[j] - centre * x[j])


cdef void merge_into(
    real *out, const real *points, const real *residuals, const Plan *plan, Py_ssize_t n
) noexcept nogil:
    """Fill in the residual that the oldest slot and its successor are merged to."""
    cdef const real *x = points + plan.oldest * plan.size
    cdef const real *h = residuals + plan.oldest * plan.size
    cdef const real *y = points + plan.successor * plan.size
    cdef const real *k = residuals + plan.successor * plan.size
    cdef Py_ssize_t j
    for j in range(n):
        out[j] = <real> (k[j] + plan.weight * ((h[j] - k[j]) - plan.shift * (x[j] - y[j])))


cdef void store_and_average(
    real *points, real *residuals, const real *x, const real *g, const Entry *entry, real *out
) noexcept nogil:
    """Do what `commit` says."""
    cdef Py_ssize_t block, a, n, own = entry.slot * entry.size
    for block in range((entry.size + BLOCK - 1) // BLOCK):
        a = block * BLOCK
        n = min(BLOCK, entry.size - a)
        memcpy(points + own + a, x + a, n * sizeof(real))
        memmove(out + a, g + a, n * sizeof(real))
        subtract_slope(residuals + own + a, x + a, out + a, entry.centre, n)
        add_average(out + a, residuals + a, entry, 1.0, n)
        if entry.shift != 0.0:
            add_average(out + a, points + a, entry, -entry.shift, n)


cdef void add_average(
    real *out, const real *rows, const Entry *entry, double factor, Py_ssize_t n
) noexcept nogil:
    """Add factor sum_i w_i (row_i - row_slot) to out, four rows at a time."""
    cdef real w[4]
    cdef const real *row[4]
    cdef Py_ssize_t i, k, last = entry.count - 1
    for i in range(0, entry.count, 4):
        for k in range(4):  # beyond the last is the last again, without a weight
            row[k] = rows + min(i + k, last) * entry.size
            w[k] = <real> (factor * entry.weights[i + k]) if i + k <= last else 0.0
        add_four(out, w, row, rows + entry.slot * entry.size, n)


cdef void add_four(
    real *out, const real *w, const real **row, const real *own, Py_ssize_t n
) noexcept nogil:
    """Add sum_k w_k (row_k - own) of four rows to out."""
    cdef const real *p = row[0]
    cdef const real *q = row[1]
    cdef const real *r = row[2]
    cdef const real *s = row[3]
    cdef real t = w[0], u = w[1], v = w[2], z = w[3]
    cdef Py_ssize_t j
    for j in range(n):
        out[j] += (t * (p[j] - own[j]) + u * (q[j] - own[j])) + (
            v * (r[j] - own[j]) + z * (s[j] - own[j])
        )


cdef void average_with_past(
    real *point, real *residual, const real *x, const real *g, const Plan *plan, real *out
) noexcept nogil:
    """Do what `smooth` says."""
    # In the dtype of the vectors: half as many instructions.
    cdef real c = <real> plan.centre, w = <real> plan.weight, shift = <real> plan.shift
    cdef real h, move
    cdef Py_ssize_t j
    for j in range(plan.size):
        h = g[j] - c * x[j]
        move = w * ((residual[j] - h) - shift * (point[j] - x[j]))
        out[j] = g[j] + move
        residual[j] = h + move
        point[j] = x[j]


cdef char kind_of(object array) except 0:
    """Return the dtype of vectors: f for float32, d for float64."""
    kind = array.dtype.char
    if kind not in ("f", "d"):
        raise TypeError(f"expected vectors of float32 or float64, got {array.dtype}")
    return <char> ord(kind)


cdef Plan read_plan(object plan, object points) except *:
    """Return a plan of window.py for these points; what it says of slots must be true."""
    cdef Plan p
    slots, p.size = points.shape
    p.centre, p.used, p.oldest, p.successor, p.weight, p.shift = plan[:6]
    most = min(p.used, <Py_ssize_t> slots)
    if p.used > most or not (-1 <= p.oldest < max(most, 1) and -1 <= p.successor < max(most, 1)):
        raise ValueError(f"expected a plan for at most {slots} slots, got {plan}")
    if p.successor >= 0 and (p.oldest < 0 or p.oldest == p.successor):
        raise ValueError(f"expected an oldest slot that has another successor, got {plan}")
    return p


def measure(points, residuals, x, g, double limit, plan, out):
    """Add up how an observation relates to the slots in use; write nothing else.

    Args:
        points: (K, d), of float32 or float64, as all vectors.
        residuals: (K, d).
        x: (d,), where the gradient was observed.
        g: (d,), the gradient.
        limit: the largest entry that may enter.
        plan: what the observation does to the window, as in window.py.
        out: what is added to, float64. For every slot in use ||dx||^2, <dx, dh> and ||dh||^2 to
            the observation, then, if there is one, to the successor as it will be; the number
            of entries that must not enter; and the sum of |g|.
    """
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef Plan p = read_plan(plan, points)
    cdef char kind = kind_of(points)
    cdef void *P = arrays.take(points, len(points), p.size, kind, False)
    cdef void *R = arrays.take(residuals, len(points), p.size, kind, False)
    cdef void *X = arrays.take(x, p.size, 1, kind, False)
    cdef void *G = arrays.take(g, p.size, 1, kind, False)
    cdef double *sums = arrays.write(out, (3 if p.successor < 0 else 6) * p.used + 2)
    with nogil:
        if kind == b"f":
            sum_products[float](<float *> P, <float *> R, <float *> X, <float *> G, &p, limit, sums)
        else:
            sum_products[double](
                <double *> P, <double *> R, <double *> X, <double *> G, &p, limit, sums
            )


def commit(points, residuals, x, g, double centre, Py_ssize_t slot, average, out):
    """Write an observation into its slot, and its gradient to out.

    With an average, a tuple of weights w for the first slots and a shift, that is
    g + sum_i w_i ((h_i - h) - shift (x_i - x)): the weights sum to 1, and what all residuals have
    in common cancels before it is rounded. With None it is g.
    """
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef char kind = kind_of(points)
    cdef Entry entry = Entry(0, slot, centre, 0, NULL, 0.0)
    slots, entry.size = points.shape
    if average is not None:
        weights, entry.shift = average
        entry.count = len(weights)
        entry.weights = arrays.read(weights, entry.count)
    if not (0 <= slot < slots and entry.count <= slots):
        raise ValueError(f"expected at most {slots} slots, got slot {slot}, {entry.count} weights")
    cdef void *P = arrays.take(points, slots, entry.size, kind, True)
    cdef void *R = arrays.take(residuals, slots, entry.size, kind, True)
    cdef void *X = arrays.take(x, entry.size, 1, kind, False)
    cdef void *G = arrays.take(g, entry.size, 1, kind, False)
    cdef void *T = arrays.take(out, entry.size, 1, kind, True)
    with nogil:
        if kind == b"f":
            store_and_average[float](
                <float *> P, <float *> R, <float *> X, <float *> G, &entry, <float *> T
            )
        else:
            store_and_average[double](
                <double *> P, <double *> R, <double *> X, <double *> G, &entry, <double *> T
            )


def merge(points, residuals, plan):
    """Merge the oldest slot's residual into its successor's, as `measure` has assumed."""
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef Plan p = read_plan(plan, points)
    cdef char kind = kind_of(points)
    cdef void *P = arrays.take(points, len(points), p.size, kind, False)
    cdef void *R = arrays.take(residuals, len(points), p.size, kind, True)
    cdef Py_ssize_t own = p.successor * p.size
    if p.successor < 0:
        raise ValueError(f"expected a plan with a successor, got {plan}")
    with nogil:
        if kind == b"f":
            merge_into[float](<float *> R + own, <float *> P, <float *> R, &p, p.size)
        else:
            merge_into[double](<double *> R + own, <double *> P, <double *> R, &p, p.size)


def smooth(points, residuals, x, g, double centre, double weight, double shift, out):
    """Average slot 0 into an observation, which takes its place; write its gradient to out.

    With h = g - c x and h_0 the past residual, that is g + w ((h_0 - h) - shift (x_0 - x)).
    """
    cdef Arrays arrays = Arrays.__new__(Arrays)
    cdef Plan p = read_plan((centre, 1, -1, -1, weight, shift), points)
    cdef char kind = kind_of(points)
    cdef void *P = arrays.take(points, len(points), p.size, kind, True)
    cdef void *R = arrays.take(residuals, len(points), p.size, kind, True)
    cdef void *X = arrays.take(x, p.size, 1, kind, False)
    cdef void *G = arrays.take(g, p.size, 1, kind, False)
    cdef void *T = arrays.take(out, p.size, 1, kind, True)
    with nogil:
        if kind == b"f":
            average_with_past[float](
                <float *> P, <float *> R, <float *> X, <float *> G, &p, <float *> T
            )
        else:
            average_with_past[double](
                <double *> P, <double *> R, <double *> X, <double *> G, &p, <double *> T
            )
