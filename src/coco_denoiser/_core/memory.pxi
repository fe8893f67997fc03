# Tables of numbers, and the memory that holds them: of NumPy arrays, checked once, or our own.

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.math cimport INFINITY, NAN, fabs, sqrt
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from sys import maxsize

from numpy import ascontiguousarray, empty


ctypedef double *Row
ctypedef Py_ssize_t *Indices

cdef struct Table:
    double *data
    Py_ssize_t stride


cdef inline double *row(Table table, Py_ssize_t i) noexcept nogil:
    """Return the beginning of a row."""
    return table.data + i * table.stride


cdef inline Py_ssize_t whole(Py_ssize_t count) noexcept nogil:
    """Return the number of lanes that hold `count` numbers, and four more to read ahead."""
    return (count + 7) // 4 * 4


@cython.freelist(8)
cdef class Memory:
    """What pointers point to, until this object is dropped: arrays and blocks of numbers."""

    cdef Py_buffer views[16]
    cdef void *blocks[64]
    cdef int borrowed, used

    def __cinit__(self, *_):
        self.borrowed = self.used = 0

    def __dealloc__(self):
        for k in range(self.borrowed):
            PyBuffer_Release(&self.views[k])
        for k in range(self.used):
            free(self.blocks[k])

    cdef void *take(
        self, object array, Py_ssize_t rows, Py_ssize_t columns, char kind, bint writable
    ) except NULL:
        """Return the memory of a contiguous array of rows * columns numbers of a kind."""
        assert self.borrowed < 16
        cdef Py_buffer *view = &self.views[self.borrowed]
        flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT
        PyObject_GetBuffer(array, view, flags | PyBUF_WRITABLE if writable else flags)
        self.borrowed += 1
        if view.format[0] != kind or view.format[1] != 0:
            raise TypeError(f"expected an array of {chr(kind)!r}, got {view.format.decode()!r}")
        if view.len != rows * columns * view.itemsize:
            raise ValueError(f"expected {rows} * {columns} numbers, got {array.shape}")
        return view.buf

    cdef double *read(self, object array, Py_ssize_t rows, Py_ssize_t columns=1) except NULL:
        """Return the memory of an array of float64 to read."""
        return <double *> self.take(array, rows, columns, b"d", False)

    cdef double *write(self, object array, Py_ssize_t rows, Py_ssize_t columns=1) except NULL:
        """Return the memory of an array of float64 to write."""
        return <double *> self.take(array, rows, columns, b"d", True)

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

    cdef Indices indices(self, Py_ssize_t size) except NULL:
        """Return room for indices."""
        return <Indices> self.allocate(max(size, 1) * sizeof(Py_ssize_t))

    cdef Table table(self, Py_ssize_t rows, Py_ssize_t columns) except *:
        """Return room for a table."""
        cdef Table made
        made.stride = whole(columns)
        made.data = <double *> self.allocate(max(rows, 1) * made.stride * sizeof(double))
        return made
