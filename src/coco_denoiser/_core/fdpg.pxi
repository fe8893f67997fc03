# The paper's Algorithm 1: the fast dual proximal gradient method, matrix-free.

cdef enum:
    CHECK_EVERY = 10  # iterations


cdef struct Dual:
    # The problem, dual vectors s and y of all pairs (m < l, by rows), and phi.
    Py_ssize_t K
    Py_ssize_t q
    double *h
    double *bounds
    double *n
    double *s
    double *y
    double *before
    double *phi


def fdpg(residuals, bounds, precisions, dual, double tol, Py_ssize_t max_iter, bint restart,
         history=None) -> int:
    """Run Algorithm 1 on dual vectors in place; return the number of iterations.

    Args:
        residuals: (K, q).
        bounds: (K, K).
        precisions: (K, q).
        dual: (pairs, q), in the order of `numpy.triu_indices(K, 1)`.
        tol: relative duality gap to reach; 0 runs all iterations.
        max_iter: limit on the iterations.
        restart: drop the momentum when it points uphill.
        history: (max_iter + 1,), filled with the dual objective at each; None if not wanted.
    """
    cdef Memory given = Memory()
    cdef Memory memory = Memory()
    cdef Dual at
    cdef Py_ssize_t K = residuals.shape[0], q = residuals.shape[1], pairs = K * (K - 1) // 2
    at.K, at.q = K, q
    at.h, at.bounds = given.read(residuals, K, q), given.read(bounds, K, K)
    at.n, at.s = given.read(precisions, K, q), given.write(dual, pairs, q)
    at.y, at.before = memory.vector(pairs * q), memory.vector(pairs * q)
    at.phi = memory.vector(K * q)
    memcpy(at.y, at.s, pairs * q * sizeof(double))
    cdef double *values = NULL if history is None else given.write(history, max_iter + 1)
    cdef double step = INFINITY, t = 1.0, new, momentum
    cdef Py_ssize_t iteration = 0, k
    with nogil:
        for k in range(K * q):
            step = min(step, at.n[k] / K)
        while True:
            fill_primal(&at, at.s)
            if values != NULL:
                values[iteration] = dual_objective(&at)
            if iteration == max_iter:
                break
            if tol > 0.0 and iteration % CHECK_EVERY == 0 and dual_gap(&at) <= tol:
                break
            fill_primal(&at, at.y)
            if proximal_step(&at, step) > 0.0 and restart:
                t = 1.0
            new = 0.5 * (1.0 + sqrt(1.0 + 4.0 * t * t))
            momentum, t = (t - 1.0) / new, new
            for k in range(pairs * q):
                at.y[k] = at.s[k] + momentum * (at.s[k] - at.before[k])
            iteration += 1
    return iteration


cdef double proximal_step(Dual *at, double step) noexcept nogil:
    """Take a step from y, and shorten each dual vector; return whether momentum went uphill."""
    cdef Py_ssize_t i, j, c, k, q = at.q, e = 0
    cdef double length, bound, keep, uphill = 0.0
    for i in range(at.K):
        for j in range(i + 1, at.K):
            length = 0.0
            for c in range(q):
                k = e * q + c
                at.before[k] = at.s[k]
                at.s[k] = at.y[k] + step * (at.phi[i * q + c] - at.phi[j * q + c])
                length += at.s[k] * at.s[k]
            length, bound = sqrt(length), step * at.bounds[i * at.K + j]
            keep = 1.0 - bound / length if length > bound else 0.0
            for k in range(e * q, e * q + q):
                at.s[k] *= keep
                uphill += (at.y[k] - at.s[k]) * (at.s[k] - at.before[k])
            e += 1
    return uphill


cdef void fill_primal(Dual *at, double *s) noexcept nogil:
    """Fill phi = h - N^-1 B s."""
    cdef Py_ssize_t i, j, c, q = at.q, e = 0
    memset(at.phi, 0, at.K * q * sizeof(double))
    for i in range(at.K):
        for j in range(i + 1, at.K):
            for c in range(q):
                at.phi[i * q + c] -= s[e * q + c]
                at.phi[j * q + c] += s[e * q + c]
            e += 1
    for c in range(at.K * q):
        at.phi[c] = at.h[c] + at.phi[c] / at.n[c]


cdef double dual_objective(Dual *at) noexcept nogil:
    """Return the dual objective that the paper's figure on warm starts shows."""
    cdef Py_ssize_t i, j, c, q = at.q, e = 0
    cdef double total = 0.0, squared
    for c in range(at.K * q):
        total += 0.5 * at.n[c] * (at.phi[c] - at.h[c]) ** 2
    for i in range(at.K):
        for j in range(i + 1, at.K):
            squared = 0.0
            for c in range(q):
                squared += at.s[e * q + c] ** 2
                total -= at.s[e * q + c] * (at.h[i * q + c] - at.h[j * q + c])
            if squared > 0.0:  # a free pair has no dual vector, and an infinite bound
                total += at.bounds[i * at.K + j] * sqrt(squared)
            e += 1
    return total


cdef double dual_gap(Dual *at) noexcept nogil:
    """Return the relative gap of phi, shrunk until every pair fits."""
    cdef Py_ssize_t i, j, c, q = at.q, e = 0
    cdef double shrink = 1.0, gap = 0.0, value = 0.0, squared, work, strength
    for i in range(at.K):
        for j in range(i):
            squared = squared_distance(at.phi + i * q, at.phi + j * q, q)
            if squared > at.bounds[i * at.K + j] ** 2:
                shrink = min(shrink, at.bounds[i * at.K + j] / sqrt(squared))
    for c in range(at.K * q):
        gap += 0.5 * at.n[c] * ((1.0 - shrink) * at.phi[c]) ** 2
        value += 0.5 * at.n[c] * (shrink * at.phi[c] - at.h[c]) ** 2
    for i in range(at.K):
        for j in range(i + 1, at.K):
            squared, work = 0.0, 0.0
            for c in range(q):
                squared += at.s[e * q + c] ** 2
                work += at.s[e * q + c] * shrink * (at.phi[i * q + c] - at.phi[j * q + c])
            if squared > 0.0:
                strength = sqrt(squared)
                gap += max(
                    fabs(at.bounds[i * at.K + j] * strength - work) - 0.5 * ROUNDING * strength, 0.0
                )
            e += 1
    return gap / value if gap > 0.0 else 0.0
