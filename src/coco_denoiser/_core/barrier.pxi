# Exact multipliers of a hard window by an interior-point method whose iterates obey all bounds.
#
# Problem and letters are those of newton.pxi; v_e = phi_m - phi_l for a pair e, its slack is
# s_e = (rho_e^2 - ||v_e||^2) / 2, and u = phi - h. The path to the answer is lam_e s_e = tau,
# tau -> 0. With both equations linearised, a step solves
#
#     H du = -(N u + B (tau / s) v)    with H = N + Laplacian(lam) + sum_e (lam_e / s_e) v_e v_e',
#
# where v_e v_e' acts on the difference of the two points, and dlam = (tau + lam v.dv) / s - lam. A
# first solution with tau = 0 tells how far one could go, and that chooses tau, and a correction of
# second order, as Mehrotra does. Where even then the step is short, Newton's method goes back
# towards the path: at one tau until steps are long again, halved while the convex and
# self-concordant function
#
#     F(phi) = 1/2 sum_i n_i ||phi_i - h_i||^2 - tau sum_e log s_e
#
# does not fall. That leads to the path from everywhere. The gap is that of Newton's method, in the
# same workspace. The system of a step is in barrier_system.pxi.

from libc.math cimport log

cdef extern from *:
    """
    #define SHORT 0.3        /* a step that makes less of its way goes back to the path instead */
    #define SHORTEST 1e-9    /* of a step */
    #define LEAST 0.01       /* of tau that a step leaves: with less, it ends far from the path */
    #define WIDEST 1e4       /* factor by which lam s may differ from its mean */
    #define NARROW 100.0     /* the same, on the way back to the path */
    #define END 0.02         /* of the tolerance: where the path ends */
    """
    double SHORT, SHORTEST, LEAST, WIDEST, NARROW, END


@cython.final
cdef class Barrier(TreeSystem):
    """Where the method is, and how far a step may go."""

    # Of every pair: what a step changes, v.dv and ||dv||^2; the correction of lam s; the best
    # multipliers so far.
    cdef Row dlam, along, square, bend, best
    cdef double loss, primal, dual  # 1/2 sum n u^2, and how far phi and lam may go

    def __cinit__(self, Py_ssize_t K, Py_ssize_t q):
        cdef Py_ssize_t most = K * (K - 1) // 2
        self.dlam, self.best, self.bend = self.vector(most), self.vector(most), self.vector(most)
        self.along, self.square = self.vector(most), self.vector(most)

    cdef bint enter(self, Indices label) noexcept nogil:
        """Begin inside the bounds, as far as they are broken; return False if they are not.

        Points that broken bounds connect are drawn towards their mean, and no others: to move a
        point far away would cost many times what the answer does.
        """
        cdef Py_ssize_t e, i, j, K = self.K, count
        cdef double worst = 0.0, margin, tau
        cdef bint clear = False
        for i in range(K):
            for j in range(i):  # pairs that are not listed connect nothing
                row(self.A, i)[j] = 1.0
        for e in range(self.pairs):
            i, j = self.first[e] - 1, self.second[e] - 1
            self.square[e] = sqrt(squared_distance(row(self.h, i), row(self.h, j), self.q))
            row(self.A, i)[j] = 1.0 if self.square[e] <= self.rho[e] else 0.0
            worst = max(worst, self.square[e] / self.rho[e])
        if not 1.0 < worst < INFINITY:
            return False
        margin = 1.0 + max(min(0.1, worst - 1.0), 1e-14)
        while not clear:
            count = label_groups(self.A, K, 0.5, label)
            self.draw_together(label, count, margin)
            clear = True
            for e in range(self.pairs):
                i, j = self.first[e] - 1, self.second[e] - 1
                if label[i] != label[j] and self.square[e] * margin > self.rho[e]:
                    row(self.A, i)[j], clear = 0.0, False
        self.weigh()
        tau = self.loss / self.pairs
        for e in range(self.pairs):
            self.s[e] = 0.5 * (self.rho[e] - self.square[e]) * (self.rho[e] + self.square[e])
            self.lam[e] = tau / self.s[e]
        return True

    cdef void draw_together(self, Indices label, Py_ssize_t count, double margin) noexcept nogil:
        """Shrink every group until its bounds hold with a margin; fill in u, v and distances."""
        cdef Py_ssize_t c, e, i, j, g
        cdef Row share = self.factors, h, k
        cdef double mass, mean
        for g in range(count):
            share[g], mass = 1.0, 0.0
            for e in range(self.pairs):
                i, j = self.first[e] - 1, self.second[e] - 1
                if label[i] == g and label[j] == g:
                    h, k = row(self.h, i), row(self.h, j)
                    self.square[e] = sqrt(squared_distance(h, k, self.q))
                    share[g] = min(share[g], self.rho[e] / (margin * self.square[e]))
            for i in range(self.K):
                mass += self.n[i + 1] if label[i] == g else 0.0
            for c in range(self.q):
                mean = 0.0
                for i in range(self.K):
                    mean += self.n[i + 1] / mass * row(self.h, i)[c] if label[i] == g else 0.0
                for i in range(self.K):
                    if label[i] == g:
                        row(self.u, c)[i + 1] = (share[g] - 1.0) * (row(self.h, i)[c] - mean)
        for e in range(self.pairs):
            i, j = self.first[e] - 1, self.second[e] - 1
            g, mass = label[i] if label[i] == label[j] else -1, 0.0
            for c in range(self.q):
                mean = row(self.h, i)[c] - row(self.h, j)[c]
                if g >= 0:
                    mean *= share[g]
                else:
                    mean = mean + row(self.u, c)[i + 1] - row(self.u, c)[j + 1]
                row(self.v, c)[e] = mean
                mass += mean * mean
            self.square[e] = share[g] * self.square[e] if g >= 0 else sqrt(mass)
        for i in range(1, self.K + 1):
            j = self.parent[i]
            for c in range(self.q):
                mean = row(self.u, c)[i] - row(self.u, c)[j]
                if j > 0 and label[i - 1] == label[j - 1]:
                    mean = row(self.h, i - 1)[c] - row(self.h, j - 1)[c]
                    mean *= share[label[i - 1]] - 1.0
                row(self.edge, c)[i] = mean

    cdef void weigh(self) noexcept nogil:
        """Fill in the loss."""
        cdef Py_ssize_t c, i
        cdef Row u
        self.loss = 0.0
        for c in range(self.q):
            u = row(self.u, c)
            for i in range(1, self.K + 1):
                self.loss += 0.5 * self.shares[c] * self.n[i] * u[i] * u[i]

    cdef int follow(self, Workspace ws, int max_iter) noexcept nogil:
        """Follow the path; return the number of steps. The best multipliers are kept."""
        cdef double gap, least = INFINITY, mu, tau, end, held = 0.0, left, tol = ws.tol
        cdef int steps = 0
        while True:
            mu = dot(self.lam, self.s, self.pairs)
            if mu <= 2.0 * tol * self.loss or steps >= max_iter:
                gap = self.gap(ws, self.lam)
                if gap < least or steps == 0:
                    least = gap
                    memcpy(self.best, self.lam, self.pairs * sizeof(double))
            # Half the tolerance: the certificate is computed after a last rounding.
            if least <= 0.5 * tol or steps >= max_iter or not mu < INFINITY:
                break
            mu /= self.pairs
            if not self.factorise():
                break
            memset(self.bend, 0, self.pairs * sizeof(double))
            self.direct(0.0)
            left = max(1.0 - min(self.primal, self.dual), self.complementarity() / mu)
            end = END * tol * self.loss / self.pairs
            tau = max(max(min(left, 1.0) ** 2, LEAST) * mu, end)
            self.correct(min(min(self.primal, self.dual), 1.0))
            self.direct(tau)
            left = min(max(0.9, 1.0 - left), 0.999)
            self.primal, self.dual = min(1.0, left * self.primal), min(1.0, left * self.dual)
            if min(self.primal, self.dual) >= SHORT:
                self.advance()
                self.hold(dot(self.lam, self.s, self.pairs) / self.pairs, WIDEST)
                held = 0.0
            else:
                held = max(max(mu, end), held)
                if not self.return_to_path(held):
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

    cdef void direct(self, double tau) noexcept nogil:
        """Find the step towards tau, and how far it may go."""
        cdef Py_ssize_t e, c
        cdef Row a, b
        cdef double fastest = 0.0, largest = 0.0
        for e in range(self.pairs):
            self.weight[e] = (tau + self.bend[e]) / self.s[e]
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
            self.dlam[e] = (tau + self.bend[e] + self.lam[e] * self.along[e]) / self.s[e] - self.lam[e]
            # Both are the inverse of how far the pair may go.
            self.factors[0] = sqrt(self.along[e] * self.along[e] + 2.0 * self.square[e] * self.s[e])
            largest = max(largest, (self.along[e] + self.factors[0]) / (2.0 * self.s[e]))
            fastest = max(fastest, -self.dlam[e] / self.lam[e])
        self.primal = 1.0 / max(largest, 1e-300)
        self.dual = 1.0 / max(fastest, 1e-300)

    cdef void correct(self, double share) noexcept nogil:
        """Let the next step allow for what lam s is not linear in, as the last one shows it."""
        cdef double bend
        for e in range(self.pairs):
            bend = 0.5 * self.lam[e] * self.square[e] + self.dlam[e] * self.along[e]
            self.bend[e] = share * bend

    cdef double complementarity(self) noexcept nogil:
        """Return the mean of lam s, as far as a step may go."""
        cdef double a = min(self.primal, 1.0), b = min(self.dual, 1.0), total = 0.0, s
        for e in range(self.pairs):
            s = self.s[e] - a * (self.along[e] + 0.5 * a * self.square[e])
            total += (self.lam[e] + b * self.dlam[e]) * s
        return total / self.pairs

    cdef void advance(self) noexcept nogil:
        """Go as far as a step may."""
        cdef double a = self.primal, b = self.dual
        cdef Row u, edge
        cdef Py_ssize_t c, e, i
        for c in range(self.q):
            u, edge = row(self.u, c), row(self.edge, c)
            add_multiple(edge + 1, a, self.step + c * self.K, self.K)
            for i in range(1, self.K + 1):  # anew: what u has lost on the way would be missed by v
                u[i] = u[self.parent[i]] + edge[i]
            add_multiple(row(self.v, c), a, row(self.dv, c), self.pairs)
        self.weigh()
        for e in range(self.pairs):
            # Not from v: where bounds are barely broken, that would leave it no digits.
            self.s[e] -= a * (self.along[e] + 0.5 * a * self.square[e])
            self.lam[e] += b * self.dlam[e]

    cdef void hold(self, double tau, double widest) noexcept nogil:
        """Keep lam s within a factor of tau."""
        for e in range(self.pairs):
            self.lam[e] = min(max(self.lam[e], tau / widest / self.s[e]), tau * widest / self.s[e])

    cdef bint return_to_path(self, double tau) noexcept nogil:
        """Make a step of Newton's method that lets F fall; return False if there is none."""
        cdef double rounding = 1e-13 * (self.loss + tau * self.pairs), fall, change, slack, a, move
        cdef Py_ssize_t c, e, i
        memset(self.bend, 0, self.pairs * sizeof(double))
        self.hold(tau, NARROW)
        if not self.factorise():
            return False
        self.direct(tau)
        fall = -dot(self.gradient, self.step, self.size)
        self.primal, self.dual = min(1.0, 0.99 * self.primal), min(1.0, 0.99 * self.dual)
        while self.primal > SHORTEST:
            change, a = 0.0, self.primal
            for c in range(self.q):
                for i in range(1, self.K + 1):
                    move = a * row(self.du, c)[i]
                    change += self.shares[c] * self.n[i] * move * (row(self.u, c)[i] + 0.5 * move)
            for e in range(self.pairs):
                slack = self.s[e] - a * (self.along[e] + 0.5 * a * self.square[e])
                change -= tau * log(slack / self.s[e])
            if change <= rounding - 1e-4 * a * fall:
                self.advance()
                self.hold(tau, NARROW)
                return True
            self.primal *= 0.5
        return False

    cdef double gap(self, Workspace ws, Row lam) noexcept nogil:
        """Return the relative gap of multipliers; the workspace holds their phi."""
        memset(ws.lam, 0, ws.pairs * sizeof(double))
        for e in range(self.pairs):
            ws.lam[self.listed[e]] = lam[e]
        move(ws)
        evaluate(ws)
        return ws.relative_gap

    cdef void drop_idle(self, Workspace ws) noexcept nogil:
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
        if self.gap(ws, self.lam) > 0.5 * ws.tol:
            self.gap(ws, self.best)


cdef void solve_barrier(Workspace ws, double near, int max_iter) noexcept nogil:
    """Solve the problem of a workspace by the barrier method; no bound is below `near`."""
    if begin(ws, near):
        with gil:
            take_path(ws, Barrier(ws.K, ws.q), max_iter)


cdef void take_path(Workspace ws, Barrier path, int max_iter) noexcept:
    """Find the answer of a workspace by following the path."""
    with nogil:
        path.load(ws)
        if path.enter(ws.label):
            ws.steps = path.follow(ws, max_iter)
            path.drop_idle(ws)
            memcpy(ws.best, ws.lam, ws.pairs * sizeof(double))
            finish(ws)
