# Residuals and bounds of a problem: lengths and the centre.

cdef extern from *:
    """
    #define TINY 1e-292 /* a sum of squares below this has lost digits */
    #define CLOSE 1e-146 /* so has one whose root is below this */
    """
    double TINY, CLOSE


def distances(vectors):
    """Return the distances between vectors (K, d), as a table (K, K)."""
    cdef Memory given = Memory()
    cdef Py_ssize_t K = vectors.shape[0], d = vectors.shape[1]
    table = empty((K, K))
    fill_distances(given.read(vectors, K, d), K, d, given.write(table, K, K))
    return table


cdef void fill_distances(Row v, Py_ssize_t K, Py_ssize_t d, Row table) noexcept nogil:
    """Fill a table with the distances between vectors."""
    cdef Py_ssize_t i, j
    cdef double length
    cdef Row a, b
    for i in range(K):
        a, table[i * K + i] = v + i * d, 0.0
        for j in range(i):
            b = v + j * d
            length = root(squared_distance(a, b, d), a, b, 0.0, a, b, d)
            table[i * K + j] = table[j * K + i] = length


cdef inline double root(
    double square, Row a, Row b, double c, Row x, Row y, Py_ssize_t n
) noexcept nogil:
    """Return the length of (a - b) - c (x - y) from its square, which may have underflowed."""
    return sqrt(square) if square > TINY else small_length(a, b, c, x, y, n)


cdef double small_length(Row a, Row b, double c, Row x, Row y, Py_ssize_t n) noexcept nogil:
    """Return the length of (a - b) - c (x - y), whose square underflows."""
    cdef double top = 0.0, total = 0.0
    cdef Py_ssize_t k
    for k in range(n):
        top = max(top, fabs((a[k] - b[k]) - c * (x[k] - y[k])))
    if top == 0.0:
        return 0.0
    for k in range(n):
        total += (((a[k] - b[k]) - c * (x[k] - y[k])) / top) ** 2
    return top * sqrt(total)


cdef Py_ssize_t most_central(Row h, Py_ssize_t K, Py_ssize_t d, Row total) noexcept nogil:
    """Return the residual that is nearest to the others overall; total, (K,), is overwritten."""
    cdef Py_ssize_t i, j, best = 0
    cdef double apart
    for i in range(K):
        total[i] = 0.0
        for j in range(i):
            apart = absolute_distance(h + i * d, h + j * d, d)
            total[i] += apart
            total[j] += apart
    for i in range(K):
        if total[i] < total[best]:
            best = i
    return best


cdef double standardise_rows(Row h, Py_ssize_t K, Py_ssize_t d, Py_ssize_t central) noexcept nogil:
    """Shift the central residual to zero, scale the largest entry to 1; return the scale.

    Not their mean: next to a residual that is far away, the others would lose their digits.
    """
    cdef double scale = 0.0, origin
    cdef Py_ssize_t i, c
    for c in range(d):
        origin = h[central * d + c]
        for i in range(K):
            h[i * d + c] -= origin
            scale = max(scale, fabs(h[i * d + c]))
    if scale == 0.0:
        return 1.0
    for i in range(K * d):
        h[i] /= scale
    return scale
