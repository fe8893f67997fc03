# What a batch needs around its solver: the reduction to a problem, and the way back.

cdef enum:
    SWEEPS = 20  # over all pairs, to repair what rounding has left

cdef extern from *:
    """
    #define TINY 1e-292 /* a sum of squares below this has lost digits */
    #define FREE 1e100 /* a bound that no pair exceeds: residuals are of size 1 */
    """
    double TINY, FREE


def distances(vectors):
    """Return the distances between vectors (K, d), as a table (K, K)."""
    cdef Arrays given = Arrays()
    cdef Py_ssize_t K = vectors.shape[0], d = vectors.shape[1]
    cdef double *v = given.read(vectors, K, d)
    table = empty((K, K))
    fill_distances(v, K, d, given.write(table, K, K))
    return table


cdef void fill_distances(double *v, Py_ssize_t K, Py_ssize_t d, double *table) noexcept nogil:
    """Fill a table with the distances between vectors."""
    cdef Py_ssize_t i, j
    cdef double *a
    cdef double *b
    for i in range(K):
        a, table[i * K + i] = v + i * d, 0.0
        for j in range(i):
            b = v + j * d
            table[i * K + j] = table[j * K + i] = root(squared_distance(a, b, d), a, b, 0.0, a, b, d)


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


def fits(points, gradients, double c, double limit) -> bool:
    """Return whether no entry of points x, gradients g and g - c x exceeds a limit or is NaN."""
    cdef Arrays given = Arrays.__new__(Arrays)
    cdef Py_ssize_t K = points.shape[0], d = points.shape[1], k
    cdef double *x = given.read(points, K, d)
    cdef double *g = given.read(gradients, K, d)
    cdef int inside = 1
    for k in range(K * d):
        inside &= (
            (fabs(x[k]) <= limit) & (fabs(g[k]) <= limit) & (fabs(g[k] - c * x[k]) <= limit)
        )
    return inside == 1


cdef Py_ssize_t fill_residuals(
    double *h, double *x, double *g, double c, Py_ssize_t K, Py_ssize_t d, Py_ssize_t origin
) noexcept nogil:
    """Fill in residuals relative to one observation; return the most central one."""
    cdef Py_ssize_t i, j, k, o
    for i in range(K):
        for j in range(d):
            k, o = i * d + j, origin * d + j
            h[k] = (g[k] - g[o]) - c * (x[k] - x[o])
    return most_central(h, K, d)


cdef Py_ssize_t most_central(double *h, Py_ssize_t K, Py_ssize_t d) noexcept nogil:
    """Return the residual that is nearest to the others overall."""
    cdef Py_ssize_t i, j, best = 0
    cdef double total, least = INFINITY
    for i in range(K):
        total = 0.0
        for j in range(K):
            total += absolute_distance(h + i * d, h + j * d, d)
        if total < least:
            best, least = i, total
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
    cdef Arrays given = Arrays()
    cdef Py_ssize_t K = residuals.shape[0], d = residuals.shape[1]
    cdef double *h = given.write(residuals, K, d)
    return standardise_rows(h, K, d, most_central(h, K, d))


def worst_ratio(phi, residuals, bounds, double roundings) -> float:
    """Return the largest ratio of distance to bound, some roundings of phi forgiven.

    The distance of a pair is known relative to its two residuals, and to how far they have moved.
    Not to the largest of all: next to one that is far away, the others still have all digits.
    """
    cdef Arrays given = Arrays()
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
    cdef Arrays given = Arrays()
    cdef Py_ssize_t K = bounds.shape[0]
    cdef double *rho = given.read(bounds, K, K)
    cdef Py_ssize_t *label = <Py_ssize_t *> given.take(labels, K, 1, INDEX, True)
    return label_groups(rho, K, K, limit, label)


cdef class Batch:
    """A batch of observations: its reduced problem, and the way back.

    Args:
        points: (K, d).
        gradients: (K, d), as they were observed.
        variances: (K,), of their noise.
        c: centre of the curvature bounds.
        r: their radius.

    Attributes:
        residuals: (K, d), the largest entry being 1 and the most central residual zero.
        bounds: (K, K), how far apart they may be.
        precisions: (K,), the largest being 1.
        scale: the size of one unit of a residual.
    """

    cdef readonly object residuals, bounds, precisions
    cdef readonly double scale
    cdef Arrays given  # keeps what the pointers point to
    cdef Py_ssize_t K, d
    cdef double c, r
    cdef double *x
    cdef double *g
    cdef double *variances

    def __init__(self, points, gradients, variances, double c, double r):
        cdef Arrays given = Arrays.__new__(Arrays)
        cdef Py_ssize_t K = points.shape[0], d = points.shape[1]
        self.given, self.K, self.d, self.c, self.r = given, K, d, c, r
        self.x, self.g = given.read(points, K, d), given.read(gradients, K, d)
        self.variances = given.read(variances, K)
        self.residuals, self.bounds, self.precisions = empty((K, d)), empty((K, K)), empty(K)
        cdef double *h = given.write(self.residuals, K, d)
        cdef double *rho = given.write(self.bounds, K, K)
        cdef double *n = given.write(self.precisions, K)
        with nogil:
            reduce_batch(self, h, rho, n)

    def restore(self, move, double tol):
        """Return the denoised gradients (K, d), whose pairs obey their bounds.

        Residuals are rounded relative to the most central one. Pairs that lie elsewhere may have
        more digits of their own: those that break their bounds by them are drawn together. That
        takes a few roundings of residuals, and keeps the weighted centroid.

        Args:
            move: (K, d), by how much the gradients differ from those observed; None if they do not.
            tol: how far a pair may exceed its bound, relative to it.

        Returns:
            The gradients, whether any pair was drawn together, and the worst relative violation
            that is left.
        """
        cdef Arrays given = Arrays.__new__(Arrays)
        cdef Memory memory = Memory()
        cdef Repair task
        cdef Py_ssize_t K = self.K, d = self.d, k
        cdef double *moves
        task.tol, task.moved = tol, False
        found = empty((K, d))
        task.theta, task.size = given.write(found, K, d), memory.vector(K)
        memcpy(task.theta, self.g, K * d * sizeof(double))
        if move is not None:
            moves = given.read(move, K, d)
            for k in range(K * d):
                task.theta[k] += moves[k]
        cdef double *parts = memory.vector(2 * d)
        with nogil:
            for k in range(K):
                task.size[k] = size_of_sum(self, task.theta + k * d, k, parts)
            for k in range(SWEEPS + 1):
                if not sweep_pairs(self, &task, k < SWEEPS):
                    break
        return found, task.moved, task.worst


cdef void reduce_batch(Batch batch, double *h, double *rho, double *n) noexcept nogil:
    """Fill in residuals, bounds and precisions."""
    cdef Py_ssize_t K = batch.K, d = batch.d, central, k
    cdef double least = INFINITY
    # Differences first: a shift of all points or gradients leaves no rounding behind. From an
    # observation near the others, so that one far away leaves none either.
    central = fill_residuals(h, batch.x, batch.g, batch.c, K, d, 0)
    if central != 0:
        central = fill_residuals(h, batch.x, batch.g, batch.c, K, d, central)
    batch.scale = standardise_rows(h, K, d, central)
    fill_distances(batch.x, K, d, rho)
    for k in range(K * K):
        rho[k] = min(batch.r * rho[k] / batch.scale, FREE)
    for k in range(K):
        least = min(least, batch.variances[k])
    for k in range(K):
        n[k] = least / batch.variances[k]


cdef struct Repair:
    double tol
    double *theta
    double *size  # of what each gradient is the sum of
    bint moved
    double worst


cdef double size_of_sum(Batch batch, double *theta, Py_ssize_t i, double *parts) noexcept nogil:
    """Return the size of what a gradient is the sum of; parts holds 2 d numbers, the last zero."""
    cdef Py_ssize_t d = batch.d, k
    cdef double *x = batch.x + i * d
    cdef double *g = batch.g + i * d
    for k in range(d):
        parts[k] = fabs(theta[k]) + fabs(g[k]) + fabs(batch.c * x[k])
    return root(squared_distance(parts, parts + d, d), parts, parts + d, 0.0, x, x, d)


cdef bint sweep_pairs(Batch batch, Repair *task, bint move) noexcept nogil:
    """Look at every pair once, and move those that break their bounds; False if none does."""
    cdef Py_ssize_t i, j, d = batch.d
    cdef double length, rho, excess, lost
    cdef double *a
    cdef double *b
    cdef double *x
    cdef double *y
    cdef bint broken = False
    task.worst = 0.0
    for i in range(batch.K):
        a, x = task.theta + i * d, batch.x + i * d
        for j in range(i):
            b, y = task.theta + j * d, batch.x + j * d
            length = root(squared_residual(a, b, batch.c, x, y, d), a, b, batch.c, x, y, d)
            rho = batch.r * root(squared_distance(x, y, d), x, y, 0.0, x, y, d)
            excess, lost = length - rho, 0.5 * ROUNDING * (task.size[i] + task.size[j])
            if excess <= 0.5 * task.tol * rho + lost:
                continue
            broken = True
            if excess > task.tol * rho + 3.0 * lost:
                task.worst = max(task.worst, excess / (rho + lost))
            if move:
                draw_together(batch, task.theta, i, j, excess / length)
                task.moved = True
    return broken


cdef void draw_together(
    Batch batch, double *theta, Py_ssize_t i, Py_ssize_t j, double share
) noexcept nogil:
    """Take a share of their difference from a pair, the noisier one moving more."""
    cdef double own = batch.variances[i] / (batch.variances[i] + batch.variances[j]), v
    cdef Py_ssize_t a = i * batch.d, b = j * batch.d, k
    for k in range(batch.d):
        v = (theta[a + k] - theta[b + k]) - batch.c * (batch.x[a + k] - batch.x[b + k])
        theta[a + k] -= own * share * v
        theta[b + k] += (1.0 - own) * share * v


def spread(first, second, v, x, pull) -> None:
    """Fill pull, (K, q), with the forces on the points of forces x v on the pairs, (m, q)."""
    cdef Arrays given = Arrays()
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
    cdef Arrays given = Arrays()
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
