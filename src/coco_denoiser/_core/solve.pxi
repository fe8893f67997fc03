# A window, by one method after the other.

cdef enum:
    SMALL = 128  # unknowns, K q, up to which the barrier method follows at once
    EARLY = 24  # steps that Newton's method has then
    PATH = 200  # steps of the barrier method

cdef extern from *:
    """
    #define BARRIER_WORK 3e9 /* multiplications that a step of the barrier method may take */
    """
    const double BARRIER_WORK

# Bounds up to which points count as one for the barrier method, one after the other.
cdef double[3] LEVELS = [COINCIDENT, ROUNDING, 1e-150]


cdef void solve_window(Workspace ws, Route route) noexcept nogil:
    """Solve the problem of a workspace, and judge the answer.

    On a line dynamic programming first; then Newton's method, and then the barrier method. These
    take points that nearly coincide for one; where the certificate tells that this was not good
    enough, the latter tells them apart. Where all fall short, the answer is the best.
    """
    cdef double unknowns = <double> ws.K * ws.q
    cdef int steps = ws.max_iter if ws.max_iter >= 0 else <int> STEPS
    cdef Py_ssize_t count, distinct = 0, k
    ws.least_error = INFINITY
    if route == LINE or (route == EITHER and ws.q == 1 and ws.K > 2):
        if attempt(ws, Attempt(LINE, 0.0, 0)):
            return
    if route == NEWTON or route == EITHER:
        if route == EITHER and unknowns <= SMALL:
            steps = min(steps, <int> EARLY)
        if attempt(ws, Attempt(NEWTON, COINCIDENT, steps)):
            return
    if route == BARRIER or (route == EITHER and unknowns ** 3 <= 6.0 * BARRIER_WORK):
        steps = ws.max_iter if ws.max_iter >= 0 else <int> PATH
        for k in range(3):
            count = label_groups(ws.bounds, ws.K, LEVELS[k], ws.label)
            if count > distinct and attempt(ws, Attempt(BARRIER, LEVELS[k], steps)):
                return
            distinct = count
    if max(ws.gap, ws.violation) > ws.least_error:
        attempt(ws, ws.best_attempt)


cdef bint attempt(Workspace ws, Attempt way) noexcept nogil:
    """Solve by one method; return whether the answer is good enough, and remember the best."""
    ws.answered, ws.distinct = way.route, ws.K
    if way.route != NEWTON or not solve_newton(ws, way.steps):
        ws.distinct = solve_groups(ws, way.near, way.steps)
    if certify_answer(ws):
        return True
    if max(ws.gap, ws.violation) < ws.least_error:
        ws.least_error, ws.best_attempt = max(ws.gap, ws.violation), way
    return False


cdef void take_multipliers(Workspace ws, Row lam) noexcept nogil:
    """Let the answer be that of multipliers, (K, K)."""
    for e in range(ws.pairs):
        ws.lam[e] = ws.best[e] = lam[ws.first[e] * ws.K + ws.second[e]]
    move(ws)
    finish(ws)


cdef int ask(Workspace ws, function) except -1:
    """Solve a problem by a function of residuals, bounds and precisions; judge the answer.

    It returns multipliers, (K, K), and the number of its steps; and is asked only where points
    are distinct and observations break a bound.
    """
    cdef Workspace part = ws
    cdef Memory given = Memory.__new__(Memory)
    ws.answered = ASKED
    ws.distinct = label_groups(ws.bounds, ws.K, COINCIDENT, ws.label)
    if ws.distinct < ws.K:
        part = merge_groups(ws, ws.distinct)
    if begin(part, COINCIDENT):
        multipliers, steps = function(*part.problem())
        lam = ascontiguousarray(multipliers, "d")
        take_multipliers(part, given.read(lam, part.K, part.K))
        part.steps = steps
    if part is not ws:
        expand_groups(ws, part)
    certify_answer(ws)
    return 0
