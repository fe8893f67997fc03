# One problem, its answer, and everything that is computed on the way.

from coco_denoiser.solution import Answer, Status


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

cdef extern from *:
    """
    /* A pair of the answer may break its bound by this share of it, or a tenth of tol if that is
     * less: drawing all points together costs far more than it mends where one is far away. */
    #define FEASIBLE 1e-10
    """
    const double FEASIBLE

cdef class Line(Memory)  # line.pxi


cdef class Model(Memory):
    """The quadratic model of a step over m pairs, and its minimum over y >= 0."""

    cdef Py_ssize_t m, room, held, K, q, most
    cdef Indices listed, one, two  # the pairs that take part, and their points
    cdef Indices at  # which of them are free
    cdef char *free
    cdef Row y, slope, target, factors
    cdef Table X, Y, V, H, R
    # Of conjugate gradients: the vectors v, by pairs, the diagonal, forces and moves of the points.
    cdef Table vectors, forces, moves
    cdef Row diagonal
    cdef double spent  # multiplications

    def __cinit__(self, Py_ssize_t K, Py_ssize_t q, Py_ssize_t most):
        self.K, self.q, self.most, self.m = K, q, most, 0
        self.listed, self.at = self.indices(most), self.indices(most)
        self.one, self.two = self.indices(most), self.indices(most)
        self.free = <char *> self.allocate(max(most, 1))
        self.y, self.slope, self.target = self.vector(most), self.vector(most), self.vector(most)
        self.factors, self.diagonal = self.vector(most), self.vector(most)
        self.forces, self.moves, self.held = self.table(K, q), self.table(K, q), 0
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

    cdef int make_vectors(self, Py_ssize_t m) except -1:
        """Make room for the vectors of m pairs: of all there are it might be too much."""
        self.held = min(max(m, 2 * self.held), self.most)
        self.vectors = self.table(self.held, self.q)
        return 0


cdef class Workspace(Memory):
    """K residuals with up to a number of coordinates, the answer, and Newton's method on them.

    Tables of coordinates have a multiple of four columns, the last of which are zero.

    Attributes:
        least: the least noise variance of the window that was reduced.
    """

    cdef readonly double least
    cdef Py_ssize_t K, q, most, pairs
    cdef double tol, within  # the gap to reach, and by what share of it phi may break a bound
    cdef int max_iter  # limit on the steps; -1 leaves it to the method
    cdef Route answered  # which of them did
    cdef int steps  # of Newton's method
    cdef Py_ssize_t active, distinct  # pairs at their bounds, points that were told apart
    cdef double gap, violation  # of the answer, by the certificate
    cdef Attempt best_attempt
    cdef double least_error  # of it
    cdef bint apart  # whether no bound is near zero
    # The problem: residuals, bounds, precisions; and the answer: W, phi, multipliers by pairs.
    cdef Table h, bounds, W, phi
    cdef Row n, best
    cdef Row shares  # what precisions are multiplied by in each coordinate
    cdef bint coloured  # whether these differ: the noise has a covariance
    cdef Table layers  # M of every coordinate then, (q K, K)
    # phi transposed, how well each is known, and the system that phi solves.
    cdef Table columns
    cdef Row size
    cdef Laplacian system
    cdef Table right  # N h beside N
    # Of every pair: its points, bound, the bound's inverse (0 if others imply it), multiplier,
    # distance, how well that is known, the ratio of the round before; those of a step before.
    cdef Indices first, second
    cdef Row rho, inverse, lam, w, lost, last, old_lam, old_w, term
    # What the last evaluation found: the relative gap, the dual, the worst ratio to a bound.
    cdef double relative_gap, dual, worst
    cdef Model model
    cdef Line line
    cdef Table multipliers
    # Of the certificate: forces, what makes up for the rounding of phi, and their mean.
    cdef Table force, u
    cdef Row mean
    cdef Indices label  # of the group of each point
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
        self.first, self.second = self.indices(pairs), self.indices(pairs)
        self.rho, self.inverse = self.vector(pairs), self.vector(pairs)
        self.lam, self.w, self.lost = self.vector(pairs), self.vector(pairs), self.vector(pairs)
        self.last, self.best = self.vector(pairs), self.vector(pairs)
        self.old_lam, self.old_w = self.vector(pairs), self.vector(pairs)
        self.term = self.vector(pairs)
        self.force, self.u, self.mean = self.table(K, q), self.table(K, q), self.vector(q)
        self.model, self.line = Model(K, q, pairs), Line(K)
        self.label = self.indices(K)
        for i in range(q):
            self.shares[i] = 1.0
        for i in range(K):
            for j in range(i):
                self.first[e], self.second[e] = i, j
                e += 1

    cdef int aim(self, double tol, max_iter) except -1:
        """Set what the answer must reach, and the limit on the steps; None leaves it to the method."""
        self.tol, self.within = tol, min(0.1 * tol, FEASIBLE)
        self.max_iter = -1 if max_iter is None else max_iter
        return 0

    cdef int load(self, residuals, bounds, precisions, shares=None) except -1:
        """Set the problem: residuals (K, q), bounds (K, K), precisions (K,).

        With a covariance, precisions are multiplied by shares (q,) in each coordinate.
        """
        cdef Memory given = Memory.__new__(Memory)
        cdef Py_ssize_t K = self.K, q = residuals.shape[1], i
        cdef Row h = given.read(residuals, K, q), rho = given.read(bounds, K, K)
        memcpy(self.n, given.read(precisions, K), K * sizeof(double))
        set_coordinates(self, q)
        self.coloured = False
        for i in range(self.system.q):
            self.shares[i] = 1.0
        if shares is not None:
            self.coloured = read_shares(self.shares, given.read(shares, q), q)
        self.make_layers()
        for i in range(K):
            memcpy(row(self.h, i), h + i * q, q * sizeof(double))
            memcpy(row(self.bounds, i), rho + i * K, K * sizeof(double))
        return 0

    cdef int make_layers(self) except -1:
        """Make room for the inverses of all coordinates, if there is a covariance."""
        if self.coloured and self.layers.data == NULL:
            self.layers = self.table(self.most * self.K, self.K)
        return 0

    def problem(self):
        """Return the problem: residuals (K, q), bounds (K, K), precisions (K,)."""
        n = copied(Table(self.n, 0), 1, self.K)[0]
        return copied(self.h, self.K, self.q), copied(self.bounds, self.K, self.K), n

    def answer(self):
        """Return the answer, in the units of the problem."""
        K = self.K
        found = copied(self.phi, K, self.q), copied(self.W, K, K), copied(self.multipliers, K, K)
        return Answer(*found, *self.verdict())

    def weights(self, Py_ssize_t i):
        """Return the weights of one residual, (K,), and what is known about the answer."""
        if not 0 <= i < self.K:
            raise IndexError(f"expected one of {self.K} residuals, got {i}")
        return copied(Table(row(self.W, i), 0), 1, self.K)[0], *self.verdict()

    cdef tuple verdict(self):
        """Return gap, violation, steps, the name of the method, and the status."""
        cdef int limit = PATH if self.answered == BARRIER else STEPS
        method = "line" if self.answered == LINE else "newton"
        if self.answered == BARRIER:
            method = "barrier"
        elif self.distinct <= 2:
            method = "closed-form"
        if self.max_iter >= 0:
            limit = self.max_iter
        ended = status(self.gap, self.violation, self.tol, self.active > 0, self.steps >= limit)
        return self.gap, self.violation, self.steps, method, ended

    def solve(self, method="auto") -> None:
        """Solve the problem, and judge the answer: the best, if none is good enough.

        Args:
            method: "line", "newton" or "closed-form", "barrier", or "auto": one after the other,
                the first for one coordinate; or a function, as `ask` takes.
        """
        cdef Route route = EITHER
        if not isinstance(method, str):
            ask(self, method)
            return
        if method != "auto":
            route = LINE if method == "line" else BARRIER if method == "barrier" else NEWTON
        with nogil:
            solve_window(self, route)


cdef inline bint is_good(double gap, double violation, double tol) noexcept nogil:
    """Return whether an answer reaches a tolerance; what is not a number does not."""
    return gap <= tol and violation <= tol


cpdef status(double gap, double violation, double tol, bint moved, bint exhausted):
    """Return how a solver ended, by the certificate.

    Args:
        gap: relative duality gap.
        violation: worst relative violation of a bound.
        tol: what both must reach.
        moved: whether the answer differs from the observations.
        exhausted: whether the steps were used up.
    """
    if is_good(gap, violation, tol):
        return SOLVED if moved else UNCHANGED
    return ITERATION_LIMIT if exhausted else STALLED


# An enumeration takes longer to look up.
SOLVED, UNCHANGED = Status.SOLVED, Status.UNCHANGED
ITERATION_LIMIT, STALLED = Status.ITERATION_LIMIT, Status.STALLED


cdef void set_coordinates(Workspace ws, Py_ssize_t q) noexcept nogil:
    """Set the number of coordinates; columns up to a multiple of four are zero."""
    cdef Py_ssize_t i, c
    ws.q, ws.system.q = q, (q + 3) // 4 * 4
    for i in range(ws.K):
        for c in range(q, ws.system.q):
            row(ws.h, i)[c] = 0.0


cdef void copy_out(Table table, Row out, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    """Copy a table to contiguous memory."""
    for i in range(rows):
        memcpy(out + i * columns, row(table, i), columns * sizeof(double))


cdef object copied(Table table, Py_ssize_t rows, Py_ssize_t columns):
    """Return the numbers of a table as an array."""
    cdef Memory given = Memory.__new__(Memory)
    array = empty((rows, columns))
    copy_out(table, given.write(array, rows, columns), rows, columns)
    return array


_idle = {}  # workspaces that nobody uses, by the number of residuals


def solve(problem, double tol, max_iter, method):
    """Solve a problem, and judge the answer; return it.

    Args:
        problem: residuals and what is asked of them.
        tol: relative gap and violation to reach.
        max_iter: limit on the steps; None leaves it to the method.
        method: what `Workspace.solve` takes.
    """
    cdef Workspace ws = loaded(problem)
    ws.aim(tol, max_iter)
    ws.solve(method)
    answer = ws.answer()
    give_back(ws)
    return answer


def average(problem, multipliers, double within):
    """Return the answer of multipliers, (K, K); phi may break its bounds by a share of them."""
    cdef Workspace ws = loaded(problem)
    cdef Memory given = Memory()
    ws.aim(0.0, None)
    ws.within = within
    ws.answered, ws.distinct = NEWTON, ws.K
    if begin(ws, 0.0):
        take_multipliers(ws, given.read(multipliers, ws.K, ws.K))
    certify_answer(ws)
    answer = ws.answer()
    give_back(ws)
    return answer


cdef bint read_shares(Row shares, const double *given, Py_ssize_t q) noexcept nogil:
    """Copy what precisions are multiplied by; return whether coordinates differ."""
    cdef bint coloured = False
    cdef Py_ssize_t c
    for c in range((q + 3) // 4 * 4):
        shares[c] = given[c] if c < q else 1.0
        coloured = coloured or shares[c] != 1.0
    return coloured


cdef tuple parts(problem):
    """Return residuals, bounds, precisions, and what these are multiplied by, contiguous."""
    given = problem.residuals, problem.bounds, problem.precisions, problem.coordinate_precisions
    return tuple(map(ascontiguousarray, given))


cdef Workspace loaded(problem):
    """Return a workspace that holds a problem."""
    residuals, bounds, precisions, shares = parts(problem)
    K, q = residuals.shape
    cdef Workspace ws = borrow(K, q)
    ws.load(residuals, bounds, precisions, shares)
    return ws


cdef Workspace borrow(Py_ssize_t K, Py_ssize_t q):
    """Return a workspace that nobody uses."""
    cdef Workspace ws = _idle.pop(K, None)
    return Workspace(K, q) if ws is None or ws.most < q else ws


cdef int give_back(Workspace ws) except -1:
    """Keep a workspace for the next problem of its size."""
    if ws.K <= 64:  # larger ones hold more memory than making them anew costs time
        if len(_idle) >= 16:
            _idle.clear()
        _idle[ws.K] = ws
    return 0
