# Tables of numbers, and the C memory that holds them.

from libc.math cimport INFINITY, NAN, fabs, sqrt
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from numpy import ascontiguousarray, empty


cdef struct Table:
    double *data
    Py_ssize_t stride


cdef inline double *row(Table table, Py_ssize_t i) noexcept nogil:
    """Return the beginning of a row."""
    return table.data + i * table.stride


cdef inline Py_ssize_t whole(Py_ssize_t count) noexcept nogil:
    """Return the number of lanes that hold `count` numbers, and four more to read ahead."""
    return (count + 7) // 4 * 4


cdef class Memory:
    """C memory that is freed with its owner: one block for each array."""

    cdef void *blocks[64]
    cdef int used

    def __cinit__(self, *_):
        self.used = 0

    def __dealloc__(self):
        for k in range(self.used):
            free(self.blocks[k])

    cdef void *allocate(self, size_t size) except NULL:
        """Return memory filled with zeros, at an address that is a multiple of 32."""
        assert self.used < 64
        cdef void *block = calloc(size + 32, 1)
        if block == NULL:
            raise MemoryError(f"no memory for {size} bytes")
        self.blocks[self.used] = block
        self.used += 1
        return <void *> ((<uintptr_t> block + 31) // 32 * 32)

    cdef double *vector(self, Py_ssize_t size) except NULL:
        """Return room for a vector."""
        return <double *> self.allocate(whole(size) * sizeof(double))

    cdef Table table(self, Py_ssize_t rows, Py_ssize_t columns) except *:
        """Return room for a table."""
        cdef Table made
        made.stride = whole(columns)
        made.data = <double *> self.allocate(max(rows, 1) * made.stride * sizeof(double))
        return made
