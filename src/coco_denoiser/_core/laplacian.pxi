# (N + Laplacian(lam)) x = b without a subtraction, where N is diagonal and positive.
#
# Nodes are eliminated one by one, from the last to the first, as Grassmann, Taksar and Heyman do
# for Markov chains: every number stays non-negative and is only added to, so tight clusters lose
# no digits. Row i of the table A, `stride` numbers long, holds q right-hand sides, the precision
# n_i, and the multipliers of i with the nodes before it.


cdef void eliminate(
    double *A, double *pivot, Py_ssize_t stride, Py_ssize_t q, Py_ssize_t start, Py_ssize_t stop
) noexcept nogil:
    """Eliminate the nodes from start to stop, to which later ones have been added already."""
    cdef Py_ssize_t i, k
    cdef double *row
    for i in range(stop - 1, start - 1, -1):
        row = A + i * stride
        for k in range(stop - 1, i, -1):
            add_multiple(row, A[k * stride + q + 1 + i] * pivot[k], A + k * stride, q + 1 + i)
        pivot[i] = 1.0 / add_up(row + q, i + 1)
