# Exact multipliers of a hard window by an interior-point method whose iterates obey all bounds.
#
# Problem and letters are those of newton.pxi; v_e = phi_m - phi_l for a pair e, its slack is
# s_e = (rho_e^2 - ||v_e||^2) / 2, and u = phi - h. The path to the answer is lam_e s_e = tau,
# tau -> 0. With both equations linearised, a step solves
#
#     H du = -(N u + B (tau / s) v)    with H = N + Laplacian(lam) + sum_e (lam_e / s_e) v_e v_e',
#
# where v_e v_e' acts on the difference of the two points, and dlam = (tau + lam v.dv) / s - lam. A
# first solution with tau = 0 tells how far one could go, and that chooses tau, as Mehrotra does.
# Where even then the step is short, Newton's method goes back towards the path: at the present tau,
# halved while the convex and self-concordant function
#
#     F(phi) = 1/2 sum_i n_i ||phi_i - h_i||^2 - tau sum_e log s_e
#
# does not fall. That leads to the path from everywhere.
#
# What saves the digits is the choice of unknowns: a point is its parent in a tree plus a difference
# of its own. So near points lose nothing to where they are. And a parent is known at least as
# precisely as its children, so that no small force is added to a large one. Points are numbered
# such that those that hang on k are k, ..., stop[k] - 1; node 0 is the origin, on which every tree
# hangs. A pair counts in the equation of k if exactly one of its points hangs on k. Sums over those
# pairs are formed without the others, which would have to cancel.

from libc.math cimport log

from numpy import zeros

cdef extern from *:
    """
    #define SHORT 0.1        /* a step that makes less of its way goes back to the path instead */
    #define SHORTEST 1e-9    /* of a step */
    #define WIDEST 1e4       /* factor by which lam s may differ from its mean */
    #define END 0.02         /* of the tolerance: where the path ends */
    """
    double SHORT, SHORTEST, WIDEST, END


@cython.final
cdef class Barrier(Memory):
    """Where the method is, and what a step needs."""

    cdef Py_ssize_t K, q, pairs, size
    cdef Py_ssize_t *above  # the point that a point hangs on; K for the origin
    cdef Py_ssize_t *order  # the point at each node
    cdef Py_ssize_t *parent  # the node that a node hangs on
    cdef Py_ssize_t *stop  # the first node behind those that hang on a node
    cdef Py_ssize_t *first  # the two nodes of a pair, the first being the larger
    cdef Py_ssize_t *second
    cdef double *n
    cdef double *rho
    # Of every pair: slack, multiplier; what a step changes, v.dv and ||dv||^2; the best so far.
    cdef double *s
    cdef double *lam
    cdef double *dlam
    cdef double *along
    cdef double *square
    cdef double *weight
    cdef double *best
    # Coordinates by columns of nodes (u, du) or pairs (v, dv); residuals by rows of nodes.
    cdef Table u, du, v, dv, h, phi
    cdef Table H  # the system, and then its factor: rows below the diagonal, pivots inverted
    cdef double *gradient
    cdef double *step
    cdef double *factors
    cdef Table A, before, after  # by nodes, (K + 1, K + 1)
    cdef Laplacian system
    cdef double *known
    cdef double loss, primal, dual  # 1/2 sum n u^2, and how far phi and lam may go

    def __cinit__(self, Py_ssize_t K, Py_ssize_t q):
        cdef Py_ssize_t most = K * (K - 1) // 2, wide = (q + 3) // 4 * 4
        self.K, self.q, self.size, self.pairs = K, q, K * q, 0
        self.above, self.order = self.indices(K), self.indices(K + 1)
        self.parent, self.stop = self.indices(K + 1), self.indices(K + 1)
        self.first, self.second, self.n = self.indices(most), self.indices(most), self.vector(K + 1)
        self.rho, self.s, self.lam = self.vector(most), self.vector(most), self.vector(most)
        self.dlam, self.along, self.square = self.vector(most), self.vector(most), self.vector(most)
        self.weight, self.best = self.vector(most), self.vector(most)
        self.u, self.du = self.table(q, K + 1), self.table(q, K + 1)
        self.v, self.dv = self.table(q, most), self.table(q, most)
        self.h, self.phi = self.table(K, wide), self.table(K, wide)
        self.H, self.factors = self.table(self.size, self.size), self.vector(self.size)
        self.gradient, self.step = self.vector(self.size), self.vector(self.size)
        self.A, self.before = self.table(K + 1, K + 1), self.table(K + 1, K + 1)
        self.after, self.known = self.table(K + 2, K + 1), self.vector(K)
        self.system.K, self.system.q, self.system.pivot = K, wide, self.vector(K)
        self.system.A, self.system.F = self.table(K, wide + 1 + K), self.table(K, K)

    cdef Py_ssize_t *indices(self, Py_ssize_t size) except NULL:
        """Return room for indices."""
        return <Py_ssize_t *> self.allocate((size + 1) * sizeof(Py_ssize_t))

    cdef void load(self, double *h, Table bounds, double *precisions) noexcept nogil:
        """Take a problem: number its points along a tree, and list the pairs.

        The parent of a point is the nearest of those known at least as precisely, if there is a
        bound.
        """
        cdef Py_ssize_t K = self.K, i, j, m, l, next = 1
        cdef double least
        for i in range(K):
            self.above[i], least = K, INFINITY
            for j in range(K):
                if precisions[j] > precisions[i] or (precisions[j] == precisions[i] and j < i):
                    if row(bounds, i)[j] < least:
                        self.above[i], least = j, row(bounds, i)[j]
        for i in range(K):
            if self.above[i] == K:
                next = self.number(i, 0, next)
        for i in range(1, K + 1):
            m = self.order[i]
            self.n[i] = precisions[m]
            memcpy(row(self.h, i - 1), h + m * self.q, self.q * sizeof(double))
            for j in range(1, i):
                l = self.order[j]
                if row(bounds, m)[l] < INFINITY and not is_implied(bounds, K, m, l):
                    self.first[self.pairs], self.second[self.pairs] = i, j
                    self.rho[self.pairs] = row(bounds, m)[l]
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

    cdef bint enter(self) noexcept nogil:
        """Begin inside the bounds, as far as they are broken; return False if they are not."""
        cdef double worst = 0.0, mass = 0.0, mean, square, shrink, tau
        cdef Py_ssize_t c, e, i
        cdef double *a
        for e in range(self.pairs):
            square = squared_distance(
                row(self.h, self.first[e] - 1), row(self.h, self.second[e] - 1), self.system.q
            )
            self.square[e] = sqrt(square)
            worst = max(worst, self.square[e] / self.rho[e])
        if not 1.0 < worst < INFINITY:
            return False
        shrink = 1.0 / (worst * (1.0 + max(min(0.1, worst - 1.0), 1e-14)))
        for i in range(1, self.K + 1):
            mass += self.n[i]
        self.loss = 0.0
        for c in range(self.q):
            a, mean = row(self.u, c), 0.0
            for i in range(1, self.K + 1):
                mean += self.n[i] / mass * row(self.h, i - 1)[c]
            for i in range(1, self.K + 1):
                a[i] = (shrink - 1.0) * (row(self.h, i - 1)[c] - mean)
                self.loss += 0.5 * self.n[i] * a[i] * a[i]
            a = row(self.v, c)
            for e in range(self.pairs):
                a[e] = shrink * (row(self.h, self.first[e] - 1)[c] - row(self.h, self.second[e] - 1)[c])
        tau = self.loss / self.pairs
        for e in range(self.pairs):
            square = shrink * self.square[e]
            self.s[e] = 0.5 * (self.rho[e] - square) * (self.rho[e] + square)
            self.lam[e] = tau / self.s[e]
        return True

    cdef int follow(self, double tol, int max_iter) noexcept nogil:
        """Follow the path; return the number of steps. The best multipliers are kept."""
        cdef double gap, least = INFINITY, mu, tau, left
        cdef int steps = 0
        while True:
            mu = dot(self.lam, self.s, self.pairs)
            if mu <= 2.0 * tol * self.loss or steps >= max_iter:
                gap = self.gap(0.1 * tol)
                if gap < least or steps == 0:
                    least = gap
                    memcpy(self.best, self.lam, self.pairs * sizeof(double))
            # Half the tolerance: the certificate is computed after a last rounding.
            if least <= 0.5 * tol or steps >= max_iter or not mu < INFINITY:
                break
            mu /= self.pairs
            if not self.factorise():
                break
            self.direct(0.0)
            left = max(1.0 - min(self.primal, self.dual), self.complementarity() / mu)
            tau = max(min(left, 1.0) ** 2 * mu, END * tol * self.loss / self.pairs)
            self.direct(tau)
            left = min(max(0.9, 1.0 - left), 0.999)
            self.primal, self.dual = min(1.0, left * self.primal), min(1.0, left * self.dual)
            if min(self.primal, self.dual) >= SHORT:
                self.advance(WIDEST)
            elif not self.return_to_path(mu):
                break
            steps += 1
        if least == INFINITY:
            memcpy(self.best, self.lam, self.pairs * sizeof(double))
        return steps

    cdef bint factorise(self) noexcept nogil:
        """Factor the system, with a ridge if need be; return False if that fails."""
        cdef double ridge = 1e-15
        for _ in range(4):
            self.assemble()
            if self.cholesky(ridge):
                return True
            ridge *= 100.0
        return False

    cdef void assemble(self) noexcept nogil:
        """Fill in H, block by block of two coordinates."""
        cdef Py_ssize_t c, d, e, i, j
        cdef double *a
        cdef double *b
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
                        row(self.A, 0)[i] = row(self.A, i)[0] = self.n[i]
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
        cdef double *inside
        cdef double *before
        cdef double *after
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
        cdef double *own
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

    cdef void direct(self, double tau) noexcept nogil:
        """Find the step towards tau, and how far it may go."""
        cdef Py_ssize_t e, c
        cdef double *a
        cdef double *b
        cdef double fastest = 0.0, largest = 0.0
        for e in range(self.pairs):
            self.weight[e] = tau / self.s[e]
            self.along[e] = self.square[e] = 0.0
        for c in range(self.q):
            self.collect(c)
        self.substitute()
        for c in range(self.q):
            self.spread(c)
            a, b = row(self.v, c), row(self.dv, c)
            for e in range(self.pairs):
                self.along[e] += a[e] * b[e]
                self.square[e] += b[e] * b[e]
        for e in range(self.pairs):
            self.dlam[e] = (tau + self.lam[e] * self.along[e]) / self.s[e] - self.lam[e]
            # Both are the inverse of how far the pair may go.
            self.factors[0] = sqrt(self.along[e] * self.along[e] + 2.0 * self.square[e] * self.s[e])
            largest = max(largest, (self.along[e] + self.factors[0]) / (2.0 * self.s[e]))
            fastest = max(fastest, -self.dlam[e] / self.lam[e])
        self.primal = 1.0 / max(largest, 1e-300)
        self.dual = 1.0 / max(fastest, 1e-300)

    cdef void collect(self, Py_ssize_t c) noexcept nogil:
        """Fill in a coordinate of the gradient: the forces across the edge of every subtree."""
        cdef Py_ssize_t K = self.K, e, i, j, k
        cdef double *a = row(self.v, c)
        cdef double *u = row(self.u, c)
        for i in range(K + 1):
            memset(row(self.A, i), 0, (K + 1) * sizeof(double))
            row(self.A, i)[0] = self.n[i] * u[i]
        for e in range(self.pairs):
            i, j = self.first[e], self.second[e]
            row(self.A, i)[j] = self.weight[e] * a[e]
            row(self.A, j)[i] = -self.weight[e] * a[e]
        for k in range(K, 0, -1):
            i, j = self.parent[k], self.stop[k]
            self.gradient[c * K + k - 1] = add_up(row(self.A, k), k) + add_up(row(self.A, k) + j, K + 1 - j)
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
        cdef double *own
        cdef double *above
        cdef double z
        for i in range(1, self.K + 1):
            own, above, z = row(self.A, i), row(self.A, self.parent[i]), self.step[c * self.K + i - 1]
            row(self.A, self.parent[i])[self.parent[i]] = 0.0
            for j in range(i):
                own[j] = above[j] + z
                row(self.A, j)[i] = -own[j]
            row(self.du, c)[i] = own[0]
        own = row(self.dv, c)
        for e in range(self.pairs):
            own[e] = row(self.A, self.first[e])[self.second[e]]

    cdef double complementarity(self) noexcept nogil:
        """Return the mean of lam s, as far as a step may go."""
        cdef double a = min(self.primal, 1.0), b = min(self.dual, 1.0), total = 0.0, s
        for e in range(self.pairs):
            s = self.s[e] - a * (self.along[e] + 0.5 * a * self.square[e])
            total += (self.lam[e] + b * self.dlam[e]) * s
        return total / self.pairs

    cdef void advance(self, double widest) noexcept nogil:
        """Go as far as a step may; keep lam s within a factor of its mean."""
        cdef double a = self.primal, b = self.dual, mu
        cdef Py_ssize_t c, e, i
        self.loss = 0.0
        for c in range(self.q):
            add_multiple(row(self.u, c), a, row(self.du, c), self.K + 1)
            add_multiple(row(self.v, c), a, row(self.dv, c), self.pairs)
            for i in range(1, self.K + 1):
                self.loss += 0.5 * self.n[i] * row(self.u, c)[i] * row(self.u, c)[i]
        for e in range(self.pairs):
            # Not from v: where bounds are barely broken, that would leave it no digits.
            self.s[e] -= a * (self.along[e] + 0.5 * a * self.square[e])
            self.lam[e] += b * self.dlam[e]
        mu = dot(self.lam, self.s, self.pairs) / self.pairs
        for e in range(self.pairs):
            self.lam[e] = min(max(self.lam[e], mu / widest / self.s[e]), mu * widest / self.s[e])

    cdef bint return_to_path(self, double tau) noexcept nogil:
        """Make a step of Newton's method that lets F fall; return False if there is none."""
        cdef double rounding = 1e-13 * (self.loss + tau * self.pairs), fall, change, slack, a, move
        cdef Py_ssize_t c, e, i
        self.direct(tau)
        fall = -dot(self.gradient, self.step, self.size)
        self.primal, self.dual = min(1.0, 0.99 * self.primal), min(1.0, 0.99 * self.dual)
        while self.primal > SHORTEST:
            change, a = 0.0, self.primal
            for c in range(self.q):
                for i in range(1, self.K + 1):
                    move = a * row(self.du, c)[i]
                    change += self.n[i] * move * (row(self.u, c)[i] + 0.5 * move)
            for e in range(self.pairs):
                slack = self.s[e] - a * (self.along[e] + 0.5 * a * self.square[e])
                change -= tau * log(slack / self.s[e])
            if change <= rounding - 1e-4 * a * fall:
                self.advance(100.0)
                return True
            self.primal *= 0.5
        return False

    cdef double gap(self, double within) noexcept nogil:
        """Return the relative gap of what the multipliers say, drawn together until it fits."""
        cdef Py_ssize_t e, i, c, q = self.system.q
        cdef double worst = 1.0 + within, gap = 0.0, value = 0.0, spread = 0.0, lost, w, total, shrink
        cdef double *own
        cdef double *given
        for i in range(self.K):
            own = row(self.system.A, i)
            memset(own, 0, (q + 1 + i) * sizeof(double))
            add_multiple(own, self.n[i + 1], row(self.h, i), q)
            own[q] = self.n[i + 1]
        for e in range(self.pairs):
            row(self.system.A, self.first[e] - 1)[q + self.second[e]] = self.lam[e]
        solve_system(self.system, self.phi)
        for i in range(self.K):
            own, given, total = row(self.phi, i), row(self.h, i), 0.0
            for c in range(self.q):
                total += fabs(own[c]) + fabs(own[c] - given[c])
            self.known[i] = ROUNDING * total
        for e in range(self.pairs):
            i, c = self.first[e] - 1, self.second[e] - 1
            self.weight[e] = sqrt(squared_distance(row(self.phi, i), row(self.phi, c), q))
            lost = min(ROUNDING, self.known[i] + self.known[c])
            worst = max(worst, (self.weight[e] - lost) / self.rho[e])
        shrink = 1.0 / worst if worst > 1.0 + within else 1.0
        for i in range(self.K):
            own, given = row(self.phi, i), row(self.h, i)
            for c in range(self.q):
                w = shrink * own[c] - given[c]
                value += 0.5 * self.n[i + 1] * w * w
                spread += 0.5 * self.n[i + 1] * own[c] * own[c]
        for e in range(self.pairs):
            lost = min(ROUNDING, self.known[self.first[e] - 1] + self.known[self.second[e] - 1])
            w = fabs(self.rho[e] - shrink * self.weight[e]) - 0.5 * lost
            gap += self.lam[e] * self.weight[e] * max(w, 0.0)
        return (gap + (1.0 - shrink) * (1.0 - shrink) * spread) / value

    cdef void drop_idle(self, double tol) noexcept nogil:
        """Set multipliers to zero whose pairs are inside their bounds, if nothing is lost by it."""
        cdef double most = 0.0, a, b
        cdef Py_ssize_t e
        memcpy(self.lam, self.best, self.pairs * sizeof(double))
        for e in range(self.pairs):
            most = max(most, self.lam[e] * self.rho[e])
        for e in range(self.pairs):
            a, b = self.n[self.first[e]], self.n[self.second[e]]
            # A slack that is larger than the multiplier, each on its own scale.
            if self.lam[e] * self.rho[e] ** 3 <= most * 2.0 * a * b / (a + b) * self.s[e]:
                self.lam[e] = 0.0
        if self.gap(0.1 * tol) <= 0.5 * tol:
            memcpy(self.best, self.lam, self.pairs * sizeof(double))


cdef inline void sum_of_rows(double *out, double *a, double *b, Py_ssize_t width) noexcept nogil:
    """Let out = a + b."""
    for j in range(width):
        out[j] = a[j] + b[j]


def barrier(residuals, bounds, precisions, double tol, int max_iter):
    """Return the multipliers, (K, K) and symmetric, and the number of steps.

    Args:
        residuals: (K, q).
        bounds: (K, K), symmetric, none of them zero off the diagonal; they may be infinite.
        precisions: (K,), positive.
        tol: relative duality gap to reach.
        max_iter: limit on the steps.
    """
    cdef Arrays given = Arrays()
    cdef Py_ssize_t K = residuals.shape[0], q = residuals.shape[1], e, i, j
    cdef Barrier path = Barrier(K, q)
    cdef Table rho
    cdef int steps = 0
    multipliers = zeros((K, K))
    cdef double *h = given.read(residuals, K, q)
    cdef double *n = given.read(precisions, K)
    cdef double *out = given.write(multipliers, K, K)
    rho.data, rho.stride = given.read(bounds, K, K), K
    with nogil:
        path.load(h, rho, n)
        if path.enter():
            steps = path.follow(tol, max_iter)
            path.drop_idle(tol)
        for e in range(path.pairs):
            i, j = path.order[path.first[e]], path.order[path.second[e]]
            out[i * K + j] = out[j * K + i] = path.best[e]
    return multipliers, steps
