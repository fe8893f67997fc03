# (N + Laplacian(lam)) x = b without a subtraction, where N is diagonal and positive.
#
# Nodes are eliminated one by one, from the last to the first, as Grassmann, Taksar and Heyman do
# for Markov chains: every number stays non-negative and is only added to, so tight clusters lose
# no digits. Row i of A holds q right-hand sides, the precision n_i, and the multipliers of i with
# the nodes before it; q is a multiple of four. Row i of F holds what the nodes after i are
# multiplied by when they are added to i.


cdef struct Laplacian:
    Py_ssize_t K, q
    Table A, F
    Row pivot


cdef void eliminate(Laplacian s) noexcept nogil:
    """Eliminate one node after another, and their right-hand sides."""
    cdef Py_ssize_t i, k
    cdef Row factors, own
    for i in range(s.K - 1, -1, -1):
        factors, own = row(s.F, i), row(s.A, i)
        for k in range(i + 1, s.K):
            factors[k] = row(s.A, k)[s.q + 1 + i] * s.pivot[k]
        if i + 1 < s.K:
            combine(own, factors + i + 1, row(s.A, i + 1), s.A.stride, s.K - i - 1, s.q + 1 + i)
        s.pivot[i] = 1.0 / add_up(own + s.q, i + 1)


cdef void solve_system(Laplacian s, Table x) noexcept nogil:
    """Fill x with the solutions, (K, q)."""
    cdef Py_ssize_t i
    eliminate(s)
    for i in range(s.K):
        memcpy(row(x, i), row(s.A, i), s.q * sizeof(double))
        combine(row(x, i), row(s.A, i) + s.q + 1, x.data, x.stride, i, s.q)
        multiply(row(x, i), s.pivot[i], s.q)


cdef void invert(Laplacian s, Table M) noexcept nogil:
    """Fill M with the inverse, (K, K): above the diagonal, then mirrored."""
    cdef Py_ssize_t i, j, start
    for i in range(s.K - 1, -1, -1):
        start = i - i % 4
        memset(row(M, i), 0, s.K * sizeof(double))
        row(M, i)[i] = 1.0
        if i + 1 < s.K:
            combine(
                row(M, i) + start, row(s.F, i) + i + 1, row(M, i + 1) + start, M.stride,
                s.K - i - 1, s.K - start,
            )
    for i in range(s.K):
        start = i - i % 4
        combine(
            row(M, i) + start, row(s.A, i) + s.q + 1, M.data + start, M.stride, i, s.K - start
        )
        multiply(row(M, i) + start, s.pivot[i], s.K - start)
    for i in range(s.K):
        for j in range(i):
            row(M, i)[j] = row(M, j)[i]


cdef Laplacian load_share(Laplacian s, Row n, Table lam, double share) noexcept nogil:
    """Set the system (N + Laplacian(lam) / share) x = b, b being zero; return it."""
    cdef Py_ssize_t i, j
    cdef Row own
    s.q = 4
    for i in range(s.K):
        own = row(s.A, i)
        memset(own, 0, 4 * sizeof(double))
        own[4] = n[i]
        for j in range(i):
            own[5 + j] = min(row(lam, i)[j], 1e30) / share
    return s


cdef void solve_shares(
    Laplacian s, Row n, Table lam, Row shares, Py_ssize_t q, Table x
) noexcept nogil:
    """Overwrite the coordinates x_c of x, (K, q), by (s_c N + Laplacian(lam))^-1 x_c."""
    cdef Py_ssize_t c, i
    for c in range(q):
        s = load_share(s, n, lam, shares[c])
        for i in range(s.K):
            row(s.A, i)[0] = row(x, i)[c] / shares[c]
        solve_system(s, s.F)  # which the elimination has done with
        for i in range(s.K):
            row(x, i)[c] = row(s.F, i)[0]
