# One problem, its answer, and everything that is computed on the way.

cdef enum Route:
    EITHER  # one after the other, until an answer is good enough
    LINE
    NEWTON
    BARRIER
    ASKED  # a function of the caller's

cdef struct Attempt:
    Route route
    double near  # up to which bounds points count as one
    int steps


cdef enum:
    # Pairs, and points, up to which the matrix of Newton's method is stored: from there on conjugate
    # gradients are faster, and `python -m benchmarks large-windows` measures it.
    FACTORISED = 1200
    FEW_POINTS = 160

cdef class Line(Memory)  # line.pxi


cdef class Model(Memory):
    """The quadratic model of a step over m pairs, and its minimum over y >= 0."""

    cdef Py_ssize_t m, room, K, q, most
    cdef Py_ssize_t *listed  # the pairs that take part
    cdef Py_ssize_t *one
    cdef Py_ssize_t *two
    cdef Py_ssize_t *at  # which of them are free
    cdef char *free
    cdef double *y
    cdef double *slope
    cdef double *target
    cdef double *factors
    cdef Table X, Y, V, H, R
    # Of conjugate gradients: the vectors v, by pairs, the diagonal, forces and moves of the points.
    cdef Table vectors, forces, moves
    cdef double *diagonal
    cdef double spent  # multiplications

    def __cinit__(self, Py_ssize_t K, Py_ssize_t q, Py_ssize_t most):
        self.K, self.q, self.most, self.m = K, q, most, 0
        cdef size_t size = max(most, 1) * sizeof(Py_ssize_t)
        self.listed = <Py_ssize_t *> self.allocate(size)
        self.at = <Py_ssize_t *> self.allocate(size)
        self.one, self.two = <Py_ssize_t *> self.allocate(size), <Py_ssize_t *> self.allocate(size)
        self.free = <char *> self.allocate(max(most, 1))
        self.y, self.slope, self.target = self.vector(most), self.vector(most), self.vector(most)
        self.factors, self.diagonal = self.vector(most), self.vector(most)
        self.vectors, self.forces = self.table(most, q), self.table(K, q)
        self.moves = self.table(K, q)
        self.make_room(min(min(most, 4 * K), FACTORISED))

    cdef bint is_small(self) noexcept nogil:
        """Return whether the matrix is stored."""
        return self.m <= FACTORISED and self.K <= FEW_POINTS

    cdef int make_room(self, Py_ssize_t m) except -1:
        """Make room for the system of m pairs; at most a few times, as it doubles."""
        self.room = min(max(m, 2 * self.room), self.most)
        self.X, self.Y = self.table(self.K, self.room), self.table(self.K, self.room)
        self.V, self.H = self.table(self.q, self.room), self.table(self.room, self.room)
        self.R = self.table(self.room, self.room + 1)
        return 0


cdef class Workspace(Memory):
    """K residuals with up to a number of coordinates, the answer, and Newton's method on them.

    Tables of coordinates have a multiple of four columns, the last of which are zero.

    Attributes:
        K: how many residuals there are.
        q: how many coordinates they have.
        steps: how many Newton's method took.
        active: how many pairs are at their bounds.
        distinct: how many points were told apart.
        gap: relative duality gap of the answer, by the certificate.
        violation: worst relative violation of a bound, by the certificate.
        shift: from the centre of a window's residuals to that of its problem.
        radius: how far apart residuals may be, relative to their points.
        tol: relative gap to reach.
        within: phi may break its bounds by this share of them.
        least: the least noise variance of the window that was reduced.
    """

    cdef public double shift, radius, tol, within

    cdef readonly Py_ssize_t K, q, active, distinct
    cdef readonly int steps
    cdef Route answered  # which of them did
    cdef Attempt best_attempt
    cdef double least_error  # of it
    cdef bint apart  # whether no bound is near zero
    cdef readonly double gap, violation, least
    cdef Py_ssize_t most, pairs
    # The problem: residuals, bounds, precisions; and the answer: W, phi, multipliers by pairs.
    cdef Table h, bounds, W, phi
    cdef double *n
    cdef double *shares  # what these are multiplied by in each coordinate
    cdef bint coloured  # whether these differ: the noise has a covariance
    cdef Table layers  # M of every coordinate then, (q K, K)
    cdef double *best
    # phi transposed, how well each is known, and the system that phi solves.
    cdef Table columns
    cdef double *size
    cdef Laplacian system
    cdef Table right  # N h beside N
    # Of every pair: its points, bound, the bound's inverse (0 if others imply it), multiplier,
    # distance, how well that is known, the ratio of the round before; those of a step before.
    cdef Py_ssize_t *first
    cdef Py_ssize_t *second
    cdef double *rho
    cdef double *inverse
    cdef double *lam
    cdef double *w
    cdef double *lost
    cdef double *last
    cdef double *old_lam
    cdef double *old_w
    cdef double *term
    # What the last evaluation found: the relative gap, the dual, the worst ratio to a bound.
    cdef double relative_gap, dual, worst
    cdef Model model
    cdef Line line
    cdef Table multipliers
    cdef double *scratch  # of the certificate
    cdef Py_ssize_t *label  # of the group of each point
    cdef Workspace part  # of the problem in which every group is one point

    def __cinit__(self, Py_ssize_t K, Py_ssize_t most):
        cdef Py_ssize_t q = (most + 3) // 4 * 4, pairs = K * (K - 1) // 2, e = 0, i, j
        self.K, self.most, self.pairs = K, most, pairs
        self.h, self.phi, self.right = self.table(K, q), self.table(K, q), self.table(K, q + 1)
        self.bounds, self.W, self.multipliers = self.table(K, K), self.table(K, K), self.table(K, K)
        self.columns, self.n, self.size = self.table(q, K), self.vector(K), self.vector(K)
        self.shares, self.coloured = self.vector(q), False
        self.system.K, self.system.pivot = K, self.vector(K)
        self.system.A, self.system.F = self.table(K, q + 1 + K), self.table(K, K)
        self.first = <Py_ssize_t *> self.allocate(max(pairs, 1) * sizeof(Py_ssize_t))
        self.second = <Py_ssize_t *> self.allocate(max(pairs, 1) * sizeof(Py_ssize_t))
        self.rho, self.inverse = self.vector(pairs), self.vector(pairs)
        self.lam, self.w, self.lost = self.vector(pairs), self.vector(pairs), self.vector(pairs)
        self.last, self.best = self.vector(pairs), self.vector(pairs)
        self.old_lam, self.old_w = self.vector(pairs), self.vector(pairs)
        self.term = self.vector(pairs)
        self.scratch = self.vector(certificate_room(K, q))
        self.model, self.line = Model(K, q, pairs), Line(K)
        self.label = <Py_ssize_t *> self.allocate(K * sizeof(Py_ssize_t))
        for i in range(q):
            self.shares[i] = 1.0
        for i in range(K):
            for j in range(i):
                self.first[e], self.second[e] = i, j
                e += 1

    def load(self, residuals, bounds, precisions, shares=None) -> None:
        """Set the problem: residuals (K, q), bounds (K, K), precisions (K,).

        With a covariance, precisions are multiplied by shares (q,) in each coordinate.
        """
        cdef Arrays given = Arrays()
        cdef Py_ssize_t K = self.K, q = residuals.shape[1], i
        if q > self.most:
            raise ValueError(f"expected at most {self.most} coordinates, got {q}")
        cdef double *h = given.read(residuals, K, q)
        cdef double *rho = given.read(bounds, K, K)
        memcpy(self.n, given.read(precisions, K), K * sizeof(double))
        set_coordinates(self, q)
        self.coloured = False
        if shares is not None:
            self.coloured = read_shares(self.shares, given.read(shares, q), q)
        self.make_layers()
        for i in range(K):
            memcpy(row(self.h, i), h + i * q, q * sizeof(double))
            memcpy(row(self.bounds, i), rho + i * K, K * sizeof(double))

    cdef int make_layers(self) except -1:
        """Make room for the inverses of all coordinates, if there is a covariance."""
        if self.coloured and self.layers.data == NULL:
            self.layers = self.table(self.most * self.K, self.K)
        return 0

    def problem(self, residuals, bounds, precisions) -> None:
        """Fill arrays with the problem: residuals (K, q), bounds (K, K), precisions (K,)."""
        cdef Arrays given = Arrays()
        memcpy(given.write(precisions, self.K), self.n, self.K * sizeof(double))
        copy_out(self.h, given.write(residuals, self.K, self.q), self.K, self.q)
        copy_out(self.bounds, given.write(bounds, self.K, self.K), self.K, self.K)

    def answer(self, weights, phi, multipliers) -> None:
        """Fill arrays with the answer: W (K, K), phi (K, q), multipliers (K, K)."""
        cdef Arrays given = Arrays()
        copy_out(self.W, given.write(weights, self.K, self.K), self.K, self.K)
        copy_out(self.phi, given.write(phi, self.K, self.q), self.K, self.q)
        copy_out(self.multipliers, given.write(multipliers, self.K, self.K), self.K, self.K)

    def weights(self, Py_ssize_t i):
        """Return the weights of an answer, (K,)."""
        if not 0 <= i < self.K:
            raise IndexError(f"expected one of {self.K} residuals, got {i}")
        cdef Arrays given = Arrays()
        found = empty(self.K)
        memcpy(given.write(found, self.K), row(self.W, i), self.K * sizeof(double))
        return found

    @property
    def method(self) -> str:
        """The name of the method that answered."""
        if self.answered == BARRIER:
            return "barrier"
        if self.distinct <= 2:
            return "closed-form"
        return "line" if self.answered == LINE else "newton"

    def solve(self, int max_iter=-1, method="auto") -> bool:
        """Solve the problem, and judge the answer; return whether it is good enough.

        Args:
            max_iter: limit on the steps; -1 leaves it to the method.
            method: "line", "newton", "barrier", or "auto": one after the other, the first for one
                coordinate; or a function, as `ask` takes.
        """
        cdef bint solved
        cdef Route route = EITHER
        if not isinstance(method, str):
            return ask(self, method)
        if method != "auto":
            route = LINE if method == "line" else BARRIER if method == "barrier" else NEWTON
        with nogil:
            solved = solve_window(self, max_iter, route)
        return solved


cdef bint certify_answer(Workspace ws) noexcept nogil:
    """Judge the answer of a workspace; return whether it is good enough."""
    cdef Claim claim
    claim.K, claim.q, claim.n = ws.K, ws.system.q, ws.n
    claim.h, claim.bounds, claim.phi, claim.lam = ws.h, ws.bounds, ws.phi, ws.multipliers
    claim.shares, claim.coloured = ws.shares, ws.coloured
    divide_room(&claim, ws.scratch)
    ws.gap, ws.violation = judge(&claim)
    return ws.gap <= ws.tol and ws.violation <= ws.tol


cdef void set_coordinates(Workspace ws, Py_ssize_t q) noexcept nogil:
    """Set the number of coordinates; columns up to a multiple of four are zero."""
    cdef Py_ssize_t i, c
    ws.q, ws.system.q = q, (q + 3) // 4 * 4
    for i in range(ws.K):
        for c in range(q, ws.system.q):
            row(ws.h, i)[c] = 0.0


cdef void copy_out(Table table, double *out, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    """Copy a table to contiguous memory."""
    for i in range(rows):
        memcpy(out + i * columns, row(table, i), columns * sizeof(double))


_idle = {}  # workspaces that nobody uses, by their size


def solve(
    residuals, bounds, precisions, shares, double tol, int max_iter, double within, method
):
    """Solve a problem, and judge the answer.

    Args:
        residuals: (K, q).
        bounds: (K, K).
        precisions: (K,).
        shares: (q,), what these are multiplied by in each coordinate; None for 1.
        tol: relative gap to reach.
        max_iter: limit on the steps; -1 leaves it to the method.
        within: phi may break its bounds by this share of them.
        method: what `Workspace.solve` takes.

    Returns:
        W (K, K), phi (K, q), multipliers (K, K), the number of steps, whether any pair is at its
        bound, gap and violation, and the name of the method.
    """
    K, q = residuals.shape
    cdef Workspace ws = borrow(K, q)
    ws.load(residuals, bounds, precisions, shares)
    ws.tol, ws.within = tol, within
    ws.solve(max_iter, method)
    weights, phi, multipliers = empty((K, K)), empty((K, q)), empty((K, K))
    ws.answer(weights, phi, multipliers)
    give_back(ws)
    return weights, phi, multipliers, ws.steps, ws.active > 0, ws.gap, ws.violation, ws.method


def average(residuals, bounds, precisions, shares, multipliers, double within):
    """Return the answer of multipliers, (K, K): W (K, K), phi (K, q), gap and violation."""
    K, q = residuals.shape
    cdef Workspace ws = borrow(K, q)
    cdef Arrays given = Arrays()
    ws.load(residuals, bounds, precisions, shares)
    ws.tol, ws.within = 0.0, within
    if begin(ws, 0.0):
        take_multipliers(ws, given.read(multipliers, K, K))
    certify_answer(ws)
    weights, phi = empty((K, K)), empty((K, q))
    ws.answer(weights, phi, empty((K, K)))
    give_back(ws)
    return weights, phi, ws.gap, ws.violation


cdef Workspace borrow(Py_ssize_t K, Py_ssize_t most):
    """Return a workspace that nobody uses."""
    cdef Workspace ws = _idle.pop((K, most), None)
    return Workspace(K, most) if ws is None else ws


cdef int give_back(Workspace ws) except -1:
    """Keep a workspace for the next problem of its size."""
    if ws.K <= 64:  # larger ones hold more memory than making them anew costs time
        if len(_idle) >= 16:
            _idle.clear()
        _idle[ws.K, ws.most] = ws
    return 0
