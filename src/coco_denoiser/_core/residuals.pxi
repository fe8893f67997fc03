# Residuals and bounds of a problem: lengths, the centre, groups, forces on pairs.

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
    cdef double *v = given.read(vectors, K, d)
    table = empty((K, K))
    fill_distances(v, K, d, given.write(table, K, K))
    return table


cdef void fill_distances(double *v, Py_ssize_t K, Py_ssize_t d, double *table) noexcept nogil:
    """Fill a table with the distances between vectors."""
    cdef Py_ssize_t i, j
    cdef double length
    cdef double *a
    cdef double *b
    for i in range(K):
        a, table[i * K + i] = v + i * d, 0.0
        for j in range(i):
            b = v + j * d
            length = root(squared_distance(a, b, d), a, b, 0.0, a, b, d)
            table[i * K + j] = table[j * K + i] = length


cdef inline double root(
    double square, double *a, double *b, double c, double *x, double *y, Py_ssize_t n
) noexcept nogil:
    """Return the length of (a - b) - c (x - y) from its square, which may have underflowed."""
    return sqrt(square) if square > TINY else small_length(a, b, c, x, y, n)


cdef double small_length(
    double *a, double *b, double c, double *x, double *y, Py_ssize_t n
) noexcept nogil:
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


cdef Py_ssize_t most_central(double *h, Py_ssize_t K, Py_ssize_t d, double *total) noexcept nogil:
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


cdef double standardise_rows(
    double *h, Py_ssize_t K, Py_ssize_t d, Py_ssize_t central
) noexcept nogil:
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


def standardise(residuals) -> float:
    """Shift the most central residual to zero, scale the largest entry to 1; return the scale."""
    cdef Memory given = Memory()
    cdef Memory memory = Memory()
    cdef Py_ssize_t K = residuals.shape[0], d = residuals.shape[1]
    cdef double *h = given.write(residuals, K, d)
    return standardise_rows(h, K, d, most_central(h, K, d, memory.vector(K)))


def worst_ratio(phi, residuals, bounds, double roundings) -> float:
    """Return the largest ratio of distance to bound, some roundings of phi forgiven.

    The distance of a pair is known relative to its two residuals, and to how far they have moved.
    Not to the largest of all: next to one that is far away, the others still have all digits.
    """
    cdef Memory given = Memory()
    cdef Memory memory = Memory()
    cdef Py_ssize_t K = phi.shape[0], q = phi.shape[1], i, j, c
    cdef double *p = given.read(phi, K, q)
    cdef double *h = given.read(residuals, K, q)
    cdef double *rho = given.read(bounds, K, K)
    cdef double *size = memory.vector(K)
    cdef double worst = 0.0, apart
    for i in range(K):
        for c in range(i * q, i * q + q):
            size[i] += fabs(p[c]) + fabs(h[c] - p[c])
        for j in range(i):
            apart = sqrt(squared_distance(p + i * q, p + j * q, q))
            apart -= roundings * ROUNDING * min(1.0, size[i] + size[j])
            if apart > 0.0:
                worst = max(worst, apart / rho[i * K + j])
    return worst


def coincident(bounds, double limit, labels) -> int:
    """Number the groups of points no further apart than a limit, in the order of first members.

    Args:
        bounds: (K, K).
        limit: largest bound inside a group.
        labels: (K,) of intp, filled.

    Returns:
        How many groups there are.
    """
    cdef Memory given = Memory()
    cdef Py_ssize_t K = bounds.shape[0]
    cdef double *rho = given.read(bounds, K, K)
    cdef Py_ssize_t *label = <Py_ssize_t *> given.take(labels, K, 1, INDEX, True)
    return label_groups(rho, K, K, limit, label)


def spread(first, second, v, x, pull) -> None:
    """Fill pull, (K, q), with the forces on the points of forces x v on the pairs, (m, q)."""
    cdef Memory given = Memory()
    cdef Py_ssize_t K = pull.shape[0], q = pull.shape[1], m = len(x), e, c
    cdef Py_ssize_t *one = <Py_ssize_t *> given.take(first, m, 1, INDEX, False)
    cdef Py_ssize_t *two = <Py_ssize_t *> given.take(second, m, 1, INDEX, False)
    cdef double *vectors = given.read(v, m, q)
    cdef double *factor = given.read(x, m)
    cdef double *out = given.write(pull, K, q)
    memset(out, 0, K * q * sizeof(double))
    check_points(one, two, m, K)
    for e in range(m):
        for c in range(q):
            out[one[e] * q + c] += factor[e] * vectors[e * q + c]
            out[two[e] * q + c] -= factor[e] * vectors[e * q + c]


def collect(first, second, v, u, out) -> None:
    """Fill out, (m,), with how far the moves u of the points, (K, q), take the pairs."""
    cdef Memory given = Memory()
    cdef Py_ssize_t K = u.shape[0], q = u.shape[1], m = len(out), e, c
    cdef Py_ssize_t *one = <Py_ssize_t *> given.take(first, m, 1, INDEX, False)
    cdef Py_ssize_t *two = <Py_ssize_t *> given.take(second, m, 1, INDEX, False)
    cdef double *vectors = given.read(v, m, q)
    cdef double *moves = given.read(u, K, q)
    cdef double *found = given.write(out, m)
    cdef double total
    check_points(one, two, m, K)
    for e in range(m):
        total = 0.0
        for c in range(q):
            total += vectors[e * q + c] * (moves[one[e] * q + c] - moves[two[e] * q + c])
        found[e] = total


cdef int check_points(Py_ssize_t *one, Py_ssize_t *two, Py_ssize_t m, Py_ssize_t K) except -1:
    """Raise IndexError if a pair has a point that is not there."""
    for e in range(m):
        if not (0 <= one[e] < K and 0 <= two[e] < K):
            raise IndexError(f"pair {e} has the points {one[e]} and {two[e]} of {K}")
    return 0
