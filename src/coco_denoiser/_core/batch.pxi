# What a batch needs around its solver: the reduction to a problem, and the way back.

cdef enum:
    SWEEPS = 20  # over all pairs, to repair what rounding has left
    FEW = 32  # with so few coordinates, rotating into fewer does not pay

def fits(points, gradients, double c, double limit) -> bool:
    """Return whether no entry of points x, gradients g and g - c x exceeds a limit or is NaN."""
    cdef Memory given = Memory.__new__(Memory)
    cdef Py_ssize_t K = points.shape[0], d = points.shape[1], k
    cdef Row x = given.read(points, K, d), g = given.read(gradients, K, d)
    cdef int inside = 1
    for k in range(K * d):
        inside &= (
            (fabs(x[k]) <= limit) & (fabs(g[k]) <= limit) & (fabs(g[k] - c * x[k]) <= limit)
        )
    return inside == 1


cdef void fill_residuals(Batch batch, Py_ssize_t origin) noexcept nogil:
    """Fill in residuals relative to one observation."""
    cdef Py_ssize_t d = batch.d, i, j
    cdef Row x, g, y = batch.x + origin * d, k = batch.g + origin * d
    for i in range(batch.K):
        x, g = batch.x + i * d, batch.g + i * d
        for j in range(d):
            batch.h[i * d + j] = (g[j] - k[j]) - batch.c * (x[j] - y[j])


cdef class Batch(Memory):
    """A batch of observations: its reduced problem, and the way back.

    Args:
        points: (K, d).
        gradients: (K, d), as they were observed.
        variances: (K,), of their noise.
        c: centre of the curvature bounds.
        r: their radius.

    Attributes:
        gradients: what it was given.
        residuals: (K, d), the largest entry being 1 and the most central residual zero.
        coordinates: the same, rotated into (K, K) if d is much larger.
        bounds: (K, K), how far apart they may be.
        precisions: (K,), the largest being 1.
        scale: the size of one unit of a residual.
        least: the smallest variance.
    """

    cdef readonly object gradients, residuals, coordinates, bounds, precisions
    cdef readonly double scale, least
    cdef Py_ssize_t K, d
    cdef double c, r
    cdef Row x, g, h, rho, variances

    def __init__(self, points, gradients, variances, double c, double r):
        cdef Py_ssize_t K = points.shape[0], d = points.shape[1], k
        cdef Table spare
        self.gradients, self.K, self.d, self.c, self.r = gradients, K, d, c, r
        self.x, self.g = self.read(points, K, d), self.read(gradients, K, d)
        self.variances = self.read(variances, K)
        self.residuals, self.bounds, self.precisions = empty((K, d)), empty((K, K)), empty(K)
        self.h, self.coordinates = self.write(self.residuals, K, d), self.residuals
        self.rho = self.write(self.bounds, K, K)
        cdef Row n = self.write(self.precisions, K)
        with nogil:
            reduce_batch(self, n)
        if d > max(K, <Py_ssize_t> FEW):
            self.coordinates = empty((K, K))
            spare = self.table(K, d)
            for k in range(K):
                memcpy(row(spare, k), self.h + k * d, d * sizeof(double))
            rotate(spare, K, d, self.write(self.coordinates, K, K))

    def solve(self, double tol, max_iter):
        """Solve the problem, as the function `solve` does, which has the same arguments.

        Returns:
            The gradients (K, d) of the answer, and the answer.
        """
        cdef Memory given = Memory()
        cdef Workspace ws = borrow(self.K, self.coordinates.shape[1])
        ws.load(self.coordinates, self.bounds, self.precisions)
        ws.aim(tol, max_iter)
        ws.solve()
        gradients = empty((self.K, self.d))
        add_moves(self, ws, given.write(gradients, self.K, self.d))
        answer = ws.answer()
        give_back(ws)
        return gradients, answer


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
    cdef Memory memory = Memory()
    cdef Py_ssize_t K = batch.K, d = batch.d, k
    cdef Row theta = memory.write(gradients, K, d), size = memory.vector(K)
    cdef Row parts = memory.vector(2 * d)
    cdef double worst = 0.0
    cdef int sweeps = 0
    with nogil:
        for k in range(K):
            size[k] = size_of_sum(batch, theta + k * d, k, parts)
        while sweeps <= SWEEPS:
            worst = sweep_pairs(batch, theta, size, tol, sweeps < SWEEPS)
            if worst < 0.0:
                break
            sweeps += 1
    return sweeps > 0, max(worst, 0.0)


cdef void reduce_batch(Batch batch, Row n) noexcept nogil:
    """Fill in residuals, bounds and precisions."""
    cdef Py_ssize_t K = batch.K, d = batch.d, central, k
    cdef Row h = batch.h
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


cdef void rotate(Table h, Py_ssize_t K, Py_ssize_t d, Row out) noexcept nogil:
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


cdef void add_moves(Batch batch, Workspace ws, Row theta) noexcept nogil:
    """Let theta be the gradients and what the residuals of an answer have moved."""
    cdef Py_ssize_t K = batch.K, d = batch.d, i, j, c
    cdef Row h = batch.h
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


cdef double size_of_sum(Batch batch, Row theta, Py_ssize_t i, Row parts) noexcept nogil:
    """Return the size of what a gradient is the sum of; parts holds 2 d numbers, the last zero."""
    cdef Py_ssize_t d = batch.d, k
    cdef Row x = batch.x + i * d, g = batch.g + i * d
    for k in range(d):
        parts[k] = fabs(theta[k]) + fabs(g[k]) + fabs(batch.c * x[k])
    return root(squared_distance(parts, parts + d, d), parts, parts + d, 0.0, x, x, d)


cdef double sweep_pairs(Batch batch, Row theta, Row size, double tol, bint move) noexcept nogil:
    """Move the pairs that break their bounds, the noisier point more.

    Args:
        batch: the observations.
        theta: (K, d).
        size: (K,), of what each gradient is the sum of.
        tol: how far a pair may exceed its bound, relative to it.
        move: whether to move them.

    Returns:
        The worst relative violation before the moves; -1 if no pair breaks its bound.
    """
    cdef Py_ssize_t i, j, k, d = batch.d
    cdef double length, rho, excess, lost, share, own, v, c = batch.c, worst = -1.0
    cdef Row a, b, x, y
    for i in range(batch.K):
        a, x = theta + i * d, batch.x + i * d
        for j in range(i):
            b, y = theta + j * d, batch.x + j * d
            length = root(squared_residual(a, b, c, x, y, d), a, b, c, x, y, d)
            rho = batch.rho[i * batch.K + j] * batch.scale
            excess, lost = length - rho, 0.5 * ROUNDING * (size[i] + size[j])
            if excess <= 0.5 * tol * rho + lost:
                continue
            worst = max(worst, excess / (rho + lost) if excess > tol * rho + 3.0 * lost else 0.0)
            if not move:
                continue
            share, own = excess / length, batch.variances[i]
            own /= batch.variances[i] + batch.variances[j]
            for k in range(d):
                v = (a[k] - b[k]) - c * (x[k] - y[k])
                a[k] -= own * share * v
                b[k] += (1.0 - own) * share * v
    return worst
