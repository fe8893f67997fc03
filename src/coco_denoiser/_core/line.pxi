# Exact multipliers of points on a line, whose bounds may differ by any number of decades.
#
# In one dimension only neighbours bound each other. With the points in order, the problem is
#
#     minimise  1/2 sum_k n_k (phi_k - h_k)^2   subject to   |phi_k+1 - phi_k| <= rho_k,
#
# and dynamic programming solves it. Let F_k be the least cost of the first k points as a function
# of phi_k. Its derivative is increasing and piecewise linear, and zero at m_k. To allow for rho_k,
# what lies to the left of m_k moves left by rho_k, the rest moves right, and between them the
# derivative is zero; then point k + 1 adds n (phi - h). On the way back phi_k is m_k, clipped to
# what phi_k+1 allows. The force between two points is the sum of n (h - phi) on one side of them,
# and their multiplier that force over their bound.


@cython.final
cdef class Line(Memory):
    """Points in the order in which they lie on a line."""

    cdef Py_ssize_t K, corners
    cdef Indices order
    cdef Row h, n, phi, near
    cdef Row rho, lam  # between a point and the next
    cdef Row corner, value  # where the slope of the derivative changes, and the derivative there

    def __cinit__(self, Py_ssize_t K):
        self.K = K
        self.order = self.indices(2 * K)
        self.h, self.n, self.rho = self.vector(K), self.vector(K), self.vector(K)
        self.lam, self.phi, self.near = self.vector(K), self.vector(K), self.vector(K)
        self.corner, self.value = self.vector(2 * K), self.vector(2 * K)

    cdef bint arrange(self, Table bounds) noexcept nogil:
        """Put the points in order; return False if they are not on a line.

        The nearest to an end of those found is the next: a point that is far away cannot tell the
        others apart.
        """
        cdef Py_ssize_t K = self.K, first = K, last = K, new = 0, i, k
        cdef Indices order = self.order
        cdef double least = INFINITY, length = 0.0, total
        for i in range(K):
            total = 0.0
            for k in range(K):
                total += row(bounds, i)[k]
            if total < least:
                least, new = total, i
        order[K] = new
        for i in range(K):
            self.near[i] = row(bounds, new)[i] if i != new else INFINITY
        for k in range(1, K):
            new, least = -1, INFINITY
            for i in range(K):
                if self.near[i] < least:
                    new, least = i, self.near[i]
            if new < 0:
                return False  # a pair has no bound
            if row(bounds, new)[order[first]] < row(bounds, new)[order[last]]:
                first -= 1
                order[first] = new
            else:
                last += 1
                order[last] = new
            for i in range(K):
                if self.near[i] < INFINITY:
                    self.near[i] = min(self.near[i], row(bounds, new)[i])
            self.near[new] = INFINITY
        for k in range(K):
            order[k] = order[first + k]
        for k in range(K - 1):
            self.rho[k] = row(bounds, order[k])[order[k + 1]]
            length += self.rho[k]
        return fabs(length - row(bounds, order[0])[order[K - 1]]) <= 1e-12 * length

    cdef void solve(self) noexcept nogil:
        """Find phi and the multipliers of neighbours, from h and n in the order of the points."""
        cdef Py_ssize_t K = self.K, k, i
        cdef double mass = 0.0, held
        self.corners = 0
        for k in range(K):
            mass += self.n[k]
            for i in range(self.corners):
                self.value[i] += self.n[k] * (self.corner[i] - self.h[k])
            self.phi[k] = self.zero(mass) if k else self.h[0]
            if k + 1 < K:
                self.widen(self.phi[k], self.rho[k])
        for k in range(K - 2, -1, -1):
            held = max(self.phi[k], self.phi[k + 1] - self.rho[k])
            held = min(held, self.phi[k + 1] + self.rho[k])
            self.lam[k] = (held < self.phi[k]) - (held > self.phi[k])
            self.phi[k] = held
        self.balance()

    cdef double zero(self, double steepest) noexcept nogil:
        """Return where the derivative is zero; beyond its corners it is steepest."""
        cdef Py_ssize_t right = 0, k
        cdef double rise, run
        while right < self.corners and self.value[right] < 0.0:
            right += 1
        if not 0 < right < self.corners:
            k = min(right, self.corners - 1)
            return self.corner[k] - self.value[k] / steepest
        k = right if self.value[right] < -self.value[right - 1] else right - 1
        rise = self.value[right] - self.value[right - 1]
        run = self.corner[right] - self.corner[right - 1]
        return self.corner[k] - self.value[k] / rise * run  # corners may be equal

    cdef void widen(self, double zero, double reach) noexcept nogil:
        """Allow for a bound to the next point: what lies left of the zero moves left."""
        cdef Py_ssize_t left = 0, i
        while left < self.corners and self.value[left] < 0.0:
            self.corner[left] -= reach
            left += 1
        for i in range(self.corners - 1, left - 1, -1):
            self.corner[i + 2], self.value[i + 2] = self.corner[i] + reach, self.value[i]
        self.corner[left], self.corner[left + 1] = zero - reach, zero + reach
        self.value[left] = self.value[left + 1] = 0.0
        self.corners += 2

    cdef void balance(self) noexcept nogil:
        """Find the multipliers from the forces, summed from the end that costs fewer digits.

        Before, they are the signs of these forces, and zero inside a bound.
        """
        cdef Py_ssize_t K = self.K, k
        cdef Row ahead = self.value, size = self.corner
        cdef double force = 0.0, total = 0.0, held
        for k in range(K):
            force += self.n[k] * (self.h[k] - self.phi[k])
            total += self.n[k] * (fabs(self.h[k]) + fabs(self.phi[k]))
            ahead[k], size[k] = force, total
        force = total = 0.0
        for k in range(K - 2, -1, -1):
            force -= self.n[k + 1] * (self.h[k + 1] - self.phi[k + 1])
            total += self.n[k + 1] * (fabs(self.h[k + 1]) + fabs(self.phi[k + 1]))
            held = self.lam[k] * (ahead[k] if size[k] <= total else force)
            self.lam[k] = held / self.rho[k] if held > 0.0 else 0.0


cdef void solve_line(Workspace ws, Line line) noexcept nogil:
    """Solve the problem of a workspace, if its points are on a line; the answer is h elsewhere."""
    cdef Py_ssize_t i, j, k
    if not (begin(ws, 0.0) and line.arrange(ws.bounds)):
        return
    memset(ws.lam, 0, ws.pairs * sizeof(double))
    for k in range(ws.K):
        line.h[k], line.n[k] = row(ws.h, line.order[k])[0], ws.n[line.order[k]]
    line.solve()
    for k in range(ws.K - 1):
        i, j = max(line.order[k], line.order[k + 1]), min(line.order[k], line.order[k + 1])
        ws.lam[i * (i - 1) // 2 + j] = line.lam[k]
    memcpy(ws.best, ws.lam, ws.pairs * sizeof(double))
    move(ws)
    finish(ws)
