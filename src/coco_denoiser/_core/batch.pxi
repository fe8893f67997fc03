# What a batch needs around its solver: the reduction to a problem, and the way back.

cdef enum:
    SWEEPS = 20  # over all pairs, to repair what rounding has left
    FEW = 32  # with so few coordinates, rotating into fewer does not pay

cdef extern from *:
    """
    #define FREE 1e100 /* a bound that no pair exceeds: residuals are of size 1 */
    """
    double FREE


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


cdef void fill_residuals(Batch batch, Py_ssize_t origin) noexcept nogil:
    """Fill in residuals relative to one observation."""
    cdef Py_ssize_t d = batch.d, i, j
    cdef double *x
    cdef double *g
    cdef double *y = batch.x + origin * d
    cdef double *k = batch.g + origin * d
    for i in range(batch.K):
        x, g = batch.x + i * d, batch.g + i * d
        for j in range(d):
            batch.h[i * d + j] = (g[j] - k[j]) - batch.c * (x[j] - y[j])


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
        coordinates: the same, rotated into (K, K) if d is much larger.
        bounds: (K, K), how far apart they may be.
        precisions: (K,), the largest being 1.
        scale: the size of one unit of a residual.
        least: the smallest variance.
    """

    cdef readonly object residuals, coordinates, bounds, precisions
    cdef readonly double scale, least
    cdef Arrays given  # keeps what the pointers point to
    cdef Py_ssize_t K, d
    cdef double c, r
    cdef double *x
    cdef double *g
    cdef double *h
    cdef double *rho
    cdef double *variances

    def __init__(self, points, gradients, variances, double c, double r):
        cdef Arrays given = Arrays.__new__(Arrays)
        cdef Py_ssize_t K = points.shape[0], d = points.shape[1]
        self.given, self.K, self.d, self.c, self.r = given, K, d, c, r
        self.x, self.g = given.read(points, K, d), given.read(gradients, K, d)
        self.variances = given.read(variances, K)
        self.residuals, self.bounds, self.precisions = empty((K, d)), empty((K, K)), empty(K)
        self.h, self.coordinates = given.write(self.residuals, K, d), self.residuals
        self.rho = given.write(self.bounds, K, K)
        cdef double *n = given.write(self.precisions, K)
        with nogil:
            reduce_batch(self, n)
        cdef Memory memory
        if d > max(K, <Py_ssize_t> FEW):
            memory, self.coordinates = Memory(), empty((K, K))
            rotate(copy_in(memory, self.h, K, d), K, d, given.write(self.coordinates, K, K))

    def solve(self, double tol, int max_iter, double within):
        """Solve a problem, and return to the units of the batch.

        Args:
            tol: relative gap and violation to reach.
            max_iter: limit on the steps; -1 leaves it to the method.
            within: residuals may break their bounds by this share of them.

        Returns:
            Gradients (K, d), weights (K, K), multipliers (K, K), the number of steps, gap,
            violation, whether the gradients have changed, and the name of the method; None if it
            falls short.
        """
        cdef Arrays given = Arrays.__new__(Arrays)
        cdef Py_ssize_t K = self.K, k
        cdef Workspace ws = borrow(K, self.coordinates.shape[1])
        cdef double *lam
        ws.load(self.coordinates, self.bounds, self.precisions)
        ws.tol, ws.within, answer = tol, within, None
        if ws.solve(max_iter):
            gradients, weights, multipliers = empty((K, self.d)), empty((K, K)), empty((K, K))
            add_moves(self, ws, given.write(gradients, K, self.d))
            copy_out(ws.W, given.write(weights, K, K), K, K)
            lam = given.write(multipliers, K, K)
            copy_out(ws.multipliers, lam, K, K)
            for k in range(K * K):
                lam[k] /= self.least
            moved, worst = repair(self, gradients, tol)
            if worst == 0.0:
                moved = moved or ws.active > 0
                found = ws.steps, ws.gap, ws.violation, moved, ws.method
                answer = gradients, weights, multipliers, *found
        give_back(ws)
        return answer

    def restore(self, move, double tol):
        """Return the denoised gradients (K, d), whose pairs obey their bounds.

        Args:
            move: (K, d), by how much the gradients differ from those observed; None if they do not.
            tol: how far a pair may exceed its bound, relative to it.

        Returns:
            The gradients, and what `repair` returns.
        """
        cdef Arrays given = Arrays.__new__(Arrays)
        cdef Py_ssize_t K = self.K, d = self.d, k
        cdef double *moves
        gradients = empty((K, d))
        cdef double *theta = given.write(gradients, K, d)
        memcpy(theta, self.g, K * d * sizeof(double))
        if move is not None:
            moves = given.read(move, K, d)
            for k in range(K * d):
                theta[k] += moves[k]
        return gradients, *repair(self, gradients, tol)


def repair(Batch batch not None, gradients, double tol):
    """Draw pairs together whose own digits say that they break their bounds.

    Residuals are rounded relative to the most central one. Pairs that lie elsewhere may have more
    digits of their own. The moves are a few roundings of residuals, and keep the weighted centroid.

    Args:
        batch: the observations.
        gradients: (K, d), denoised; overwritten.
        tol: how far a pair may exceed its bound, relative to it.

    Returns:
        Whether any pair moved, and the worst relative violation that is left.
    """
    cdef Arrays given = Arrays.__new__(Arrays)
    cdef Memory memory = Memory()
    cdef Repair task
    cdef Py_ssize_t K = batch.K, d = batch.d, k
    task.tol, task.moved = tol, False
    task.theta, task.size = given.write(gradients, K, d), memory.vector(K)
    cdef double *parts = memory.vector(2 * d)
    with nogil:
        for k in range(K):
            task.size[k] = size_of_sum(batch, task.theta + k * d, k, parts)
        for k in range(SWEEPS + 1):
            if not sweep_pairs(batch, &task, k < SWEEPS):
                break
    return task.moved, task.worst


cdef void reduce_batch(Batch batch, double *n) noexcept nogil:
    """Fill in residuals, bounds and precisions."""
    cdef Py_ssize_t K = batch.K, d = batch.d, central, k
    cdef double *h = batch.h
    # Differences first: a shift of all points or gradients leaves no rounding behind. From an
    # observation near the others, so that one far away leaves none either.
    fill_residuals(batch, 0)
    central = most_central(h, K, d, n)
    if central != 0:
        fill_residuals(batch, central)
        central = most_central(h, K, d, n)
    batch.scale = standardise_rows(h, K, d, central)
    fill_distances(batch.x, K, d, batch.rho)
    for k in range(K * K):
        batch.rho[k] = min(batch.r * batch.rho[k] / batch.scale, FREE)
    batch.least = INFINITY
    for k in range(K):
        batch.least = min(batch.least, batch.variances[k])
    for k in range(K):
        n[k] = batch.least / batch.variances[k]


cdef void rotate(Table h, Py_ssize_t K, Py_ssize_t d, double *out) noexcept nogil:
    """Fill in coordinates (K, K) of K vectors, which are overwritten, by Gram and Schmidt.

    From the vectors, not from the table of distances: close residuals would lose half of their
    digits there. Directions may lose orthogonality; coordinates are as good as Householder's.
    """
    cdef Py_ssize_t i, j
    cdef double length
    memset(out, 0, K * K * sizeof(double))
    for j in range(K):
        length = sqrt(dot(row(h, j), row(h, j), d))
        out[j * K + j] = length
        if length > 0.0:
            multiply(row(h, j), 1.0 / length, d)
            for i in range(j + 1, K):
                out[i * K + j] = dot(row(h, i), row(h, j), d)
                add_multiple(row(h, i), -out[i * K + j], row(h, j), d)


cdef void add_moves(Batch batch, Workspace ws, double *theta) noexcept nogil:
    """Let theta be the gradients and what the residuals of an answer have moved."""
    cdef Py_ssize_t K = batch.K, d = batch.d, i, j, c
    cdef double *h = batch.h
    cdef double w
    memcpy(theta, batch.g, K * d * sizeof(double))
    for i in range(K):
        if ws.q == d:
            for c in range(d):
                theta[i * d + c] += batch.scale * (row(ws.phi, i)[c] - h[i * d + c])
            continue
        for j in range(K):
            w = batch.scale * (row(ws.W, i)[j] - (i == j))
            for c in range(d):
                theta[i * d + c] += w * h[j * d + c]


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
            rho = batch.rho[i * batch.K + j] * batch.scale
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
