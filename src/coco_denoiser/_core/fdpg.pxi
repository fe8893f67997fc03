# The paper's Algorithm 1: the fast dual proximal gradient method, matrix-free.


cdef class Fdpg(Memory):
    """Algorithm 1, from any dual vectors.

    Args:
        problem: residuals, bounds and precisions.
        dual: (pairs, q), in the order of `numpy.triu_indices(K, 1)`; overwritten.
        restart: drop the momentum when it points uphill.
    """

    cdef Py_ssize_t K, q, size
    cdef bint restart
    cdef double step, t
    cdef Row h, bounds, n
    # Dual vectors s and y of all pairs (m < l, by rows), s of the iteration before, and phi.
    cdef Row s, y, before, phi

    def __init__(self, problem, dual, bint restart):
        residuals, bounds, precisions, shares = parts(problem)
        cdef Py_ssize_t K = residuals.shape[0], q = residuals.shape[1], pairs = K * (K - 1) // 2
        self.K, self.q, self.size = K, q, pairs * q
        self.h, self.bounds = self.read(residuals, K, q), self.read(bounds, K, K)
        self.n = self.read(precisions[:, None] * shares, K, q)
        self.s = self.write(dual, pairs, q)
        self.y, self.before = self.vector(self.size), self.vector(self.size)
        self.phi, self.restart, self.step, self.t = self.vector(K * q), restart, INFINITY, 1.0
        memcpy(self.y, self.s, self.size * sizeof(double))
        for k in range(K * q):
            self.step = min(self.step, self.n[k] / K)

    def iterate(self, Py_ssize_t count) -> None:
        """Make some iterations."""
        cdef double new, momentum
        with nogil:
            for _ in range(count):
                self.fill_primal()
                if self.proximal_step() and self.restart:
                    self.t = 1.0
                new = 0.5 * (1.0 + sqrt(1.0 + 4.0 * self.t * self.t))
                momentum, self.t = (self.t - 1.0) / new, new
                for k in range(self.size):
                    self.y[k] = self.s[k] + momentum * (self.s[k] - self.before[k])

    cdef bint proximal_step(self) noexcept nogil:
        """Take a step from y, and shorten each dual vector; return whether momentum went uphill."""
        cdef Py_ssize_t i, j, c, k, q = self.q, e = 0
        cdef double length, bound, keep, uphill = 0.0
        for i in range(self.K):
            for j in range(i + 1, self.K):
                length = 0.0
                for c in range(q):
                    k = e * q + c
                    self.before[k] = self.s[k]
                    self.s[k] = self.y[k] + self.step * (self.phi[i * q + c] - self.phi[j * q + c])
                    length += self.s[k] * self.s[k]
                length, bound = sqrt(length), self.step * self.bounds[i * self.K + j]
                keep = 1.0 - bound / length if length > bound else 0.0
                for k in range(e * q, e * q + q):
                    self.s[k] *= keep
                    uphill += (self.y[k] - self.s[k]) * (self.s[k] - self.before[k])
                e += 1
        return uphill > 0.0

    cdef void fill_primal(self) noexcept nogil:
        """Fill phi = h - N^-1 B y."""
        cdef Py_ssize_t i, j, c, q = self.q, e = 0
        memset(self.phi, 0, self.K * q * sizeof(double))
        for i in range(self.K):
            for j in range(i + 1, self.K):
                for c in range(q):
                    self.phi[i * q + c] -= self.y[e * q + c]
                    self.phi[j * q + c] += self.y[e * q + c]
                e += 1
        for c in range(self.K * q):
            self.phi[c] = self.h[c] + self.phi[c] / self.n[c]
