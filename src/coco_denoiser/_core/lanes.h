/* Rows of numbers, four lanes at a time.
 *
 * Every sum is added up in the same order whatever the width of a register is, so SSE2, AVX2 and
 * plain C give the same bits as long as nothing is fused or reordered (-ffp-contract=off, no
 * -ffast-math). Rows have room for whole groups of four numbers; what lies beyond the last one is
 * computed and never used.
 */
#ifndef COCO_LANES_H
#define COCO_LANES_H
#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__GNUC__) && !defined(COCO_PLAIN_LANES)
#ifdef __AVX__
#include <immintrin.h>
#endif
#define FETCH(p) __builtin_prefetch(p)
typedef double lanes __attribute__((vector_size(32)));
typedef float narrow_lanes __attribute__((vector_size(16)));
typedef long long bits __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))
INLINE lanes load(const double *p) { lanes v; memcpy(&v, p, sizeof v); return v; }
#ifdef __AVX__ /* GCC 12 converts in two halves, by way of memory */
INLINE lanes widen(const float *p) { return (lanes)_mm256_cvtps_pd(_mm_loadu_ps(p)); }
INLINE lanes narrow(lanes v) { return (lanes)_mm256_cvtps_pd(_mm256_cvtpd_ps((__m256d)v)); }
#else
INLINE lanes widen(const float *p) {
    narrow_lanes v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, lanes);
}
INLINE lanes narrow(lanes v) {
    return __builtin_convertvector(__builtin_convertvector(v, narrow_lanes), lanes);
}
#endif
INLINE void store(double *p, lanes v) { memcpy(p, &v, sizeof v); }
INLINE lanes all(double x) { return (lanes){x, x, x, x}; }
INLINE lanes add(lanes a, lanes b) { return a + b; }
#ifdef __FMA__ /* the same bits, in the units that multiply: the others have more to do */
INLINE lanes add_aside(lanes a, lanes b) {
    return (lanes)_mm256_fmadd_pd((__m256d)b, _mm256_set1_pd(1.0), (__m256d)a);
}
#else
INLINE lanes add_aside(lanes a, lanes b) { return a + b; }
#endif
INLINE lanes sub(lanes a, lanes b) { return a - b; }
INLINE lanes mul(lanes a, lanes b) { return a * b; }
INLINE lanes absolute(lanes v) { return (lanes)((bits)v & 0x7fffffffffffffffLL); }
INLINE bits at_most(lanes a, lanes b) { return a <= b; }
INLINE bits both(bits a, bits b) { return a & b; }
INLINE lanes one_unless(bits a) { return (lanes)(~a & (bits)all(1.0)); }
#ifdef __AVX__ /* GCC takes four roots one after the other */
INLINE lanes root(lanes v) { return (lanes)_mm256_sqrt_pd((__m256d)v); }
#else
INLINE lanes root(lanes v) { return (lanes){sqrt(v[0]), sqrt(v[1]), sqrt(v[2]), sqrt(v[3])}; }
#endif
INLINE double total(lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }
INLINE lanes larger(lanes a, lanes b) {
    const bits m = a > b;
    return (lanes)(((bits)a & m) | ((bits)b & ~m));
}
#else /* the same in plain C, lane by lane, for compilers without vectors */
#define FETCH(p) ((void)(p))
typedef struct { double v[4]; } lanes;
typedef struct { int v[4]; } bits;
#define INLINE static inline
#define EACH(type, function, lane) \
    INLINE type function { type r; for (int k = 0; k < 4; ++k) r.v[k] = lane; return r; }
EACH(lanes, load(const double *p), p[k])
EACH(lanes, widen(const float *p), p[k])
EACH(lanes, narrow(lanes a), (float)a.v[k])
EACH(lanes, all(double x), x)
EACH(lanes, add(lanes a, lanes b), a.v[k] + b.v[k])
EACH(lanes, add_aside(lanes a, lanes b), a.v[k] + b.v[k])
EACH(lanes, sub(lanes a, lanes b), a.v[k] - b.v[k])
EACH(lanes, mul(lanes a, lanes b), a.v[k] * b.v[k])
EACH(lanes, absolute(lanes a), fabs(a.v[k]))
EACH(lanes, root(lanes a), sqrt(a.v[k]))
EACH(lanes, larger(lanes a, lanes b), a.v[k] > b.v[k] ? a.v[k] : b.v[k])
EACH(lanes, one_unless(bits a), a.v[k] ? 0.0 : 1.0)
EACH(bits, at_most(lanes a, lanes b), a.v[k] <= b.v[k])
EACH(bits, both(bits a, bits b), a.v[k] & b.v[k])
INLINE void store(double *p, lanes a) { memcpy(p, a.v, sizeof a.v); }
INLINE double total(lanes a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }
#endif

/* out[j] += f p[j] */
INLINE void add_multiple(double *out, double f, const double *p, ptrdiff_t width) {
    const lanes g = all(f);
    for (ptrdiff_t j = 0; j < width; j += 4) store(out + j, add(load(out + j), mul(g, load(p + j))));
}

/* out[j] *= f */
INLINE void multiply(double *out, double f, ptrdiff_t width) {
    const lanes g = all(f);
    for (ptrdiff_t j = 0; j < width; j += 4) store(out + j, mul(load(out + j), g));
}

/* A function that adds up n terms in four lanes, the last ones one by one: first what four terms
 * are, from j on, then what the term j is. */
#define SUM(function, four, one) \
    INLINE double function { \
        lanes sum = all(0.0); \
        ptrdiff_t j = 0; \
        for (; j + 4 <= n; j += 4) sum = add(sum, four); \
        double rest = total(sum); \
        for (; j < n; ++j) rest += one; \
        return rest; \
    }
INLINE lanes square(lanes v) { return mul(v, v); }
INLINE double squared(double v) { return v * v; }
INLINE lanes apart(const double *a, const double *b) { return sub(load(a), load(b)); }

SUM(dot(const double *a, const double *b, ptrdiff_t n), mul(load(a + j), load(b + j)), a[j] * b[j])
SUM(add_up(const double *a, ptrdiff_t n), load(a + j), a[j])
/* The sum of |a - b|. */
SUM(absolute_distance(const double *a, const double *b, ptrdiff_t n),
    absolute(apart(a + j, b + j)), fabs(a[j] - b[j]))
/* ||a - b||^2 */
SUM(squared_distance(const double *a, const double *b, ptrdiff_t n),
    square(apart(a + j, b + j)), squared(a[j] - b[j]))
/* ||(a - b) - c (x - y)||^2 */
SUM(squared_residual(const double *a, const double *b, double c, const double *x, const double *y,
                     ptrdiff_t n),
    square(sub(apart(a + j, b + j), mul(all(c), apart(x + j, y + j)))),
    squared((a[j] - b[j]) - c * (x[j] - y[j])))

/* The largest of a and zero. Beyond n, a must not be larger than zero. */
INLINE double largest(const double *a, ptrdiff_t n) {
    lanes most = all(0.0);
    double four[4];
    for (ptrdiff_t j = 0; j < n; j += 4) most = larger(load(a + j), most);
    store(four, most);
    const double x = four[0] > four[1] ? four[0] : four[1];
    const double y = four[2] > four[3] ? four[2] : four[3];
    return x > y ? x : y;
}

/* out[j] += sum_k factors[k] rows[k][j], of columns in groups of four, whose number is known when
 * this is compiled, so that sums stay in registers. */
INLINE void combine_groups(const int groups, double *out, const double *factors, const double *rows,
                           ptrdiff_t stride, ptrdiff_t count) {
    lanes sum[4];
    for (int i = 0; i < groups; ++i) sum[i] = load(out + 4 * i);
    for (ptrdiff_t k = 0; k < count; ++k, rows += stride) {
        const lanes f = all(factors[k]);
        for (int i = 0; i < groups; ++i) sum[i] = add(sum[i], mul(f, load(rows + 4 * i)));
    }
    for (int i = 0; i < groups; ++i) store(out + 4 * i, sum[i]);
}

/* The same for j below width. */
static void combine(double *out, const double *factors, const double *rows, ptrdiff_t stride,
                    ptrdiff_t count, ptrdiff_t width) {
    ptrdiff_t j = 0;
    for (; j + 12 < width; j += 16) combine_groups(4, out + j, factors, rows + j, stride, count);
    for (; j + 4 < width; j += 8) combine_groups(2, out + j, factors, rows + j, stride, count);
    if (j < width) combine_groups(1, out + j, factors, rows + j, stride, count);
}

/* out[j] = sqrt(sum_c (columns[c][j] - x[c])^2) */
static void distances_to(double *out, const double *columns, ptrdiff_t stride, const double *x,
                         ptrdiff_t q, ptrdiff_t count) {
    for (ptrdiff_t j = 0; j < count; j += 4) {
        lanes sum = all(0.0);
        for (ptrdiff_t c = 0; c < q; ++c) {
            sum = add(sum, square(sub(load(columns + c * stride + j), all(x[c]))));
        }
        store(out + j, root(sum));
    }
}

/* out[j] = (a[j] - b[j]) (c[j] - d[j]) */
INLINE void multiply_differences(double *out, const double *a, const double *b, const double *c,
                                 const double *d, ptrdiff_t width) {
    for (ptrdiff_t j = 0; j < width; j += 4)
        store(out + j, mul(apart(a + j, b + j), apart(c + j, d + j)));
}
#endif
