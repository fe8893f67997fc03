# The linear system of the barrier method, in unknowns that save the digits.
#
# It is H = N + Laplacian(lam) + sum_e (lam_e / s_e) v_e v_e', in K q unknowns however many pairs
# there are; v_e = phi_m - phi_l, and v_e v_e' acts on the difference of the two points.
#
# A point is its parent in a tree plus a difference of its own. So near points lose nothing to where
# they are. And a parent is known at least as precisely as its children, so that no small force is
# added to a large one. Points are numbered such that those that hang on k are k, ..., stop[k] - 1;
# node 0 is the origin, on which every tree hangs. A pair counts in the equation of k if exactly one
# of its points hangs on k. Sums over those pairs are formed without the others, which would have to
# cancel.


cdef class TreeSystem(Memory):
    """A problem in the coordinates of a tree, and the system of a step."""

    cdef Py_ssize_t K, q, pairs, size
    cdef Indices above  # the point that a point hangs on; K for the origin
    # The point at each node, the node that it hangs on, the first behind those that hang on it.
    cdef Indices order, parent, stop
    cdef Indices first, second  # the two nodes of a pair, the first being the larger
    cdef Indices listed  # of a pair, where the workspace has it
    cdef Row n, shares  # precisions, and what they are multiplied by in each coordinate
    # Of every pair: bound, slack, multiplier; and what it weighs in a sum.
    cdef Row rho, s, lam, weight
    # Coordinates by columns of nodes (u, du, and edge: u from that of the parent on) or pairs
    # (v, dv); residuals by rows of nodes.
    cdef Table u, du, edge, v, dv, h
    cdef Table H  # the system, and then its factor: rows below the diagonal, pivots inverted
    cdef Row gradient, step, factors
    cdef Table A, before, after  # by nodes, (K + 1, K + 1)

    def __cinit__(self, Py_ssize_t K, Py_ssize_t q):
        cdef Py_ssize_t most = K * (K - 1) // 2
        self.K, self.q, self.size, self.pairs = K, q, K * q, 0
        self.above, self.order = self.indices(K), self.indices(K + 1)
        self.parent, self.stop = self.indices(K + 1), self.indices(K + 1)
        self.first, self.second, self.n = self.indices(most), self.indices(most), self.vector(K + 1)
        self.listed = self.indices(most)
        self.rho, self.s = self.vector(most), self.vector(most)
        self.lam, self.weight = self.vector(most), self.vector(most)
        self.u, self.du, self.edge = (
            self.table(q, K + 1), self.table(q, K + 1), self.table(q, K + 1)
        )
        self.v, self.dv, self.h = self.table(q, most), self.table(q, most), self.table(K, q)
        self.H, self.factors = self.table(self.size, self.size), self.vector(self.size)
        self.gradient, self.step = self.vector(self.size), self.vector(self.size)
        self.A, self.before = self.table(K + 1, K + 1), self.table(K + 1, K + 1)
        self.after = self.table(K + 2, K + 1)

    cdef void load(self, Workspace ws) noexcept nogil:
        """Take a problem: number its points along a tree, and list the pairs.

        The parent of a point is the nearest of those known at least as precisely. The unit is the
        longest pair that breaks its bound: next to what is far away, squares would underflow.
        """
        cdef Py_ssize_t K = self.K, i, j, m, l, e, next = 1
        cdef double least, unit = 0.0
        self.shares = ws.shares
        for e in range(ws.pairs):
            if ws.w[e] * ws.inverse[e] > 1.0:
                unit = max(unit, ws.w[e])
        for i in range(K):
            self.above[i], least = K, INFINITY
            for j in range(K):
                if ws.n[j] > ws.n[i] or (ws.n[j] == ws.n[i] and j < i):
                    if row(ws.bounds, i)[j] < least:
                        self.above[i], least = j, row(ws.bounds, i)[j]
        for i in range(K):
            if self.above[i] == K:
                next = self.number(i, 0, next)
        for i in range(1, K + 1):
            m = self.order[i]
            self.n[i] = ws.n[m]
            for j in range(self.q):
                row(self.h, i - 1)[j] = row(ws.h, m)[j] / unit
            for j in range(1, i):
                l = self.order[j]
                e = m * (m - 1) // 2 + l if l < m else l * (l - 1) // 2 + m
                if ws.inverse[e] > 0.0:
                    self.first[self.pairs], self.second[self.pairs] = i, j
                    self.listed[self.pairs], self.rho[self.pairs] = e, ws.rho[e] / unit
                    self.pairs += 1

    cdef Py_ssize_t number(self, Py_ssize_t i, Py_ssize_t parent, Py_ssize_t k) noexcept nogil:
        """Let point i be node k; number what hangs on it, and return the next node."""
        cdef Py_ssize_t j, next = k + 1
        self.order[k], self.parent[k] = i, parent
        for j in range(self.K):
            if self.above[j] == i:
                next = self.number(j, k, next)
        self.stop[k] = next
        return next

    cdef void assemble(self) noexcept nogil:
        """Fill in H, block by block of two coordinates."""
        cdef Py_ssize_t c, d, e, i, j
        cdef Row a, b
        for c in range(self.q):
            for d in range(c + 1):
                a, b = row(self.v, c), row(self.v, d)
                for e in range(self.pairs):
                    self.weight[e] = self.lam[e] / self.s[e] * a[e] * b[e]
                for i in range(self.K + 1):
                    memset(row(self.A, i), 0, (self.K + 1) * sizeof(double))
                if c == d:
                    for e in range(self.pairs):
                        self.weight[e] += self.lam[e]
                    for i in range(1, self.K + 1):
                        row(self.A, 0)[i] = row(self.A, i)[0] = self.n[i] * self.shares[c]
                for e in range(self.pairs):
                    i, j = self.first[e], self.second[e]
                    row(self.A, i)[j] = row(self.A, j)[i] = self.weight[e]
                self.block(c, d)

    cdef void block(self, Py_ssize_t c, Py_ssize_t d) noexcept nogil:
        """Fill in the block of two coordinates from the weights of the pairs, in A.

        An entry is the sum over pairs that count for k and for l >= k: if l hangs on k, those from
        l's points to what does not hang on k; else those between the two, with a minus sign.
        """
        cdef Py_ssize_t K = self.K, i, k, p, start = c * K - 1, other = d * K - 1
        cdef Row inside, before, after
        memset(row(self.before, 0), 0, (K + 1) * sizeof(double))
        memset(row(self.after, K + 1), 0, (K + 1) * sizeof(double))
        for k in range(1, K + 1):
            sum_of_rows(row(self.before, k), row(self.before, k - 1), row(self.A, k - 1), K + 1)
        for k in range(K, 0, -1):
            sum_of_rows(row(self.after, k), row(self.after, k + 1), row(self.A, k), K + 1)
        for k in range(K, 0, -1):
            inside, before = row(self.A, k), row(self.before, k)
            after = row(self.after, self.stop[k])
            if self.parent[k] > 0:
                add_multiple(row(self.A, self.parent[k]), 1.0, inside, K + 1)
            for i in range(k, self.stop[k]):
                inside[i] = before[i] + after[i]
            for i in range(self.stop[k], K + 1):
                inside[i] = -inside[i]
            for i in range(K, k - 1, -1):
                row(self.H, start + i)[other + k] = inside[i]
                if d < c:
                    row(self.H, start + k)[other + i] = inside[i]
                p = self.parent[i]
                if p >= k and i > k:
                    inside[p] += inside[i]

    cdef bint cholesky(self, double ridge) noexcept nogil:
        """Factor H from the last row on; return False if a pivot is not positive."""
        cdef Py_ssize_t i, k
        cdef Row own
        cdef double pivot
        for i in range(self.size - 1, -1, -1):
            own = row(self.H, i)
            own[i] *= 1.0 + ridge
            for k in range(i + 1, self.size):
                self.factors[k] = -row(self.H, k)[i]
            if i + 1 < self.size:
                combine(
                    own, self.factors + i + 1, row(self.H, i + 1), self.H.stride,
                    self.size - i - 1, i + 1,
                )
            if not own[i] > 0.0:
                return False
            pivot = 1.0 / sqrt(own[i])
            multiply(own, pivot, i + 1)
            own[i] = pivot
        return True

    cdef void collect(self, Py_ssize_t c) noexcept nogil:
        """Fill in a coordinate of the gradient: the forces across the edge of every subtree."""
        cdef Py_ssize_t K = self.K, e, i, j, k
        cdef double total
        cdef Row a = row(self.v, c), u = row(self.u, c)
        for i in range(K + 1):
            memset(row(self.A, i), 0, (K + 1) * sizeof(double))
            row(self.A, i)[0] = self.n[i] * self.shares[c] * u[i]
        for e in range(self.pairs):
            i, j = self.first[e], self.second[e]
            row(self.A, i)[j] = self.weight[e] * a[e]
            row(self.A, j)[i] = -self.weight[e] * a[e]
        for k in range(K, 0, -1):
            i, j = self.parent[k], self.stop[k]
            total = add_up(row(self.A, k), k) + add_up(row(self.A, k) + j, K + 1 - j)
            self.gradient[c * K + k - 1] = total
            if i > 0:
                add_multiple(row(self.A, i), 1.0, row(self.A, k), K + 1)

    cdef void substitute(self) noexcept nogil:
        """Let step = -H^-1 gradient; factors are overwritten."""
        cdef Py_ssize_t i
        memset(self.step, 0, self.size * sizeof(double))
        add_multiple(self.step, -1.0, self.gradient, self.size)
        for i in range(self.size - 1, -1, -1):
            self.factors[i] = self.step[i] * row(self.H, i)[i]
            add_multiple(self.step, -self.factors[i], row(self.H, i), i)
        for i in range(self.size):
            self.step[i] = (self.factors[i] - dot(row(self.H, i), self.step, i)) * row(self.H, i)[i]

    cdef void spread(self, Py_ssize_t c) noexcept nogil:
        """Fill in a coordinate of du and dv: differences along the tree."""
        cdef Py_ssize_t e, i, j
        cdef Row own, above
        cdef double z
        for i in range(1, self.K + 1):
            own, above = row(self.A, i), row(self.A, self.parent[i])
            z = self.step[c * self.K + i - 1]
            row(self.A, self.parent[i])[self.parent[i]] = 0.0
            for j in range(i):
                own[j] = above[j] + z
                row(self.A, j)[i] = -own[j]
            row(self.du, c)[i] = own[0]
        own = row(self.dv, c)
        for e in range(self.pairs):
            own[e] = row(self.A, self.first[e])[self.second[e]]


cdef inline void sum_of_rows(Row out, Row a, Row b, Py_ssize_t width) noexcept nogil:
    """Let out = a + b."""
    for j in range(width):
        out[j] = a[j] + b[j]
