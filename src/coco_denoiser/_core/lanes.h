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
INLINE double total(lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }
#else /* the same in plain C, for compilers without vectors */
typedef struct { double v[4]; } lanes;
typedef struct { int v[4]; } bits;
#define INLINE static inline
INLINE lanes load(const double *p) { lanes r; memcpy(r.v, p, sizeof r.v); return r; }
INLINE lanes widen(const float *p) {
    lanes r;
    for (int k = 0; k < 4; ++k) r.v[k] = p[k];
    return r;
}
INLINE void store(double *p, lanes a) { memcpy(p, a.v, sizeof a.v); }
INLINE lanes all(double x) { lanes r = {{x, x, x, x}}; return r; }
INLINE lanes add(lanes a, lanes b) { for (int k = 0; k < 4; ++k) a.v[k] += b.v[k]; return a; }
INLINE lanes add_aside(lanes a, lanes b) { return add(a, b); }
INLINE lanes sub(lanes a, lanes b) { for (int k = 0; k < 4; ++k) a.v[k] -= b.v[k]; return a; }
INLINE lanes mul(lanes a, lanes b) { for (int k = 0; k < 4; ++k) a.v[k] *= b.v[k]; return a; }
INLINE lanes narrow(lanes a) { for (int k = 0; k < 4; ++k) a.v[k] = (float)a.v[k]; return a; }
INLINE lanes absolute(lanes a) { for (int k = 0; k < 4; ++k) a.v[k] = fabs(a.v[k]); return a; }
INLINE bits at_most(lanes a, lanes b) {
    bits r;
    for (int k = 0; k < 4; ++k) r.v[k] = a.v[k] <= b.v[k];
    return r;
}
INLINE bits both(bits a, bits b) { for (int k = 0; k < 4; ++k) a.v[k] &= b.v[k]; return a; }
INLINE lanes one_unless(bits a) {
    lanes r;
    for (int k = 0; k < 4; ++k) r.v[k] = a.v[k] ? 0.0 : 1.0;
    return r;
}
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

/* <a, b>, in four lanes; the last entries one by one. */
INLINE double dot(const double *a, const double *b, ptrdiff_t n) {
    lanes sum = all(0.0);
    ptrdiff_t j = 0;
    for (; j + 4 <= n; j += 4) sum = add(sum, mul(load(a + j), load(b + j)));
    double rest = total(sum);
    for (; j < n; ++j) rest += a[j] * b[j];
    return rest;
}

/* The sum of a, likewise. */
INLINE double add_up(const double *a, ptrdiff_t n) {
    lanes sum = all(0.0);
    ptrdiff_t j = 0;
    for (; j + 4 <= n; j += 4) sum = add(sum, load(a + j));
    double rest = total(sum);
    for (; j < n; ++j) rest += a[j];
    return rest;
}
#endif
