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
typedef double lanes __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))
INLINE lanes load(const double *p) { lanes v; memcpy(&v, p, sizeof v); return v; }
INLINE void store(double *p, lanes v) { memcpy(p, &v, sizeof v); }
INLINE lanes all(double x) { return (lanes){x, x, x, x}; }
INLINE lanes add(lanes a, lanes b) { return a + b; }
INLINE lanes sub(lanes a, lanes b) { return a - b; }
INLINE lanes mul(lanes a, lanes b) { return a * b; }
INLINE double total(lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }
#else /* the same in plain C, for compilers without vectors */
typedef struct { double v[4]; } lanes;
#define INLINE static inline
INLINE lanes load(const double *p) { lanes r; memcpy(r.v, p, sizeof r.v); return r; }
INLINE void store(double *p, lanes a) { memcpy(p, a.v, sizeof a.v); }
INLINE lanes all(double x) { lanes r = {{x, x, x, x}}; return r; }
INLINE lanes add(lanes a, lanes b) { for (int k = 0; k < 4; ++k) a.v[k] += b.v[k]; return a; }
INLINE lanes sub(lanes a, lanes b) { for (int k = 0; k < 4; ++k) a.v[k] -= b.v[k]; return a; }
INLINE lanes mul(lanes a, lanes b) { for (int k = 0; k < 4; ++k) a.v[k] *= b.v[k]; return a; }
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
