# What a batch needs around its solver: the reduction to a problem, and the way back.

cdef enum:
    SWEEPS = 20  # over all pairs, to repair what rounding has left


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
    for i in range(K):
        table[i * K + i] = 0.0
        for j in range(i):
            table[i * K + j] = table[j * K + i] = sqrt(squared_distance(v + i * d, v + j * d, d))


def reduce(points, gradients, double c, double r, double largest):
    """Return residuals (K, d), bounds (K, K) and the scale of both; 0 for input out of range.

    Args:
        points: (K, d).
        gradients: (K, d).
        c: centre of the curvature bounds.
        r: their radius.
        largest: the largest magnitude that needs no other units; the least is its inverse.
    """
    cdef Arrays given = Arrays()
    cdef Py_ssize_t K = points.shape[0], d = points.shape[1], central
    cdef double *x = given.read(points, K, d)
    cdef double *g = given.read(gradients, K, d)
    residuals, bounds = empty((K, d)), empty((K, K))
    cdef double *h = given.write(residuals, K, d)
    cdef double *rho = given.write(bounds, K, K)
    cdef double scale = 0.0
    with nogil:
        if is_in_range(x, K * d, largest) and is_in_range(g, K * d, largest):
            # Differences first: a shift of all points or gradients leaves no rounding behind. From
            # an observation near the others, so that one far away leaves none either.
            central = fill_residuals(h, x, g, c, K, d, 0)
            if central != 0:
                central = fill_residuals(h, x, g, c, K, d, central)
            scale = standardise_rows(h, K, d, central)
            fill_distances(x, K, d, rho)
            for k in range(K * K):
                rho[k] *= r / scale
    return residuals, bounds, scale


cdef bint is_in_range(double *v, Py_ssize_t n, double largest) noexcept nogil:
    """Return whether the largest magnitude is zero, or neither too large nor too small."""
    cdef double top = 0.0
    for k in range(n):
        top = max(top, fabs(v[k]))
    return top == 0.0 or 1.0 / largest < top < largest


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


def repair(theta, points, gradients, bounds, variances, curvature, double tol):
    """Draw pairs together whose own digits say that they break their bounds; overwrite theta.

    The moves are a few roundings of residuals, and keep the weighted centroid.

    Args:
        theta: (K, d), denoised gradients.
        points: (K, d).
        gradients: (K, d), as they were observed.
        bounds: (K, K); a pair whose bound is infinite is not constrained.
        variances: (K,).
        curvature: centre c and radius r of the curvature bounds.
        tol: how far a pair may exceed its bound, relative to it.

    Returns:
        Whether any pair moved, and the worst relative violation that is left.
    """
    cdef Arrays given = Arrays()
    cdef Memory memory = Memory()
    cdef Repair task
    cdef Py_ssize_t K = theta.shape[0], d = theta.shape[1], k, i
    task.K, task.d, task.tol = K, d, tol
    task.c, task.r = curvature
    task.theta, task.x = given.write(theta, K, d), given.read(points, K, d)
    task.bounds, task.variances = given.read(bounds, K, K), given.read(variances, K)
    task.size, task.moved = memory.vector(K), False
    cdef double *g = given.read(gradients, K, d)
    cdef double total
    for i in range(K):
        total = 0.0
        for k in range(i * d, i * d + d):
            total += (fabs(task.theta[k]) + fabs(g[k]) + fabs(task.c * task.x[k])) ** 2
        task.size[i] = sqrt(total)
    with nogil:
        for k in range(SWEEPS + 1):
            if not sweep_pairs(&task, k < SWEEPS):
                break
    return task.moved, task.worst


cdef struct Repair:
    Py_ssize_t K
    Py_ssize_t d
    double c
    double r
    double tol
    double *theta
    double *x
    double *bounds
    double *variances
    double *size  # of what each gradient is the sum of
    bint moved
    double worst


cdef bint sweep_pairs(Repair *task, bint move) noexcept nogil:
    """Look at every pair once, and move those that break their bounds; False if none does."""
    cdef Py_ssize_t i, j, d = task.d
    cdef double length, rho, excess, lost
    cdef bint broken = False
    task.worst = 0.0
    for i in range(task.K):
        for j in range(i):
            if task.bounds[i * task.K + j] == INFINITY:
                continue
            length = sqrt(squared_residual(
                task.theta + i * d, task.theta + j * d, task.c, task.x + i * d, task.x + j * d, d
            ))
            rho = task.r * sqrt(squared_distance(task.x + i * d, task.x + j * d, d))
            excess, lost = length - rho, 0.5 * ROUNDING * (task.size[i] + task.size[j])
            if excess <= 0.5 * task.tol * rho + lost:
                continue
            broken = True
            if excess > task.tol * rho + 3.0 * lost:
                task.worst = max(task.worst, excess / (rho + lost))
            if move:
                draw_together(task, i, j, excess / length)
                task.moved = True
    return broken


cdef void draw_together(Repair *task, Py_ssize_t i, Py_ssize_t j, double share) noexcept nogil:
    """Take a share of their difference from a pair, the noisier one moving more."""
    cdef double own = task.variances[i] / (task.variances[i] + task.variances[j]), v
    cdef Py_ssize_t a = i * task.d, b = j * task.d, k
    for k in range(task.d):
        v = (task.theta[a + k] - task.theta[b + k]) - task.c * (task.x[a + k] - task.x[b + k])
        task.theta[a + k] -= own * share * v
        task.theta[b + k] += (1.0 - own) * share * v


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
