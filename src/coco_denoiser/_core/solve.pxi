# A window, by one method after the other.

cdef enum:
    SMALL = 128  # unknowns, K q, up to which the barrier method follows at once
    EARLY = 24  # steps that Newton's method has then
    PATH = 200  # steps of the barrier method


cdef bint solve_window(Workspace ws, int max_iter, Route route) noexcept nogil:
    """Solve the problem of a workspace, and judge the answer; return whether it is good enough.

    On a line dynamic programming first; then Newton's method, and then the barrier method. These
    take points that nearly coincide for one; where the certificate tells that this was not good
    enough, the latter tells them apart. A negative max_iter leaves the limit to the method.
    """
    cdef bint small = ws.K * ws.q <= SMALL
    cdef int steps = max_iter if max_iter >= 0 else <int> STEPS
    if route == LINE or (route == EITHER and ws.q == 1 and ws.K > 2):
        ws.answered = LINE
        ws.distinct = solve_groups(ws, 0.0, 0)
        if certify_answer(ws) or route == LINE:
            return ws.gap <= ws.tol and ws.violation <= ws.tol
    ws.answered, ws.distinct = NEWTON, ws.K
    if route != BARRIER:
        if small and route == EITHER:
            steps = min(steps, <int> EARLY)
        if not solve_newton(ws, steps):
            ws.distinct = solve_groups(ws, COINCIDENT, steps)
        if certify_answer(ws) or route == NEWTON or not small:
            return ws.gap <= ws.tol and ws.violation <= ws.tol
    ws.answered, steps = BARRIER, max_iter if max_iter >= 0 else <int> PATH
    ws.distinct = solve_groups(ws, COINCIDENT, steps)
    if certify_answer(ws):
        return True
    if ws.distinct < ws.K and solve_groups(ws, ROUNDING, steps) > ws.distinct:
        return certify_answer(ws)
    return False
