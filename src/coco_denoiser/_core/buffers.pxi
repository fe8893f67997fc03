# The edge between Python and C: the memory of NumPy arrays, checked once.

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)

cimport cython


cdef extern from *:
    """
    #if defined(__GNUC__) && defined(__x86_64__)
    #include <cpuid.h>
    /* By hand: not every compiler can link __builtin_cpu_supports into a shared library. */
    static int supports_avx2(void) {
        unsigned a, b, c, d, low, high;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_FMA)) return 0;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        const int saved = (low & 6) == 6;  /* the system saves the wide registers */
        return saved && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
    }
    #else
    static int supports_avx2(void) { return 0; }
    #endif
    """
    bint supports_avx2()

cdef extern from "lanes.h" nogil:
    void add_multiple(double *out, double f, const double *p, Py_ssize_t width) noexcept
    void multiply(double *out, double f, Py_ssize_t width) noexcept
    double dot(const double *a, const double *b, Py_ssize_t n) noexcept
    double add_up(const double *a, Py_ssize_t n) noexcept
    double largest(const double *a, Py_ssize_t n) noexcept
    void combine(
        double *out, const double *factors, const double *rows, Py_ssize_t stride,
        Py_ssize_t count, Py_ssize_t width,
    ) noexcept
    void distances_to(
        double *out, const double *columns, Py_ssize_t stride, const double *x, Py_ssize_t q,
        Py_ssize_t count,
    ) noexcept
    double squared_distance(const double *a, const double *b, Py_ssize_t n) noexcept
    double absolute_distance(const double *a, const double *b, Py_ssize_t n) noexcept
    double squared_residual(
        const double *a, const double *b, double c, const double *x, const double *y, Py_ssize_t n
    ) noexcept
    void multiply_differences(
        double *out, const double *a, const double *b, const double *c, const double *d,
        Py_ssize_t width,
    ) noexcept

cdef extern from "constants.h" nogil:
    const double COINCIDENT, ROUNDING, WITHIN, FREE


cdef char INDEX = b"l" if sizeof(long) == sizeof(Py_ssize_t) else b"q"  # of numpy.intp


def has_avx2() -> bool:
    """Return whether this processor can run the build for AVX2."""
    return supports_avx2()


@cython.final
@cython.freelist(8)
cdef class Arrays:
    """The memory of some NumPy arrays, borrowed until this object is dropped."""

    cdef Py_buffer views[16]
    cdef int count

    def __cinit__(self):
        self.count = 0

    def __dealloc__(self):
        for k in range(self.count):
            PyBuffer_Release(&self.views[k])

    cdef void *take(
        self, object array, Py_ssize_t rows, Py_ssize_t columns, char kind, bint writable
    ) except NULL:
        """Return the memory of a contiguous array of rows * columns numbers of a kind."""
        assert self.count < 16
        cdef Py_buffer *view = &self.views[self.count]
        flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT
        PyObject_GetBuffer(array, view, flags | PyBUF_WRITABLE if writable else flags)
        self.count += 1
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
