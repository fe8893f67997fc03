# What the core has in C: sums in lanes, constants, and the question what the processor can do.

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
